"""DP-SGD at every client of a server: clipped records, noise at every local step, averaged models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..privacy.events import Event, SubsampledEvent
from ..privacy.gate import Bound, Gate
from .averaging import Averaging
from .local_steps import (
    Gradients,
    check_batches,
    check_numbers,
    check_positive,
    check_record_bound,
    record_bound,
)
from .method import Cohort, State
from .problems.base import Problem
from .schedule import StepSize


@dataclass(frozen=True)
class DPSGD(Averaging):
    """Abadi et al. 2016, "Deep learning with differential privacy", Algorithm 1, as the local step of FedAvg.

        client i ∈ S_t, from x_0:  Q times  g̃ = (w_i/b) Σ_{j∈B_r} clip_C(∇ℓ_j(x)) + N(0, σ²I),   x ← prox_{ηR}( x − η g̃ )
        server:                    x_0 ← mean_{i∈S_t} x_i

    Privacy: **guaranteed**, for one record. All that follows a step is a function of x, and x of noised gradients alone,
    so each step is a release of its own and adaptive composition applies.
    *Sensitivity of a step*: given x and the batch, replacing one record of the batch changes one clipped gradient, of
    norm ≤ C before and after, so the mean moves by at most 2 w_i C/b. (Steps need neither convexity nor smoothness.)
    *Event*: a batch is b distinct records of m_i, drawn anew at every step, so a round is Q Gaussians, each on its own
    sample at rate b/m_i: ``SubsampledEvent`` with Q steps, under one grant. The noise multiplier is σ over 2 w_i C/b,
    half of the one that is customary where neighbours differ by adding a record.

    Attributes:
        rounds: T; participants: K clients a round, ``None`` for all.
        local_steps: Q noised steps a round; batch_size: b records a step.
        batches: ``independent``, or ``full`` for all m_i records at every step.
        eta: η_t, the step size; a number, ``{value, shape = "constant" | "inverse-sqrt"}`` or a table over rounds.
        clip: C; ``None`` takes the problem's own bound G.
    """

    rounds: int = 100
    participants: int | None = None
    local_steps: int = 5
    batch_size: int = 10
    batches: Literal["independent", "full"] = "independent"
    eta: Any = 0.5
    clip: float | None = 1.0

    name: ClassVar[str] = "dp-sgd"
    source: ClassVar[str] = "Abadi et al. 2016: Deep learning with differential privacy; federated by averaging"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", StepSize.parse("method.eta", self.eta))
        check_numbers(self, rounds=1, participants=1, local_steps=1, batch_size=1)
        check_positive(self, "clip")

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_batches(self.batches, self.local_steps, self.batch_size, sizes)
        check_record_bound(problem, self.clip, private)

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        rate = 1.0 if self.batches == "full" else self.batch_size / size
        return SubsampledEvent(status=self.status, rate=rate, steps=self.local_steps)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        divisor = sizes if self.batches == "full" else np.full(len(sizes), self.batch_size)
        return Bound(2 * weights * record_bound(problem, self.clip) / divisor, parts=self.local_steps)

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        eta, prox = self.eta.at(t), cohort.problem.regulariser
        gradients = Gradients(cohort, gate, self.batches, self.local_steps, self.batch_size, self.clip)
        x = x0.expand(len(cohort), -1)
        for step in range(self.local_steps):
            mean = torch.zeros_like(x, memory_format=torch.contiguous_format)
            gradients.add(mean, x, step, 1.0)
            x = prox.prox_(torch.add(x, gate.release(mean, part=step), alpha=-eta), eta)
        return {"x": x}

    def describe(self) -> dict[str, Any]:
        return {"Q": self.local_steps, "b": self.batch_size, "C": self.clip}
