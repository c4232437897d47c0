"""Logistic regression with a bounded, non-convex penalty: smooth, with more than one stationary point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...errors import InvalidValue
from ..shards import Shards
from .logistic import LogisticProblem
from .registry import register

# The largest slope of x²/(1+x²), at x = 1/√3. Its second derivative lies between −1/2 and 2.
_SLOPE = 3 * math.sqrt(3) / 8
_CURVATURE = 2.0


@register
@dataclass(frozen=True)
class NonconvexLogisticProblem(LogisticProblem):
    """ℓ = log(1 + exp(−y s)) + w Σ_j x_j²/(1 + x_j²), a usual test of non-convex methods (Antoniadis et al. 2011).

    The penalty is a part of every record's loss: a method that sees function values alone sees it through them. Where the
    logistic part is flatter than w/2, the sum is concave. Record gradients are not clipped.

    Attributes:
        bend: w ≥ 0.
    """

    bend: float = 0.1

    name: ClassVar[str] = "nonconvex-logistic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.bend < math.inf:
            raise InvalidValue("problem.bend", self.bend, "give a finite number ≥ 0")
        if self.clip is not None:
            raise InvalidValue("problem.clip", self.clip, "leave it out: this loss is not clipped record by record")

    @property
    def gradient_bound(self) -> float:
        return super().gradient_bound + self.bend * _SLOPE * math.sqrt(self.dim)

    @property
    def smoothness(self) -> float:
        return super().smoothness + _CURVATURE * self.bend

    @property
    def convex_smooth(self) -> bool:
        return self.bend == 0

    def penalty(self, x: Tensor) -> Tensor:
        """``[...]``, w Σ_j x_j²/(1 + x_j²) of parameters ``[..., d]``."""
        squares = x.square()
        return squares.div(squares + 1).sum(-1).mul_(self.bend)

    def values(self, x: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Mean loss ``[q]`` of each of q models ``x`` ``[q, d]`` on its own records ``[q, n, p]`` with labels ``[q, n]``."""
        return self.record_losses(self._batched_scores(x, features), labels).mean(1) + self.penalty(x)

    def add_gradient(
        self, out: Tensor, x: Tensor, features: Tensor, labels: Tensor, scale: float | Tensor = 1.0
    ) -> None:
        super().add_gradient(out, x, features, labels, scale)
        slope = x.div((x.square() + 1).square_()).mul_(2 * self.bend)
        out.add_(slope * scale)

    @property
    def clips(self) -> bool:
        return self.bend == 0  # the penalty's slope is a part of every record's gradient, which the scores do not show

    def losses(self, x: Tensor, shards: Shards, slots: Tensor) -> Tensor:
        return super().losses(x, shards, slots) + self.penalty(x)

    def client_losses(self, x: Tensor, shards: Shards) -> Tensor:
        return super().client_losses(x, shards) + self.penalty(x)

    def score(self, x: Tensor, features: Tensor, labels: Tensor) -> dict[str, float]:
        scored = super().score(x, features, labels)
        return {**scored, "loss": scored["loss"] + float(self.penalty(x))}
