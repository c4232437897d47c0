"""FedAvg: local SGD and an average of the participants' models, without privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..privacy.gate import Gate
from .averaging import Averaging, Reference
from .local_steps import Batches, Gradients, check_batches, check_numbers, descend
from .method import Cohort, State
from .problems.base import Problem
from .schedule import StepSize


@dataclass(frozen=True)
class FedAvg(Reference, Averaging):
    """McMahan et al. 2017, "Communication-efficient learning of deep networks from decentralized data", Algorithm 1.

        client i ∈ S_t, from x_0:  Q times  x ← prox_{ηR}( x − η w_i ∇f_i(x; B_r) );   server:  x_0 ← mean_{i∈S_t} x_i

    The weights w_i of (P1) scale the objectives, and the mean is plain; for w_i = 1 and equal sizes that is the paper's
    weighting by records. With Q > 1 on unequal clients the fixed point is not the optimum of (P1): the known bias of local
    steps. R enters by its proximal operator; with a non-smooth R averaging biases even Q = 1.

    Not private: see ``Reference``.

    Attributes:
        rounds: T; participants: K = C·N clients a round, ``None`` for all.
        local_steps: Q, local updates a round; batch_size: B records an update.
        batches: ``epoch``, ``independent``, ``iid`` or ``full``.
        eta: η_t, the step size; a number, ``{value, shape = "constant" | "inverse-sqrt"}`` or a table over rounds.
    """

    rounds: int = 100
    participants: int | None = None
    local_steps: int = 5
    batch_size: int = 10
    batches: Batches = "epoch"
    eta: Any = 0.5

    name: ClassVar[str] = "fedavg"
    source: ClassVar[str] = "McMahan et al. 2017: Communication-efficient learning of deep networks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", StepSize.parse("method.eta", self.eta))
        check_numbers(self, rounds=1, participants=1, local_steps=1, batch_size=1)

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        super().validate(problem, sizes, weights, private)
        check_batches(self.batches, self.local_steps, self.batch_size, sizes)

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        gradients = Gradients(cohort, gate, self.batches, self.local_steps, self.batch_size)
        start = x0.expand(len(cohort), -1)
        x = descend(
            start, gradients, self.local_steps, self.eta.at(t), cohort.problem, anchor=x0, mu=self.proximal_weight
        )
        return {"x": gate.release(x)}

    @property
    def proximal_weight(self) -> float:
        """μ of the proximal term that ``fedprox`` adds."""
        return 0.0

    def describe(self) -> dict[str, Any]:
        return {"batches": self.batches, "Q": self.local_steps, "b": self.batch_size}
