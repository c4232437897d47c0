"""EXTRA, an exact first-order method: two models of memory cancel the bias of decentralised gradient descent."""

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
class EXTRA(GossipReference):
    """Shi, Ling, Wu & Yin (2015), algorithm 1, with W̃ = (I + W)/2, Metropolis weights and O_i = f_i + R:

        x^1     = W x^0 − α ∇O(x^0)
        x^{k+2} = (I + W) x^{k+1} − W̃ x^k − α [∇O(x^{k+1}) − ∇O(x^k)]

    The fixed points are exactly the optima of (P1). The state keeps W̃x^k and ∇O(x^k).

    Privacy: none. A reference; see `GossipReference`.

    Attributes:
        rounds: T.
        alpha: α, the step; with these weights it converges for α < 2λ_min(W̃)/L.
        batch_size: records of a stochastic gradient, distinct; left out: all.
        final_mixing: gossip rounds at the end, for the models that clients use.
    """

    rounds: int = 200
    alpha: float = 0.3
    batch_size: int | None = None
    final_mixing: int = 0

    name: ClassVar[str] = "extra"
    source: ClassVar[str] = "Shi, Ling, Wu & Yin 2015, EXTRA: an exact first-order algorithm"

    def __post_init__(self) -> None:
        check_reference(self)

    def init(self, start: Tensor) -> State:
        # W̃x is x where all start alike, which makes the first step that of the paper.
        return {"x": start, "mixed": start, "gradient": torch.zeros_like(start)}

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        gradient, asked = local_gradient(state["x"], cohort, gate, self.batch_size)
        heading = sum_of_directions(-gradient)
        change = gate.release(gradient).add_(state["x"], alpha=curvature(cohort.problem)).sub_(state["gradient"])
        return Increment(change, {"queries": asked}, heading)

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        double = state["x"] + pull
        if increment is None:
            increment = torch.zeros_like(pull)
        x = torch.sub(double, state["mixed"]).sub_(increment, alpha=self.alpha)
        return {"x": x, "mixed": double / 2, "gradient": state["gradient"] + increment}
