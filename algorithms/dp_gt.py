"""DP gradient tracking: the tracker runs on clipped and perturbed directions, found with gradients or by values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..privacy.gate import Gate
from .gossip import check_positive, curvature
from .gradient_tracking import tracked, tracked_step
from .local_queries import LocalQueries
from .method import Cohort, Increment, State


@dataclass(frozen=True)
class DPGT(LocalQueries):
    """DIGing (Nedić, Olshevsky & Shi 2017) on released directions; with ``estimator = "paper"`` and τ = 1 each direction
    rests on one query a component, as in one-point gradient tracking (Mhanna & Assaad 2023):

        x_i^{t+1} = Σ_j w_ij x_j^t − α y_i^t
        ĝ_i^{t+1} = −[clip_C(Δ_i) + N(0, σ²I)]/(ημτ) + ∇R,     Δ_i = −η Σ_{s<τ} ĝ_s  from x_i^{t+1}     (Z1, Z3, Z4, Z6)
        y_i^{t+1} = Σ_j w_ij y_j^t + ĝ_i^{t+1} − ĝ_i^t

    Δ_i/(−ημτ) is the mean gradient along the local path; a small η keeps that path at x_i while α steps as far as wanted.
    The first round makes the tracker and moves nothing. With ``gradient``, τ = 1, no noise and no clip this is
    `gradient-tracking` with the same α.

    Privacy: guaranteed, for a client's whole data set. A tracker on clean gradient differences would remember data that
    was never released; here it is the last *released* direction that is subtracted, so x_i, y_i and ĝ_i are functions of
    releases, and the two shared vectors cost one release. Sensitivity 2C and a Gaussian event a round, see
    `LocalQueries`. Noise does not pile up: Σ_i y_i = Σ_i ĝ_i holds the noise of the last round alone.

    Attributes:
        alpha: α, the step along the tracked gradient; left out: ημτ, the length of the local path.
    """

    alpha: float | None = None

    name: ClassVar[str] = "dp-gt"
    source: ClassVar[str] = "DIGing (Nedić, Olshevsky & Shi 2017); one query: Mhanna & Assaad 2023; Gaussian mechanism"
    shared: ClassVar[tuple[str, ...]] = ("x", "y")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "alpha")

    @property
    def step(self) -> float:
        """α as used."""
        return self.reach if self.alpha is None else self.alpha

    def init(self, start: Tensor) -> State:
        return {"x": start, "y": torch.zeros_like(start), "gradient": torch.zeros_like(start)}

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        x = tracked_step(state, pull, self.step)
        released, heading, counts = self.explore(x, cohort, gate)
        change = released.div_(-self.reach).add_(x, alpha=curvature(cohort.problem)).sub_(state["gradient"])
        return Increment(change, counts, heading)

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        if t == 0:  # models and trackers are averaged and nothing moves: Σ_i y_i = Σ_i ĝ_i still holds
            d = state["x"].shape[1]
            return {**state, "x": pull[:, :d], "y": pull[:, d:]}
        return tracked(state, pull, increment, self.step)
