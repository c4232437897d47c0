"""Gradient tracking: clients share their model and an estimate of the average gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..privacy.gate import Gate
from .gossip import GossipReference, check_reference, curvature, local_gradient
from .method import Cohort, Increment, State, sum_of_directions


@dataclass(frozen=True)
class GradientTracking(GossipReference):
    """DIGing (Nedić, Olshevsky & Shi 2017) with Metropolis weights, O_i = f_i + R:

        x_i^{t+1} = Σ_j w_ij x_j^t − α y_i^t
        y_i^{t+1} = Σ_j w_ij y_j^t + ∇O_i(x_i^{t+1}) − ∇O_i(x_i^t)

    Σ_i y_i = Σ_i ∇O_i(x_i) in every round, and the fixed points are exactly the optima of (P1). The first round makes
    y_i = ∇O_i at the common start and moves nothing, so T rounds are T gradients and T − 1 steps.

    Privacy: none. A reference; see `GossipReference`.

    Attributes:
        rounds: T.
        alpha: α, the step.
        batch_size: records of a stochastic gradient, distinct; left out: all.
        final_mixing: gossip rounds at the end, for the models that clients use.
    """

    rounds: int = 200
    alpha: float = 0.3
    batch_size: int | None = None
    final_mixing: int = 0

    name: ClassVar[str] = "gradient-tracking"
    source: ClassVar[str] = "Nedić, Olshevsky & Shi 2017, Achieving geometric convergence (DIGing)"
    shared: ClassVar[tuple[str, ...]] = ("x", "y")

    def __post_init__(self) -> None:
        check_reference(self)

    def init(self, start: Tensor) -> State:
        return {"x": start, "y": torch.zeros_like(start), "gradient": torch.zeros_like(start)}

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        x = tracked_step(state, pull, self.alpha)
        gradient, asked = local_gradient(x, cohort, gate, self.batch_size)
        heading = sum_of_directions(-gradient)
        change = gate.release(gradient).add_(x, alpha=curvature(cohort.problem)).sub_(state["gradient"])
        return Increment(change, {"queries": asked}, heading)

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        return tracked(state, pull, increment, self.alpha)


def tracked_step(state: State, pull: Tensor, alpha: float) -> Tensor:
    """x^{t+1} ``[n, d]`` from ``pull`` = (W x, W y): public, before the round touches any data."""
    return torch.add(pull[:, : state["x"].shape[1]], state["y"], alpha=-alpha)


def tracked(state: State, pull: Tensor, increment: Tensor | None, alpha: float) -> State:
    """The next model, tracker and last gradient, from the change of the gradient that was released."""
    mixed, gradient = pull[:, state["x"].shape[1] :], state["gradient"]
    if increment is None:
        increment = torch.zeros_like(mixed)
    return {"x": tracked_step(state, pull, alpha), "y": mixed + increment, "gradient": gradient + increment}
