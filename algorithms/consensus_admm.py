"""Consensus ADMM: exact local minimisation by an inner solver, or one proximal gradient step; without privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.gate import Gate
from .averaging import Reference
from .local_steps import check_numbers, check_positive
from .method import Cohort, State
from .problems.base import Problem
from .schedule import Schedule


@dataclass(frozen=True)
class ConsensusADMM(Reference):
    """Boyd et al. 2011, "Distributed optimization and statistical learning via ADMM", section 7.1.

    Client i, on receiving x_0 (its dual step needs it, so the step is taken here), with O_i = w_i f_i + R:
        λ_i ← λ_i + ρ (x_i − x_0)
        exact:    x_i ← argmin_x O_i(x) + ⟨λ_i, x − x_0⟩ + (ρ/2)‖x − x_0‖²
        inexact:  x_i ← prox_{R/(γ+ρ)}( (γ x_i + ρ x_0 − λ_i − w_i ∇f_i(x_i)) / (γ + ρ) )              (C1), Q = 1
    Server:  x_0 ← (1/N) Σ_i ( x_i + λ_i/ρ ), a client that is away with its last x_i and λ_i.
    Fixed points are the optima of (P1).

    The inner solver is the accelerated proximal gradient method for strongly convex problems (Nesterov 2004, 2.2.20)
    on the ρ-strongly convex, (w_i L + ρ)-smooth subproblem, from x_i; each client stops where its own last step was
    shorter than ``tolerance``·(1 + ‖x‖), or after ``inner_steps``.

    Not private: see ``Reference``.

    Attributes:
        rounds: T; participants: K clients a round, ``None`` for all.
        rho: ρ.
        solver: ``exact`` or ``inexact``.
        gamma: γ_t of ``inexact``; a number, ``{value, shape = "constant" | "sqrt"}`` or a table over rounds.
        tolerance, inner_steps: of ``exact``.
    """

    rounds: int = 100
    participants: int | None = None
    rho: float = 0.3
    solver: Literal["exact", "inexact"] = "exact"
    gamma: Any = 1.0
    tolerance: float = 1e-8
    inner_steps: int = 1000

    name: ClassVar[str] = "consensus-admm"
    source: ClassVar[str] = "Boyd et al. 2011: Distributed optimization and statistical learning via ADMM"

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", Schedule.parse("method.gamma", self.gamma))
        check_numbers(self, rounds=1, participants=1, inner_steps=1)
        check_positive(self, "rho", "tolerance")

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        super().validate(problem, sizes, weights, private)
        if self.solver == "exact" and not (problem.convex_smooth and math.isfinite(problem.smoothness)):
            raise InvalidValue(
                "method.solver", self.solver, f'{problem.name} is not convex and smooth; take "inexact", or fedadmm'
            )

    def init(self, start: Tensor) -> State:
        return {"x": start, "dual": torch.zeros_like(start)}

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        x = state["x"]
        dual = torch.sub(x, x0).mul_(self.rho).add_(state["dual"])
        pulled = self.rho * x0 - dual
        if self.solver == "exact":
            return {"x": gate.release(self._argmin(x, pulled, cohort)), "dual": dual}
        gamma = self.gamma.at(t)
        point = torch.add(pulled, x, alpha=gamma).sub_(self._gradient(x, cohort)).div_(gamma + self.rho)
        return {"x": gate.release(cohort.problem.regulariser.prox_(point, 1 / (gamma + self.rho))), "dual": dual}

    def _gradient(self, x: Tensor, cohort: Cohort) -> Tensor:
        weights = torch.as_tensor(cohort.weights, dtype=x.dtype, device=x.device)[:, None]
        return cohort.problem.full_gradient(x, cohort.shards, cohort.slots).mul_(weights)

    def _argmin(self, x: Tensor, pulled: Tensor, cohort: Cohort) -> Tensor:
        """argmin w_i f_i(x) + R(x) − ⟨pulled, x⟩ + (ρ/2)‖x‖² of every client, ``[C, d]``."""
        weights = torch.as_tensor(cohort.weights, dtype=x.dtype, device=x.device)[:, None]
        curvature = weights * cohort.problem.smoothness + self.rho
        momentum = (curvature.sqrt() - math.sqrt(self.rho)) / (curvature.sqrt() + math.sqrt(self.rho))
        ahead, going = x, torch.ones_like(curvature, dtype=torch.bool)
        for _ in range(self.inner_steps):
            slope = self._gradient(ahead, cohort).add_(ahead, alpha=self.rho).sub_(pulled)
            new = cohort.problem.regulariser.prox_(ahead - slope / curvature, 1 / curvature)
            step = torch.linalg.vector_norm(new - ahead, dim=1, keepdim=True)
            # A client that has arrived stays, whoever is computed with it.
            ahead = torch.where(going, new + momentum * (new - x), ahead)
            x = torch.where(going, new, x)
            going = going & (step > self.tolerance * (1 + torch.linalg.vector_norm(new, dim=1, keepdim=True)))
            if not bool(going.any()):
                break
        return x.clone() if x.stride(0) == 0 else x

    def upload(self, state: State) -> Tensor:
        return torch.add(state["x"], state["dual"], alpha=1 / self.rho)

    def describe(self) -> dict[str, Any]:
        return {"ρ": self.rho, "solver": self.solver}
