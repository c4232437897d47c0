"""DSGD, decentralised gradient descent: average with the neighbours, step down the own gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ..privacy.gate import Gate
from .gossip import GossipReference, check_reference, curvature, local_gradient
from .method import Cohort, Increment, State, sum_of_directions


@dataclass(frozen=True)
class DSGD(GossipReference):
    """Nedić & Ozdaglar (2009), equation (3), with Metropolis weights:

        x_i^{t+1} = Σ_j w_ij x_j^t − α ∇(f_i + R)(x_i^t)

    With a constant α the fixed points solve (I − W)x + α∇F(x) = 0: clients stay O(α) away from the optimum and from each
    other, where their gradients differ there.

    Privacy: none. A reference; see `GossipReference`.

    Attributes:
        rounds: T.
        alpha: α, the step.
        batch_size: records of a stochastic gradient, distinct; left out: all.
        final_mixing: gossip rounds at the end, for the models that clients use.
    """

    rounds: int = 200
    alpha: float = 0.5
    batch_size: int | None = None
    final_mixing: int = 0

    name: ClassVar[str] = "dsgd"
    source: ClassVar[str] = "Nedić & Ozdaglar 2009, Distributed subgradient methods for multi-agent optimization"

    def __post_init__(self) -> None:
        check_reference(self)

    def init(self, start: Tensor) -> State:
        return {"x": start}

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        gradient, asked = local_gradient(state["x"], cohort, gate, self.batch_size)
        heading = sum_of_directions(-gradient)
        step = gate.release(gradient).add_(state["x"], alpha=curvature(cohort.problem)).mul_(-self.alpha)
        return Increment(step, {"queries": asked}, heading)

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        return {"x": pull if increment is None else pull + increment}
