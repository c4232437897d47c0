"""The hinge loss with a quadratic corner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...errors import InvalidValue
from .base import Problem
from .labels import check_classes
from .linear import LinearProblem
from .registry import register


@register
@dataclass(frozen=True)
class HingeProblem(LinearProblem):
    """ℓ = max(0, 1 − u) with its corner rounded, u = y s, y = 2b − 1, labels b in {0, 1} and one score s.

    With the width w = ``smoothing`` the loss is 0 for u ≥ 1, (1 − u)²/(2w) for 1 − w ≤ u ≤ 1 and 1 − u − w/2 below, at
    most w/2 from the hinge itself. |∂ℓ/∂s| ≤ 1 and ∂²ℓ/∂s² ≤ 1/w, so ``G = ‖a‖`` and ``L = ‖a‖²/w``. Clipping a record's
    gradient limits ∂ℓ/∂s, which rises with s, to an interval, and so keeps the loss convex with the same L, as for the
    logistic loss.

    Attributes:
        smoothing: w > 0, the width of the rounded part in units of the margin.
    """

    smoothing: float = 0.5

    name: ClassVar[str] = "hinge"
    has_accuracy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Problem.__post_init__(self)
        if self.n_outputs != 1:
            raise InvalidValue("problem.kind", self.name, "the hinge loss has one output; take softmax")
        if not 0 < self.smoothing < math.inf:
            raise InvalidValue(
                "problem.smoothing", self.smoothing, "give a finite number > 0; small is close to the hinge"
            )

    @property
    def gradient_bound(self) -> float:
        return self.record_norm if self.clip is None else min(self.record_norm, self.clip)

    @property
    def smoothness(self) -> float:
        return self.record_norm**2 / self.smoothing

    @classmethod
    def outputs_for(cls, n_classes: int) -> int:
        if n_classes != 2:
            other = "softmax" if n_classes else "least-squares"
            raise InvalidValue("problem.kind", cls.name, f"needs 2 classes, these data have {n_classes}; take {other}")
        return 1

    def _check_labels(self, labels: Tensor) -> None:
        check_classes(labels, 2)

    def residual(self, scores: Tensor, labels: Tensor) -> Tensor:
        sign = (2 * labels - 1).unsqueeze(-2)
        # ∂ℓ/∂s = −y·clamp((1 − y s)/w, 0, 1)
        return scores.mul_(sign).sub_(1).div_(self.smoothing).clamp_(-1, 0).mul_(sign)

    def record_losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        short = (scores.squeeze(-2) * (2 * labels - 1)).neg_().add_(1).clamp_(min=0)  # 1 − u, what the margin lacks
        inner = short.clamp(max=self.smoothing)
        return inner.mul(inner).div_(2 * self.smoothing).add_(short.sub_(inner))

    def quality(self, scores: Tensor, labels: Tensor) -> dict[str, float]:
        return {"accuracy": float(((scores.squeeze(-2) > 0) == labels).double().mean())}
