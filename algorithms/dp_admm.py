"""DP-ADMM: one linearised primal step around the perturbed primal, with noise on what is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent
from ..privacy.gate import Bound, Gate
from .local_steps import check_numbers, check_positive, check_record_bound, record_bound
from .method import Cohort, ServerMethod, State
from .problems.base import Problem
from .schedule import StepSize


@dataclass(frozen=True)
class DPADMM(ServerMethod):
    """Huang et al. 2020, "DP-ADMM: ADMM-based distributed learning with differential privacy", Algorithm 2.

    Client i, on receiving x_0^t (its last dual step needs it, so the step is taken here), and with x̃_i^0 = x_0^1, λ_i = 0:
        λ_i^t     = λ_i^{t−1} − ρ (x̃_i^t − x_0^t)
        x_i^{t+1} = ( ρ x_0^t + x̃_i^t/η_t − w_i ∇f_i(x̃_i^t) − R'(x̃_i^t) + λ_i^t ) / (ρ + 1/η_t)
        x̃_i^{t+1} = x_i^{t+1} + N(0, σ²I)
    Server:  x_0^{t+1} = (1/N) Σ_i ( x̃_i^{t+1} − λ_i^t/ρ )
    R' is a subgradient. The paper's clients all take part; one that does not is counted with its last x̃_i and λ_i.

    Privacy: **guaranteed**, for one record. x̃_i is released, and λ_i, x_0 follow from releases, so given these a round
    touches its data through ∇f_i(x̃_i^t) alone.
    *Sensitivity*: replacing one of m_i records changes the mean gradient by at most 2 w_i G/m_i, G a record's largest
    gradient norm (the problem's own, or ``clip``), and R' not at all: 2 w_i G / (m_i (ρ + 1/η_t)). Convexity and
    smoothness are not needed. *Event*: a ``GaussianEvent`` a round (the paper calibrates each by the classic formula:
    ``privacy.mode = "per-round"``, ``calibration = "classic"``).

    Attributes:
        rounds: T; participants: K clients a round, ``None`` for all.
        rho: ρ, the penalty.
        eta: η_t; a number, ``{value, shape = "constant" | "inverse-sqrt"}`` or a table; left out, 4/√t, since the
            paper's falls like 1/√t.
        clip: norm to which each record's gradient is scaled down; ``None`` takes the problem's own bound G.
    """

    rounds: int = 100
    participants: int | None = None
    rho: float = 0.3
    eta: Any = None
    clip: float | None = None

    usual_eta: ClassVar[float] = 4.0
    name: ClassVar[str] = "dp-admm"
    source: ClassVar[str] = "Huang et al. 2020: DP-ADMM: ADMM-based distributed learning with differential privacy"

    def __post_init__(self) -> None:
        given = {"value": self.usual_eta, "shape": "inverse-sqrt"} if self.eta is None else self.eta
        object.__setattr__(self, "eta", StepSize.parse("method.eta", given))
        check_numbers(self, rounds=1, participants=1)
        check_positive(self, "clip")
        if not 1e-9 <= self.rho <= 1e9:
            raise InvalidValue("method.rho", self.rho, "give a penalty between 1e-9 and 1e9")

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_record_bound(problem, self.clip, private)
        problem.regulariser.subgradient(torch.zeros(1, 1))

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event | None:
        return GaussianEvent(status=self.status)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        total = self.rho + 1 / self.eta.at(t)
        return Bound(2 * weights * record_bound(problem, self.clip) / (sizes * total))

    def init(self, start: Tensor) -> State:
        return {"x": start, "dual": torch.zeros_like(start)}

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        dual = self.dual_step(state, x0)
        return {"x": gate.release(self.primal_step(state["x"], dual, x0, cohort, t)), "dual": dual}

    def dual_step(self, state: State, x0: Tensor) -> Tensor:
        """λ_i^t ``[C, d]``."""
        return torch.sub(state["dual"], state["x"] - x0, alpha=self.rho)

    def primal_step(self, x: Tensor, dual: Tensor, x0: Tensor, cohort: Cohort, t: int) -> Tensor:
        """x_i^{t+1} ``[C, d]`` before noise, from the perturbed x̃_i ``x``."""
        inverse = 1 / self.eta.at(t)
        weights = torch.as_tensor(cohort.weights, dtype=x.dtype, device=x.device)[:, None]
        gradient = cohort.problem.full_gradient(x, cohort.shards, cohort.slots, self.clip).mul_(weights)
        gradient.add_(cohort.problem.regulariser.subgradient(x))
        point = torch.add(self.rho * x0 + dual, x, alpha=inverse)
        return point.sub_(gradient).div_(self.rho + inverse)

    def upload(self, state: State) -> Tensor:
        return torch.sub(state["x"], state["dual"], alpha=1 / self.rho)

    def describe(self) -> dict[str, Any]:
        return {"ρ": self.rho, "clip": self.clip}
