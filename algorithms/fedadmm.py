"""FedADMM: an augmented Lagrangian at every client, minimised by local steps, and tracked by the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..privacy.gate import Gate
from .averaging import Reference
from .local_steps import Batches, Gradients, check_batches, check_numbers, check_positive, descend
from .method import Cohort, State
from .problems.base import Problem
from .schedule import StepSize


@dataclass(frozen=True)
class FedADMM(Reference):
    """Gong, Li & Freris 2022, "FedADMM: a robust federated deep learning framework with adaptivity to system
    heterogeneity", Algorithm 1.

    Client i ∈ S_t, from its own w_i, on L_i(w) = w_i f_i(w) + R(w) + ⟨y_i, w − θ⟩ + (ρ/2)‖w − θ‖²:
        Q times  w ← prox_{ηR}( w − η ( ∇f_i(w; B_r) + y_i + ρ (w − θ) ) );      y_i⁺ = y_i + ρ (w − θ)
        uploads  Δ_i = (w + y_i⁺/ρ) − (w_i + y_i/ρ);                             keeps w, y_i⁺
    Server:  θ ← θ + (η_g/|S_t|) Σ_{S_t} Δ_i.
    With η_g = |S_t|/N, the default, θ is the mean over all clients of w_i + y_i/ρ, stale where a client was away. Fixed
    points: w_i = θ and y_i = −(own gradient), with Σ y_i = 0: the optimum of (P1), whatever Q.

    Not private: see ``Reference``.

    Attributes:
        rounds: T; participants: |S_t|, ``None`` for all.
        local_steps: Q; batch_size: b; batches: ``epoch``, ``independent``, ``iid`` or ``full``.
        rho: ρ; eta: the local step size, ηρ below 1; a number, ``{value, shape = "constant" | "inverse-sqrt"}`` or a table.
        eta_g: η of the paper, the server's step; ``None`` takes |S_t|/N.
    """

    rounds: int = 100
    participants: int | None = None
    local_steps: int = 5
    batch_size: int = 10
    batches: Batches = "epoch"
    rho: float = 0.3
    eta: Any = 0.5
    eta_g: float | None = None

    name: ClassVar[str] = "fedadmm"
    source: ClassVar[str] = "Gong, Li & Freris 2022: FedADMM: a robust federated deep learning framework"
    uploads: ClassVar[Literal["kept", "fresh"]] = "fresh"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", StepSize.parse("method.eta", self.eta))
        check_numbers(self, rounds=1, participants=1, local_steps=1, batch_size=1)
        check_positive(self, "rho", "eta_g")

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        super().validate(problem, sizes, weights, private)
        check_batches(self.batches, self.local_steps, self.batch_size, sizes)

    def init(self, start: Tensor) -> State:
        return {"x": start, "dual": torch.zeros_like(start), "upload": torch.zeros_like(start)}

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        x, dual = state["x"], state["dual"]
        gradients = Gradients(cohort, gate, self.batches, self.local_steps, self.batch_size)
        moved = descend(
            x, gradients, self.local_steps, self.eta.at(t), cohort.problem, pull=dual, anchor=x0, mu=self.rho
        )
        moved = gate.release(moved)  # all else follows from it and from what was sent before
        new = torch.sub(moved, x0).mul_(self.rho).add_(dual)
        return {"x": moved, "dual": new, "upload": moved - x + (new - dual) / self.rho}

    def upload(self, state: State) -> Tensor:
        return state["upload"]

    def server_start(self, start: np.ndarray) -> np.ndarray:
        return np.asarray(start, dtype=np.float64)

    def serve(self, server: np.ndarray, total: np.ndarray, uploads: int, clients: int) -> np.ndarray:
        step = 1 / clients if self.eta_g is None else self.eta_g / max(uploads, 1)
        return np.asarray(server + step * total)

    def broadcast(self, kept: np.ndarray, clients: int) -> np.ndarray:
        return kept

    def describe(self) -> dict[str, Any]:
        return {"batches": self.batches, "Q": self.local_steps, "b": self.batch_size, "ρ": self.rho}
