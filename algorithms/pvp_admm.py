"""Primal variable perturbation: ADMM over a graph whose minimisers get noise before they are shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from ..privacy.events import Event, GaussianEvent, PureEvent
from ..privacy.gate import Bound, Gate
from .graph_admm import GraphADMM
from .method import Cohort, Increment, State, sum_of_directions
from .problems.base import Problem


@dataclass(frozen=True)
class PVPADMM(GraphADMM):
    """Zhang & Zhu (2017), PVP: x_i is the minimiser (A1), x̃_i = x_i + ε_i is shared, and (A1, A2) of the next round,
    the client's own part included, are computed from the shared values.

    Sensitivity. Given what was released, both data sets' objectives are Λ_i-strongly convex, Λ_i = w + 2ηd_i, and their
    gradients differ by 2w_iG/m_i at most, so their minimisers by Δ_i/Λ_i (A4). The solver stops where the gradient is below
    ``tolerance``, within tolerance/Λ_i of the minimiser on either side:
        Δ = (2 w_i G/m_i + 2·tolerance)/Λ_i
    which leaves no remainder. ε_i has density ∝ exp(−ζ‖ε‖), ζ = ε/Δ, as published, and a round is (ε, 0)-DP; or
    ``noise = "gaussian"``, with σ = zΔ, whose rounds compose better.

    Privacy: guaranteed, one record of a client. x̃_i and λ_i are functions of what was released.

    Attributes:
        noise: ``radial``, as published, or ``gaussian``.
    """

    noise: Literal["radial", "gaussian"] = "radial"

    name: ClassVar[str] = "pvp-admm"
    source: ClassVar[str] = (
        "Zhang & Zhu 2017, Dynamic differential privacy for ADMM-based distributed classification (PVP)"
    )

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        return (PureEvent if self.noise == "radial" else GaussianEvent)(unit="record", status=self.status)

    def bound_at(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, clients: np.ndarray, t: int) -> Bound:
        moved = self.change(problem, sizes, weights) + 2 * self.tolerance
        return Bound(moved / self.convexity(problem, clients, t), noise=self.noise)

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        linear = self.linear(state, pull, cohort.clients, t)
        solved = self.solve(state, linear, cohort, t, relative=False).to(state["x"].dtype)
        heading = sum_of_directions(solved - state["x"])
        return Increment(gate.release(solved).sub_(state["x"]), {}, heading)
