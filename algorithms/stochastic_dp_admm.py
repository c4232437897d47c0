"""Stochastic DP-ADMM: DP-ADMM with several primal steps on mini-batches, and noise on the last of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event
from ..privacy.gate import Bound, Gate
from .dp_admm import DPADMM
from .local_steps import Batches, Gradients, check_batches, check_numbers, check_record_bound, record_bound
from .method import Cohort, State
from .problems.base import Problem
from .stability import contraction, last_iterate_event, last_iterate_shift, step_shift


@dataclass(frozen=True)
class StochasticDPADMM(DPADMM):
    """DP-ADMM with the stochastic primal step of Ouyang et al. 2013 and the several steps of Huang & Gong 2020.

    Client i, from x^0 = x̃_i^t and with λ_i^t as in DP-ADMM, γ = 1/η_t, for r = 1..Q:
        x^r = prox_{R/(γ+ρ)} ( ( γ x^{r−1} + ρ x_0^t − w_i ∇f_i(x^{r−1}; B_r) + λ_i^t ) / (γ + ρ) )
        x̃_i^{t+1} = x^Q + N(0, σ²I)
    Server and dual as in DP-ADMM. R enters by its proximal operator: a step along a subgradient may move two runs apart
    without bound, and the sensitivity of several steps rests on their not doing so.

    Privacy: **guaranteed**, for one record: x̃_i is released, λ_i and x_0 follow from releases. *Sensitivity and event*:
    (L1) of ``stability`` with these γ and ρ; for losses that are not convex and smooth, or with ``clip``, for Q = 1 alone.

    Attributes:
        local_steps: Q; batch_size: b; batches: ``epoch``, ``independent``, ``iid`` or ``full``; the rest as in DP-ADMM,
            where η_t is left out, 1/√t.
    """

    rho: float = 0.1
    local_steps: int = 5
    batch_size: int = 10
    batches: Batches = "epoch"

    usual_eta: ClassVar[float] = 1.0
    name: ClassVar[str] = "stochastic-dp-admm"
    source: ClassVar[str] = "Huang & Gong 2020: Differentially private ADMM via multi-step approximation; mini-batches"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, local_steps=1, batch_size=1)

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_batches(self.batches, self.local_steps, self.batch_size, sizes)
        check_record_bound(problem, self.clip, private)
        if private and self.local_steps > 1 and (self.clip is not None or not problem.convex_smooth):
            raise InvalidValue(
                "method.local_steps",
                self.local_steps,
                "the sensitivity bound of several steps needs gradients of a convex smooth loss, not clipped by the method; "
                "take 1, or problem.clip where the loss allows it",
            )

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        return last_iterate_event(self.batches, size, self.local_steps, self.batch_size, self.status)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        gamma = 1 / self.eta.at(t)
        kappa = contraction(gamma, self.rho, weights * problem.smoothness, problem.convex_smooth)
        norm = record_bound(problem, self.clip)
        added = step_shift(norm, weights, sizes, self.batches, self.batch_size, gamma + self.rho)
        return Bound(last_iterate_shift(self.batches, self.local_steps, added, kappa))

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        gamma, x, dual = 1 / self.eta.at(t), state["x"], self.dual_step(state, x0)
        total = gamma + self.rho
        gradients = Gradients(cohort, gate, self.batches, self.local_steps, self.batch_size, self.clip)
        anchor = torch.add(dual, x0, alpha=self.rho).div_(total)
        for step in range(self.local_steps):
            point = torch.add(anchor, x, alpha=gamma / total)
            gradients.add(point, x, step, -1 / total)
            x = cohort.problem.regulariser.prox_(point, 1 / total)
        return {"x": gate.release(x), "dual": dual}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "batches": self.batches, "Q": self.local_steps, "b": self.batch_size}
