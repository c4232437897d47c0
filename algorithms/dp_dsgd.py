"""DP-DSGD: decentralised gradient descent with clipped and perturbed local updates, with or without gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ..privacy.gate import Gate
from .gossip import curvature
from .local_queries import LocalQueries
from .method import Cohort, Increment, State


@dataclass(frozen=True)
class DPDSGD(LocalQueries):
    """DSGD (Nedić & Ozdaglar 2009) whose local update is clipped and gets Gaussian noise, once a round:

        x_i^{t+1} = Σ_j w_ij x_j^t + clip_C(Δ_i) + N(0, σ²I),     Δ_i = −η Σ_{s<τ} ĝ_s  from x_i^t     (Z1, Z3, Z4, Z6)

    With ``estimator = "gradient"`` and τ = 1, Δ_i = −ημ∇f_i(x_i^t), and without noise and clip this is `dsgd` with
    α = ημ. A regulariser (w/2)‖x‖² adds −τημ·w x_i^t, which is public.

    Privacy: guaranteed, for a client's whole data set. The state is x_i, a function of what was released; sensitivity 2C
    and a Gaussian event a round, see `LocalQueries`.
    """

    name: ClassVar[str] = "dp-dsgd"
    source: ClassVar[str] = "DSGD (Nedić & Ozdaglar 2009) with the Gaussian mechanism on clipped updates"

    def init(self, start: Tensor) -> State:
        return {"x": start}

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        released, heading, counts = self.explore(state["x"], cohort, gate)
        released.add_(state["x"], alpha=-self.reach * curvature(cohort.problem))
        return Increment(released, counts, heading)

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        return {"x": pull if increment is None else pull + increment}
