"""Linear least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...errors import InvalidValue
from .base import Problem
from .labels import check_targets
from .linear import LinearProblem
from .quality import r2
from .registry import register


@register
@dataclass(frozen=True)
class LeastSquaresProblem(LinearProblem):
    """ℓ = ½(s − b)², with one score s and any finite number b as label.

    ``L = ‖a‖²``; the gradient has no bound, so ``G = inf`` unless ``clip`` sets one. With clipping the residual s − b
    is limited to ±clip/‖a‖, the derivative of the Huber loss, which is convex with the same L.
    """

    name: ClassVar[str] = "least-squares"
    has_accuracy: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Problem.__post_init__(self)
        if self.n_outputs != 1:
            raise InvalidValue("problem.kind", self.name, "least squares has one output; take softmax for classes")

    @property
    def gradient_bound(self) -> float:
        return math.inf if self.clip is None else self.clip

    @property
    def smoothness(self) -> float:
        return self.record_norm**2

    @classmethod
    def outputs_for(cls, n_classes: int) -> int:
        return 1

    def _check_labels(self, labels: Tensor) -> None:
        check_targets(labels)

    def residual(self, scores: Tensor, labels: Tensor) -> Tensor:
        return scores.sub_(labels.unsqueeze(-2))

    def record_losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        return (scores.squeeze(-2) - labels).square_().mul_(0.5)

    def quality(self, scores: Tensor, labels: Tensor) -> dict[str, float]:
        return {"r2": r2(scores.squeeze(-2), labels)}
