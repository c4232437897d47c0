"""SCAFFOLD: local steps corrected by control variates, without privacy."""

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
class Scaffold(Reference):
    """Karimireddy et al. 2020, "SCAFFOLD: stochastic controlled averaging for federated learning", Algorithm 1, option II.

    Server: model x and control variate c; client: c_i. Client i ∈ S_t, from y = x:
        Q times  y ← prox_{ηR}( y − η ( w_i ∇f_i(y; B_r) − c_i + c ) )
        c_i⁺ = c_i − c + (x − y)/(Qη);   uploads Δy_i = y − x and Δc_i = c_i⁺ − c_i, two vectors;   keeps c_i⁺
    Server:  x ← x + (η_g/|S_t|) Σ_{S_t} Δy_i,   c ← c + (1/N) Σ_{S_t} Δc_i.
    At a fixed point every y stays at x, c = 0 and c_i is client i's own (sub)gradient: the optimum of (P1), whatever Q.

    Not private: see ``Reference``.

    Attributes:
        rounds: T; participants: |S_t|, ``None`` for all.
        local_steps: K of the paper, here Q; batch_size: b; batches: ``epoch``, ``independent``, ``iid`` or ``full``.
        eta: η_l, the local step size; a number, ``{value, shape = "constant" | "inverse-sqrt"}`` or a table.
        eta_g: η_g, the server's step.
    """

    rounds: int = 100
    participants: int | None = None
    local_steps: int = 5
    batch_size: int = 10
    batches: Batches = "epoch"
    eta: Any = 0.5
    eta_g: float = 1.0

    name: ClassVar[str] = "scaffold"
    source: ClassVar[str] = "Karimireddy et al. 2020: SCAFFOLD: stochastic controlled averaging"
    uploads: ClassVar[Literal["kept", "fresh"]] = "fresh"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", StepSize.parse("method.eta", self.eta))
        check_numbers(self, rounds=1, participants=1, local_steps=1, batch_size=1)
        check_positive(self, "eta_g")

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        super().validate(problem, sizes, weights, private)
        check_batches(self.batches, self.local_steps, self.batch_size, sizes)

    def init(self, start: Tensor) -> State:
        return {"x": start, "control": torch.zeros_like(start), "upload": start.new_zeros(2 * start.numel())}

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        (x, c), own, eta = x0.chunk(2), state["control"], self.eta.at(t)
        gradients = Gradients(cohort, gate, self.batches, self.local_steps, self.batch_size)
        y = descend(x.expand(len(cohort), -1), gradients, self.local_steps, eta, cohort.problem, pull=c - own)
        # Δy passes the gate; Δc follows from it and from what the server knows.
        moved = gate.release(y.sub_(x))
        change = -c - moved / (self.local_steps * eta)
        return {"x": x + moved, "control": own + change, "upload": torch.cat([moved, change], dim=1)}

    def upload(self, state: State) -> Tensor:
        return state["upload"]

    def server_start(self, start: np.ndarray) -> np.ndarray:
        return np.concatenate([np.asarray(start, dtype=np.float64), np.zeros(len(start))])

    def serve(self, server: np.ndarray, total: np.ndarray, uploads: int, clients: int) -> np.ndarray:
        (x, c), (moved, change) = np.split(server, 2), np.split(total, 2)
        return np.concatenate([x + self.eta_g * moved / max(uploads, 1), c + change / clients])

    def broadcast(self, kept: np.ndarray, clients: int) -> np.ndarray:
        return kept

    def model(self, received: Tensor) -> Tensor:
        return received[: received.numel() // 2]

    def traffic(self, dim: int) -> tuple[int, int]:
        return 2 * dim, 2 * dim

    def describe(self) -> dict[str, Any]:
        return {"batches": self.batches, "Q": self.local_steps, "b": self.batch_size, "η_g": self.eta_g}
