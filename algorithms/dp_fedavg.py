"""DP-FedAvg: a clipped and noised increment protects a client; a noised local model protects a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent, Unit
from ..privacy.gate import Bound, Gate
from .averaging import Averaging
from .local_steps import Batches, Gradients, check_batches, check_numbers, check_positive, descend
from .method import Cohort, State
from .problems.base import Problem
from .schedule import StepSize
from .stability import contraction, last_iterate_event, last_iterate_shift, step_shift


@dataclass(frozen=True)
class DPFedAvg(Averaging):
    """McMahan et al. 2018, "Learning differentially private recurrent language models", each client noising its own.

    Client i ∈ S_t takes the Q local steps of FedAvg from x_0 to x_i, and then
        unit = "client":   Δ̃_i = clip_C(x_i − x_0) + N(0, σ²I),   x̃_i = x_0 + Δ̃_i
        unit = "record":   x̃_i = x_i + N(0, σ²I)                  (perturbed local models, Wei et al. 2020)
    server:  x_0 ← mean_{i∈S_t} x̃_i. The paper's server adds one noise to the sum; here nobody is trusted with what is not
    noised yet.

    Privacy: **guaranteed**. A client keeps nothing but x̃_i, and starts every round from x_0, so given what was released
    the round touches its data through one release.
    *Client level*: whatever two data sets are, two clipped increments are at most 2C apart: sensitivity 2C, a
    ``GaussianEvent`` for the unit client.
    *Record level*: (L1) of ``stability`` with γ = 1/η and ρ = 0, so κ = max(1, w_i L η − 1) and c = 2 w_i G η/b; with
    Q > 1 for convex smooth losses alone.

    Attributes:
        rounds: T; participants: K clients a round, ``None`` for all.
        local_steps: Q; batch_size: b; batches: ``epoch``, ``independent``, ``iid`` or ``full``.
        eta: η_t, the step size; a number, ``{value, shape = "constant" | "inverse-sqrt"}`` or a table over rounds.
        unit: ``client`` or ``record``: what neighbouring data sets differ in.
        clip: C, the largest norm of an increment; ``client`` only.
    """

    rounds: int = 100
    participants: int | None = None
    local_steps: int = 5
    batch_size: int = 10
    batches: Batches = "epoch"
    eta: Any = 0.5
    unit: Unit = "client"
    clip: float = 1.0

    name: ClassVar[str] = "dp-fedavg"
    source: ClassVar[str] = "McMahan et al. 2018: Learning differentially private recurrent language models"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", StepSize.parse("method.eta", self.eta))
        check_numbers(self, rounds=1, participants=1, local_steps=1, batch_size=1)
        check_positive(self, "clip")

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_batches(self.batches, self.local_steps, self.batch_size, sizes)
        if not private or self.unit == "client":
            return
        cure = 'take unit = "client", or dp-sgd, which clips each record'
        if not np.isfinite(problem.gradient_bound):
            raise InvalidValue(
                "problem.clip", problem.clip, f"{problem.name} gradients have no bound; give one, or {cure}"
            )
        if not problem.convex_smooth and self.local_steps > 1:
            raise InvalidValue(
                "method.local_steps",
                self.local_steps,
                f"the sensitivity bound of {problem.name}, which is not convex and smooth, holds for one local step; {cure}",
            )

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        if self.unit == "client":
            return GaussianEvent(status=self.status, unit="client")
        return last_iterate_event(self.batches, size, self.local_steps, self.batch_size, self.status)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        if self.unit == "client":
            return Bound(np.full(len(sizes), 2 * self.clip), self.clip)
        gamma = 1 / self.eta.at(t)
        kappa = contraction(gamma, 0.0, weights * problem.smoothness, problem.convex_smooth)
        added = step_shift(problem.gradient_bound, weights, sizes, self.batches, self.batch_size, gamma)
        return Bound(last_iterate_shift(self.batches, self.local_steps, added, kappa))

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        gradients = Gradients(cohort, gate, self.batches, self.local_steps, self.batch_size)
        x = descend(x0.expand(len(cohort), -1), gradients, self.local_steps, self.eta.at(t), cohort.problem)
        if self.unit == "record":
            return {"x": gate.release(x)}
        return {"x": gate.release(x.sub_(x0)).add_(x0)}

    def describe(self) -> dict[str, Any]:
        return {"unit": self.unit, "batches": self.batches, "Q": self.local_steps, "b": self.batch_size}
