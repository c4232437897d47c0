"""Two-phase DP-ADMM: the records themselves are noised once, and DP-ADMM runs on what came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent
from ..privacy.gate import Bound, Gate
from .dp_admm import DPADMM
from .method import Cohort
from .problems.base import Problem

# Distance between two unit vectors of two classes.
_LABEL_GAP = float(np.sqrt(2))


@dataclass(frozen=True)
class TwoPhaseDPADMM(DPADMM):
    """Input perturbation (Fukuchi et al. 2017; Kang et al. 2020) in a round 0, then the DP-ADMM of Huang et al. 2020.

    Phase 1, once: every record (a, b) of a client becomes
        (ã, b̃) = (a, e_b) + N(0, σ²I),      e_b the unit vector of its class
    and, for what follows: ã scaled down to the norm bound of a record where it is longer, b̃ its largest entry.
    Phase 2, rounds t ≥ 1: DP-ADMM on the records (ã, b̃), without further noise.

    Privacy: **guaranteed**, for one record. *Sensitivity of phase 1*: a replaced record moves its own row alone, by at most
    2‖a‖_max in the features and √2 in the label: √(4‖a‖²_max + 2). (Noise on the features alone, as often proposed, would
    leave labels unprotected.) *Event*: one ``GaussianEvent`` in round 0; the rounds compute from released records, reveal
    nothing else, and are not charged. Noise in phase 2 would not lower this loss, so there is none. The noise must hide a whole
    record: for d features it outweighs them by far unless ε is large.

    For classes alone. Attributes as in DP-ADMM.
    """

    name: ClassVar[str] = "two-phase-dp-admm"
    source: ClassVar[str] = "Noise on the records once (input perturbation), then DP-ADMM (Huang et al. 2020)"
    opens: ClassVar[bool] = True

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        super().validate(problem, sizes, weights, False)  # the rounds are free, and need no bound of gradients
        if not problem.has_accuracy:
            raise InvalidValue(
                "problem.kind", problem.name, "has no classes, whose noise this method knows; take dp-admm"
            )
        if private and not np.isfinite(problem.record_norm):
            raise InvalidValue("problem.record_norm", problem.record_norm, "give a public bound on every record's norm")

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event | None:
        return GaussianEvent(status=self.status) if t == 0 else None

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        return Bound(np.full(len(sizes), np.hypot(2 * problem.record_norm, _LABEL_GAP)))

    def open(self, cohort: Cohort, gate: Gate) -> tuple[Tensor, Tensor]:
        held = [cohort.shards.client(slot) for slot in cohort.slots.tolist()]
        features = torch.cat([features for features, _ in held])
        labels = torch.cat([labels for _, labels in held])
        classes = max(2, cohort.problem.n_outputs)
        records = torch.cat([features, one_hot(labels, classes).to(features.dtype)], dim=1)
        released = gate.release_rows(records, cohort.sizes)
        width = features.shape[1]
        seen = released[:, :width]
        if np.isfinite(norm := cohort.problem.record_norm):
            # norm / 0 is inf, which the clamp turns into 1: a zero record stays zero.
            seen = seen * (norm / torch.linalg.vector_norm(seen, dim=1, keepdim=True)).clamp_(max=1.0)
        return seen.contiguous(), released[:, width:].argmax(dim=1)

    def local_round(
        self, state: dict[str, Tensor], x0: Tensor, cohort: Cohort, gate: Gate, t: int
    ) -> dict[str, Tensor]:
        dual = self.dual_step(state, x0)
        return {"x": self.primal_step(state["x"], dual, x0, cohort, t), "dual": dual}
