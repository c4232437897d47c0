"""Binary logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import logsigmoid

from ...errors import InvalidValue
from .base import Problem
from .labels import check_classes
from .linear import LinearProblem
from .registry import register


@register
@dataclass(frozen=True)
class LogisticProblem(LinearProblem):
    """ℓ = log(1 + exp(−y s)), y = 2b − 1, with labels b in {0, 1} and one score s.

    |∂ℓ/∂s| < 1 and ∂²ℓ/∂s² ≤ ¼, so ``G = ‖a‖`` and ``L = ‖a‖²/4``. Clipping a record's gradient limits ∂ℓ/∂s, which
    rises with s, to an interval: it still never falls, and rises no faster than before, so it is the derivative of a
    convex Huber-like loss with the same L, and the gradient step contracts as without clipping.
    """

    name: ClassVar[str] = "logistic"
    has_accuracy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Problem.__post_init__(self)
        if self.n_outputs != 1:
            raise InvalidValue("problem.kind", self.name, "the binary logistic loss has one output; take softmax")

    @property
    def gradient_bound(self) -> float:
        return self.record_norm if self.clip is None else min(self.record_norm, self.clip)

    @property
    def smoothness(self) -> float:
        return self.record_norm**2 / 4

    @classmethod
    def outputs_for(cls, n_classes: int) -> int:
        if n_classes != 2:
            other = "softmax" if n_classes else "least-squares"
            raise InvalidValue("problem.kind", cls.name, f"needs 2 classes, these data have {n_classes}; take {other}")
        return 1

    def _check_labels(self, labels: Tensor) -> None:
        check_classes(labels, 2)

    def residual(self, scores: Tensor, labels: Tensor) -> Tensor:
        return scores.sigmoid_().sub_(labels.unsqueeze(-2))

    def record_losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        # logsigmoid is exact for large scores, where softplus switches to a line.
        return logsigmoid(scores.squeeze(-2) * (2 * labels - 1)).neg_()

    def quality(self, scores: Tensor, labels: Tensor) -> dict[str, float]:
        return {"accuracy": float(((scores.squeeze(-2) > 0) == labels).double().mean())}
