"""What one release may reveal, as its privacy profile: the largest δ for each ε, over all neighbouring pairs.

Every kind of event with Gaussian noise has the same form. With probability ``rate`` the replaced record is drawn at
all; then, with chance
``weights[j]``, it moves the mean of the Gaussian by ``shifts[j]`` standard deviations. With advanced joint convexity
(Balle, Barthe & Gaboardi 2018, Theorem 2) and a coupling of "drawn" with "another record in its place",

    δ(ε) = rate · Σ_j weights[j] · δ_Gauss( ln(1 + (e^ε − 1)/rate) ; shifts[j] )      for ε ≥ 0       (SPEC D4)
    δ(ε) = 1 − e^ε + e^ε δ(−ε)                                                        for ε < 0

A pure ε-DP release has the profile of randomised response, which dominates it (Kairouz, Oh & Viswanath 2015, Theorem
2); Laplace noise has its own. Each curve is convex in e^ε and holds in both directions, so it is the profile of a pair
of distributions that dominates the release, and such pairs compose adaptively (Zhu, Dong & Wang 2022, Theorem 10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp

from .events import (
    ApproximateEvent,
    EpochEvent,
    Event,
    GaussianEvent,
    IidEvent,
    IndependentEvent,
    LaplaceEvent,
    PureEvent,
    SubsampledEvent,
    ZcdpEvent,
)

Floats = NDArray[np.float64]

_MANY_ATOMS = 4096
_KEPT_ATOMS = 128
_NO_NOISE = 1e8
"""Shifts beyond which ε is the bound that it is looked for below: it is within 1e-7 of it, and no longer to be computed."""
_TAIL_SIGMAS = 9.4
"""Losses beyond s²/2 + 9.4 s have less than 1e-20 of the mass of a shift s."""


def gaussian_delta(epsilon: Any, mu: float) -> Any:
    """δ_Gauss(ε; μ) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), exact (Balle & Wang 2018, Theorem 8).

    ``epsilon`` is a float or an array, ``mu`` the shift in standard deviations; the answer has ``epsilon``'s shape.
    """
    scalar = np.ndim(epsilon) == 0
    eps = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
    if mu == 0:
        result = np.maximum(0.0, -np.expm1(np.minimum(eps, 0.0)))
    elif math.isinf(mu):
        result = np.ones_like(eps)
    else:
        upper, lower = mu / 2 - eps / mu, -mu / 2 - eps / mu
        result = np.empty_like(eps)
        far = upper <= 0
        # e^ε φ(lower) = φ(upper): in the tail the difference of Mills ratios keeps its relative accuracy.
        a, b = upper[far], lower[far]
        result[far] = 0.5 * np.exp(-a * a / 2) * (erfcx(-a / math.sqrt(2)) - erfcx(-b / math.sqrt(2)))
        near = ~far
        result[near] = ndtr(upper[near]) - np.exp(eps[near] + log_ndtr(lower[near]))
        np.clip(result, 0.0, 1.0, out=result)
    return float(result[0]) if scalar else result


@lru_cache(maxsize=65536)
def gaussian_epsilon(delta: float, mu: float) -> float:
    """The ε at which δ_Gauss(ε; μ) = δ, never below 0; rounded up by 1e-12 of its value. ``inf`` for infinite μ."""
    if math.isinf(mu):
        return math.inf
    if mu == 0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    # Φ(−x) ≤ exp(−x²/2) bounds the answer from above.
    top = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    if mu > _NO_NOISE:
        return top * (1 + 1e-12)
    root = brentq(lambda e: gaussian_delta(e, mu) - delta, 0.0, top, xtol=1e-13 * top, rtol=1e-13)
    return float(root) * (1 + 1e-12) + 1e-13 * top


def gaussian_shift(event: Event) -> float:
    """The smallest μ known for which the release is μ-Gaussian-DP whatever was sampled; ``inf`` where there is none.

    An (ε, 0)-DP release is μ-GDP with μ = −2Φ⁻¹(1/(1 + e^ε)) (Liu et al. 2022): the trade-off curve of randomised
    response is the chord of that Gaussian's through its fixed point. The δ of an ``ApproximateEvent`` is not in it.
    """
    if event.noise_multiplier <= 1e-150 or isinstance(event, ZcdpEvent):
        return math.inf
    if isinstance(event, (PureEvent, LaplaceEvent, ApproximateEvent)):
        return float(-2 * ndtri_exp(-event.epsilon - math.log1p(math.exp(-event.epsilon)))) * (1 + 1e-12)
    return math.sqrt(repeats(event)) / event.noise_multiplier


def repeats(event: Event) -> int:
    """How many releases of its ``profile`` one event is."""
    return event.steps if isinstance(event, SubsampledEvent) else 1


def profile_epsilon(profile: LossProfile, delta: float) -> float:
    """The ε ≥ 0 at which a profile comes down to ``delta`` > 0, rounded up by 1e-12 of the largest loss."""
    if float(profile.delta(np.zeros(1))[0]) <= delta:
        return 0.0
    top = profile.ceiling
    while float(profile.delta(np.array([top]))[0]) > delta:
        top *= 2
        if top > 1e300:
            return math.inf
    root = brentq(lambda e: float(profile.delta(np.array([e]))[0]) - delta, 0.0, top, xtol=1e-13 * top, rtol=1e-13)
    return min(top, float(root) * (1 + 1e-12) + 1e-13 * top)


class LossProfile(Protocol):
    """What a loss distribution is made of."""

    def delta(self, epsilon: Floats) -> Floats:
        """δ at each ε ≥ 0, shape [n]."""
        ...

    @property
    def mass_at_zero(self) -> float:
        """The chance that the privacy loss is exactly 0: the kink of the profile at ε = 0."""
        ...

    @property
    def ceiling(self) -> float:
        """A loss beyond which less than 1e-20 of the mass lies, infinite losses aside."""
        ...


@dataclass(frozen=True)
class PureProfile:
    """Of an (``largest``, ``broken``)-DP release: δ(ε) = δ₀ + (1−δ₀)·(e^{ε₀} − e^ε)₊/(1 + e^{ε₀})."""

    largest: float
    broken: float = 0.0

    def delta(self, epsilon: Floats) -> Floats:
        held = np.maximum(0.0, -np.expm1(np.minimum(epsilon - self.largest, 0.0))) / (1 + math.exp(-self.largest))
        return np.asarray(self.broken + (1 - self.broken) * held)

    @property
    def mass_at_zero(self) -> float:
        return 0.0

    @property
    def ceiling(self) -> float:
        return self.largest


@dataclass(frozen=True)
class LaplaceProfile:
    """Of Laplace noise whose mean is moved by ``largest`` scales: δ(ε) = (1 − e^{(ε − ε₀)/2})₊, exact."""

    largest: float

    def delta(self, epsilon: Floats) -> Floats:
        return np.asarray(-np.expm1(np.minimum(epsilon - self.largest, 0.0) / 2))

    @property
    def mass_at_zero(self) -> float:
        return 0.0

    @property
    def ceiling(self) -> float:
        return self.largest


@dataclass(frozen=True)
class Profile:
    """The profile of one release with Gaussian noise.

    ``shifts`` (in standard deviations) and ``weights`` (summing to 1) have shape [J].
    """

    rate: float
    shifts: Floats
    weights: Floats

    def delta(self, epsilon: Floats) -> Floats:
        """δ at each ε ≥ 0, shape [n]."""
        inner = self._inner(epsilon)
        total = np.zeros_like(epsilon)
        for shift, weight in zip(self.shifts, self.weights):
            total += weight * gaussian_delta(inner, float(shift))
        return self.rate * total

    def _inner(self, epsilon: Floats) -> Floats:
        """ln(1 + (e^ε − 1)/rate), without overflow and without cancellation."""
        if self.rate == 1:
            return epsilon
        small = np.minimum(epsilon, 1.0)
        return np.where(
            epsilon <= 1,
            np.log1p(np.expm1(small) / self.rate),
            epsilon + np.log1p(-(1 - self.rate) * np.exp(-epsilon)) - math.log(self.rate),
        )

    @property
    def mass_at_zero(self) -> float:
        """The chance that the privacy loss is exactly 0: the kink of the profile at ε = 0."""
        return float((1 - self.rate) * (1 - 2 * self.weights @ ndtr(-self.shifts / 2)))

    @property
    def ceiling(self) -> float:
        """A loss beyond which less than 1e-20 of the mass lies."""
        largest = float(self.shifts.max())
        inner = largest * largest / 2 + _TAIL_SIGMAS * largest
        if inner < 1:
            return math.log1p(self.rate * math.expm1(inner))
        return inner + math.log(self.rate + (1 - self.rate) * math.exp(-inner))


def position_shares(steps: int, contraction: float) -> Floats:
    """What batch r adds to the release, as a share of all batches together: t_r ∝ Σ_{k=0..Q−r} κ^k, shape [Q]."""
    sums = np.cumsum(contraction ** np.arange(steps, dtype=np.float64))[::-1]
    return np.asarray(sums / sums.sum(), dtype=np.float64)


def profile(event: Event) -> LossProfile:
    """The profile of an event with a positive noise multiplier; of each of its steps, for a ``SubsampledEvent``.

    Raises ValueError for an event that has none (ρ-zCDP bounds no pair of distributions that composes) or is unknown.
    """
    largest = 1 / event.noise_multiplier
    one = np.ones(1)
    if isinstance(event, GaussianEvent):
        return Profile(1.0, largest * one, one)
    if isinstance(event, PureEvent):
        return PureProfile(largest)
    if isinstance(event, LaplaceEvent):
        return LaplaceProfile(largest)
    if isinstance(event, ApproximateEvent):
        return PureProfile(largest, event.delta)
    if isinstance(event, (IidEvent, SubsampledEvent)):
        # By Poisson sampling too: given which other records are drawn, the two runs differ where the record is drawn,
        # and joint convexity bounds them by the pair that has it always.
        return Profile(event.rate, largest * one, one)
    if isinstance(event, EpochEvent):
        # (D4): s_r relative to s_1, which is the largest whatever κ is.
        shares = position_shares(event.steps, event.contraction)
        ratios, counts = np.unique(shares / shares[0], return_counts=True)
        return Profile(event.rate, largest * ratios, counts / event.steps)
    if isinstance(event, IndependentEvent):
        shares = position_shares(event.steps, event.contraction)
        sums, chances = _subset_sums(shares, event.rate)
        drawn = -math.expm1(event.steps * math.log1p(-event.rate)) if event.rate < 1 else 1.0
        return Profile(drawn, largest * sums, chances / chances.sum())
    raise ValueError(f"no account is known for an event of kind {event.kind!r}")


def _subset_sums(shares: Floats, rate: float) -> tuple[Floats, Floats]:
    """Σ_{r∈A} shares[r] and its chance, over the non-empty sets A that hold each r with chance ``rate``.

    Where the subsets are too many, neighbouring sums are merged into the largest of them. δ_Gauss rises with the shift,
    so the profile can only grow.
    """
    sums, chances = np.zeros(1), np.ones(1)
    for share in shares:
        sums = np.concatenate([sums, sums + share])
        chances = np.concatenate([chances * (1 - rate), chances * rate])
        sums, chances = _merge(sums, chances, np.round(sums, 12))
        if len(sums) > _MANY_ATOMS:
            sums, chances = _merge(sums, chances, np.ceil(sums * 2**16))
    drawn = (sums > 0) & (chances > 0)
    sums, chances = np.minimum(sums[drawn], 1.0), chances[drawn]
    # Sets that are never seen count as the whole.
    rare = np.cumsum(chances[::-1])[::-1] < 1e-18 * chances.sum()
    if rare.any():
        sums, chances = np.append(sums[~rare], 1.0), np.append(chances[~rare], chances[rare].sum())
    if len(sums) > _KEPT_ATOMS:
        step = max(0.005, math.log(sums.max() / sums.min()) / _KEPT_ATOMS)
        sums, chances = _merge(sums, chances, np.ceil(np.log(sums / sums.max()) / step))
    return sums, chances


def _merge(sums: Floats, chances: Floats, cells: Floats) -> tuple[Floats, Floats]:
    """One atom per cell: the largest sum in it, with the chance of all of them."""
    _, cell = np.unique(cells, return_inverse=True)
    merged, weight = np.zeros(cell.max() + 1), np.zeros(cell.max() + 1)
    np.maximum.at(merged, cell, sums)
    np.add.at(weight, cell, chances)
    return merged, weight
