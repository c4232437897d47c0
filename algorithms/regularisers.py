"""Convex regularisers R, known through their proximal operator prox_{αR}(v) = argmin_x R(x) + ‖x − v‖²/(2α)  (P1).

All act on the whole parameter vector, bias included, along the last axis of a stack ``[..., d]``. Formulas: Parikh &
Boyd, Proximal Algorithms (2014), chapter 6.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InvalidValue

# A point counts as inside a set when it is outside by no more than this, relative to the set's size: what rounding in
# single precision, or an average of points inside, can add.
TOLERANCE = 1e-6


class Regulariser(ABC):
    """A convex function of the parameters with a closed-form proximal operator.

    ``smooth`` says whether it has a gradient everywhere, ``constraint`` whether it is 0 inside a set and inf outside.
    """

    smooth: ClassVar[bool]
    constraint: ClassVar[bool] = False

    @abstractmethod
    def prox_(self, v: Tensor, alpha: float | Tensor) -> Tensor:
        """prox_{αR} of every row of ``v`` ``[..., d]``, written over ``v``, which is returned; ``alpha`` > 0, one
        number or one a row ``[..., 1]``."""

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """R of every row of ``x`` ``[..., d]``, as ``[...]``; a constraint is 0 inside its set and inf outside."""

    def subgradient(self, x: Tensor) -> Tensor:
        """A subgradient of R at every row of ``x`` ``[..., d]``: the gradient where there is one, and at a corner the
        element of least norm.

        Raises InvalidValue for a constraint, which steps along subgradients do not keep, and for a regulariser that
        gives none.
        """
        raise InvalidValue(
            "problem.regulariser",
            type(self).__name__,
            "this method steps along subgradients and it has none to offer; take none, l2, l1 or elastic-net, or a method "
            "with a proximal step",
        )


@dataclass(frozen=True)
class NoRegulariser(Regulariser):
    """R = 0."""

    smooth: ClassVar[bool] = True

    def prox_(self, v: Tensor, alpha: float | Tensor) -> Tensor:
        return v

    def value(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1])

    def subgradient(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True)
class L2(Regulariser):
    """R(x) = (weight/2)‖x‖²."""

    weight: float
    smooth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_weight("problem.weight", self.weight)

    def prox_(self, v: Tensor, alpha: float | Tensor) -> Tensor:
        return v.div_(1 + alpha * self.weight)

    def value(self, x: Tensor) -> Tensor:
        return x.square().sum(-1).mul_(self.weight / 2)

    def subgradient(self, x: Tensor) -> Tensor:
        return x * self.weight


@dataclass(frozen=True)
class L1(Regulariser):
    """R(x) = weight·‖x‖₁; its proximal operator is soft thresholding."""

    weight: float
    smooth: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_weight("problem.weight", self.weight)

    def prox_(self, v: Tensor, alpha: float | Tensor) -> Tensor:
        return _soft_threshold_(v, alpha * self.weight)

    def value(self, x: Tensor) -> Tensor:
        return x.abs().sum(-1).mul_(self.weight)

    def subgradient(self, x: Tensor) -> Tensor:
        return x.sign().mul_(self.weight)


@dataclass(frozen=True)
class ElasticNet(Regulariser):
    """R(x) = weight_l1·‖x‖₁ + (weight_l2/2)‖x‖²."""

    weight_l1: float
    weight_l2: float
    smooth: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_weight("problem.weight", self.weight_l1)
        _check_weight("problem.weight_l2", self.weight_l2)

    def prox_(self, v: Tensor, alpha: float | Tensor) -> Tensor:
        return _soft_threshold_(v, alpha * self.weight_l1).div_(1 + alpha * self.weight_l2)

    def value(self, x: Tensor) -> Tensor:
        return x.abs().sum(-1).mul_(self.weight_l1).add_(x.square().sum(-1), alpha=self.weight_l2 / 2)

    def subgradient(self, x: Tensor) -> Tensor:
        return x.sign().mul_(self.weight_l1).add_(x, alpha=self.weight_l2)


@dataclass(frozen=True)
class Box(Regulariser):
    """The constraint lower ≤ x ≤ upper in every coordinate."""

    lower: float
    upper: float
    smooth: ClassVar[bool] = False
    constraint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise InvalidValue("problem.lower", self.lower, f"give a number below problem.upper = {self.upper!r}")

    def prox_(self, v: Tensor, alpha: float | Tensor) -> Tensor:
        return v.clamp_(self.lower, self.upper)

    def value(self, x: Tensor) -> Tensor:
        slack = TOLERANCE * max(1.0, *(abs(end) for end in (self.lower, self.upper) if math.isfinite(end)), 0.0)
        inside = ((x >= self.lower - slack) & (x <= self.upper + slack)).all(-1)
        return _indicator(inside, x)


@dataclass(frozen=True)
class Ball(Regulariser):
    """The constraint ‖x‖ ≤ radius."""

    radius: float
    smooth: ClassVar[bool] = False
    constraint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise InvalidValue("problem.radius", self.radius, "give a number > 0")

    def prox_(self, v: Tensor, alpha: float | Tensor) -> Tensor:
        # radius / 0 is inf, which the clamp turns into 1: the zero vector stays where it is.
        norms = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        return v.mul_(norms.reciprocal_().mul_(self.radius).clamp_(max=1.0))

    def value(self, x: Tensor) -> Tensor:
        return _indicator(torch.linalg.vector_norm(x, dim=-1) <= self.radius * (1 + TOLERANCE), x)


def make_regulariser(
    kind: str, weight: float = 0.0, weight_l2: float = 0.0, lower: float = -1.0, upper: float = 1.0, radius: float = 1.0
) -> Regulariser:
    """The regulariser that the configuration's fields of the same names describe.

    Raises:
        InvalidValue: no regulariser is called ``kind``, or one of its parameters is out of range.
    """
    match kind:
        case "none":
            return NoRegulariser()
        case "l2":
            return L2(weight)
        case "l1":
            return L1(weight)
        case "elastic-net":
            return ElasticNet(weight, weight_l2)
        case "box":
            return Box(lower, upper)
        case "ball":
            return Ball(radius)
    raise InvalidValue("problem.regulariser", kind, "give none, l2, l1, elastic-net, box or ball")


def _check_weight(field: str, weight: float) -> None:
    if not (weight >= 0 and math.isfinite(weight)):
        raise InvalidValue(field, weight, "give a finite number ≥ 0")


def _soft_threshold_(v: Tensor, threshold: float | Tensor) -> Tensor:
    # sign(v)·max(|v| − t, 0) = v − clamp(v, −t, t): one temporary instead of three.
    limit: Any = threshold
    return v.sub_(v.clamp(-limit, limit))


def _indicator(inside: Tensor, like: Tensor) -> Tensor:
    return like.new_full(inside.shape, math.inf).masked_fill_(inside, 0.0)
