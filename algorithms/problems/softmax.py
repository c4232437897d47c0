"""Multinomial logistic regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import InvalidValue
from .base import Problem
from .labels import check_classes
from .linear import LinearProblem
from .registry import register


@register
@dataclass(frozen=True)
class SoftmaxProblem(LinearProblem):
    """ℓ = log Σ_c exp s_c − s_b, with k = ``n_outputs`` classes and labels b in 0..k−1.

    ∂ℓ/∂s = softmax(s) − e_b has norm ≤ √2, and the Hessian in s, diag(π) − ππᵀ, has eigenvalues ≤ ½ (Böhning 1992), so
    ``G = √2·‖a‖`` and ``L = ‖a‖²/2``. Clipping is refused with three or more classes: there a clipped gradient is no
    gradient of a convex function and its step can expand. With two it depends on s_1 − s_0 alone, as in
    the binary logistic loss, and clipping keeps it convex and L-smooth.
    """

    name: ClassVar[str] = "softmax"
    has_accuracy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Problem.__post_init__(self)
        if self.n_outputs < 2:
            raise InvalidValue("problem.kind", self.name, "needs two or more classes; take least-squares for numbers")
        if self.clip is not None and self.n_outputs > 2:
            cure = "with three or more classes clipping breaks the sensitivity bound; scale the features instead"
            raise InvalidValue("problem.clip", self.clip, cure)

    @property
    def gradient_bound(self) -> float:
        bound = math.sqrt(2) * self.record_norm
        return bound if self.clip is None else min(bound, self.clip)

    @property
    def smoothness(self) -> float:
        return self.record_norm**2 / 2

    @classmethod
    def outputs_for(cls, n_classes: int) -> int:
        if n_classes < 2:
            raise InvalidValue("problem.kind", cls.name, "these data have no classes; take least-squares")
        return n_classes

    def _check_labels(self, labels: Tensor) -> None:
        check_classes(labels, self.n_outputs)

    def residual(self, scores: Tensor, labels: Tensor) -> Tensor:
        probabilities = torch.softmax(scores, -2)
        # Subtracting 1 at each label in place: no one-hot matrix.
        at = labels.unsqueeze(-2)
        return probabilities.scatter_add_(-2, at, probabilities.new_full((), -1.0).expand(at.shape))

    def record_losses(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.logsumexp(scores, -2).sub_(scores.gather(-2, labels.unsqueeze(-2)).squeeze(-2))

    def quality(self, scores: Tensor, labels: Tensor) -> dict[str, float]:
        return {"accuracy": float((scores.argmax(-2) == labels).double().mean())}
