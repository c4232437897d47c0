"""A table of accounts against values that were computed in another way. Usage: python benchmarks/accounts.py

Where a closed form exists, mpmath evaluates it with 30 digits. Elsewhere the exact tail of each release's loss is cut into
fine cells, rounded down (a lower bound that no valid account may be below) and up, and convolved by brute force. The test
suite checks the same rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import mpmath as mp
import numpy as np
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.events import (
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
from scipy.special import ndtr

Account = Mapping[Event, int]
_CELLS = 2**20
mp.mp.dps = 30


@dataclass(frozen=True)
class Row:
    """One account. ``low`` ≤ the true ε of its worst case ≤ ``high``; they are equal where there is a closed form."""

    name: str
    delta: float
    found: float
    account: str
    low: float
    high: float

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def excess(self) -> float:
        """How far ``found`` is above ``low``, as a share of it."""
        return self.found / self.low - 1


def falling_root(curve: Callable[[mp.mpf], mp.mpf], delta: float, top: float) -> float:
    """The ε in [0, top] at which a falling δ(ε) passes ``delta``, by bisection with 30 digits."""
    low, high = mp.mpf(0), mp.mpf(top)
    while high - low > mp.mpf(10) ** -15 * (1 + high):
        middle = (low + high) / 2
        low, high = (middle, high) if curve(middle) > delta else (low, middle)
    return float(high)


def gaussian(epsilon: mp.mpf, mu: mp.mpf) -> mp.mpf:
    """δ of Gaussians whose means are μ standard deviations apart."""
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def by_gaussian(account: Account, delta: float) -> float:
    mu = mp.sqrt(mp.fsum(count / mp.mpf(event.noise_multiplier) ** 2 for event, count in account.items()))
    return falling_root(lambda e: gaussian(e, mu), delta, float(mu * mu / 2 + 20 * mu))


def by_kairouz(account: Account, delta: float) -> float:
    """k-fold composition of one (ε₀, δ₀)-DP mechanism (Kairouz, Oh & Viswanath 2015, Theorem 3)."""
    ((event, k),) = account.items()
    one = 1 / mp.mpf(event.noise_multiplier)
    broken = mp.mpf(getattr(event, "delta", 0.0))

    pairs = [(mp.binomial(k, j), mp.exp((k - j) * one), mp.exp(j * one)) for j in range(k + 1)]

    def curve(epsilon: mp.mpf) -> mp.mpf:
        grown = mp.exp(epsilon)
        terms = (ways * max(more - grown * less, mp.mpf(0)) for ways, more, less in pairs)
        return 1 - (1 - broken) ** k * (1 - mp.fsum(terms) / (1 + mp.exp(one)) ** k)

    return falling_root(curve, delta, float(k * one))


def by_enumeration(account: Account, delta: float) -> float:
    """All outcomes of different randomised responses, one by one."""
    losses = [1 / mp.mpf(event.noise_multiplier) for event, count in account.items() for _ in range(count)]
    outcomes = []
    for signs in itertools.product((1, -1), repeat=len(losses)):
        under_p = mp.fprod(1 / (1 + mp.exp(-sign * loss)) for sign, loss in zip(signs, losses))
        under_q = mp.fprod(1 / (1 + mp.exp(sign * loss)) for sign, loss in zip(signs, losses))
        outcomes.append((under_p, under_q))

    def curve(epsilon: mp.mpf) -> mp.mpf:
        grown = mp.exp(epsilon)
        return mp.fsum(max(p - grown * q, mp.mpf(0)) for p, q in outcomes)

    return falling_root(curve, delta, float(mp.fsum(losses)))


def by_laplace(account: Account, delta: float) -> float:
    ((event, _),) = account.items()
    return float(max(mp.mpf(0), 1 / mp.mpf(event.noise_multiplier) + 2 * mp.log(1 - mp.mpf(delta))))


def by_moments(account: Account, delta: float) -> float:
    """min over α of the sum of Rényi divergences, converted by Canonne, Kamath & Steinke 2020, Proposition 12."""

    def divergence(event: Event, alpha: mp.mpf) -> mp.mpf:
        if isinstance(event, PureEvent):
            p = 1 / (1 + mp.exp(-mp.mpf(event.epsilon)))
            return mp.log(p**alpha * (1 - p) ** (1 - alpha) + (1 - p) ** alpha * p ** (1 - alpha)) / (alpha - 1)
        return alpha / (2 * mp.mpf(event.noise_multiplier) ** 2)

    def loss(log_t: mp.mpf) -> mp.mpf:
        alpha = 1 + mp.exp(log_t)
        total = mp.fsum(count * divergence(event, alpha) for event, count in account.items())
        return total + mp.log(1 - 1 / alpha) - mp.log(delta * alpha) / (alpha - 1)

    low, high = mp.mpf(-5), mp.mpf(12)  # one valley: the golden section finds it
    shrink = (mp.sqrt(5) - 1) / 2
    for _ in range(60):
        a, b = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return float(loss((low + high) / 2))


def by_mixture(account: Account, delta: float) -> float:
    """One sampled release, by the formula of its profile."""
    ((event, _),) = account.items()
    rate, shifts = _mixture(event)

    def curve(epsilon: mp.mpf) -> mp.mpf:
        inner = mp.log(1 + (mp.exp(epsilon) - 1) / rate)
        return rate * mp.fsum(weight * gaussian(inner, shift) for shift, weight in shifts)

    return falling_root(curve, delta, 60.0)


def _mixture(event: Event) -> tuple[mp.mpf, list[tuple[mp.mpf, mp.mpf]]]:
    """The chance that the record is drawn, and the shifts with their chances given that it is."""
    one = 1 / mp.mpf(event.noise_multiplier)
    if isinstance(event, (IidEvent, SubsampledEvent)):
        return mp.mpf(event.rate), [(one, mp.mpf(1))]
    if isinstance(event, GaussianEvent):
        return mp.mpf(1), [(one, mp.mpf(1))]
    assert isinstance(event, (EpochEvent, IndependentEvent))
    kappa, steps, rate = mp.mpf(event.contraction), event.steps, mp.mpf(event.rate)
    parts = [mp.fsum(kappa**k for k in range(steps - r)) for r in range(steps)]
    if isinstance(event, EpochEvent):
        return rate, [(one * part / parts[0], mp.mpf(1) / steps) for part in parts]
    drawn = 1 - (1 - rate) ** steps
    sets = (s for s in itertools.product((0, 1), repeat=steps) if any(s))
    return drawn, [
        (
            one * mp.fsum(part for part, held in zip(parts, chosen) if held) / mp.fsum(parts),
            rate ** sum(chosen) * (1 - rate) ** (steps - sum(chosen)) / drawn,
        )
        for chosen in sets
    ]


def tail(event: Event, losses: np.ndarray) -> np.ndarray:
    """P(L > l) of the dominating pair of one release (of one step of a subsampled one), exact."""
    if isinstance(event, PureEvent):
        p = 1 / (1 + math.exp(-event.epsilon))
        return np.where(losses < -event.epsilon, 1.0, np.where(losses < event.epsilon, p, 0.0))
    if isinstance(event, LaplaceEvent):
        inside = 1 - np.exp((np.minimum(losses, event.epsilon) - event.epsilon) / 2) / 2
        return np.where(losses < -event.epsilon, 1.0, np.where(losses < event.epsilon, inside, 0.0))
    exact_rate, shifts = _mixture(event)
    rate, size = float(exact_rate), np.abs(losses)
    inner = np.log1p(np.expm1(size) / rate)
    up, down = np.zeros_like(losses), np.zeros_like(losses)
    for exact_shift, weight in shifts:
        shift = float(exact_shift)
        far = ndtr(-shift / 2 - inner / shift)
        up += float(weight) * (rate * ndtr(shift / 2 - inner / shift) + (1 - rate) * far)
        down += float(weight) * far
    return np.where(losses >= 0, up, 1 - down)


def by_convolution(account: Account, delta: float, reach: float) -> tuple[float, float]:
    """Bounds on ε from losses rounded down and up on a fine grid over ±reach."""
    step = 2 * reach / _CELLS
    edges = (np.arange(_CELLS + 1) - _CELLS // 2) * step
    bounds = []
    cells = [-np.diff(tail(event, edges)) for event in account]
    for upwards in (0, 1):
        spectrum = np.ones(_CELLS // 2 + 1, dtype=complex)
        for (event, count), masses in zip(account.items(), cells):
            circle = np.roll(masses, -(_CELLS // 2) + upwards)
            steps = event.steps if isinstance(event, SubsampledEvent) else 1
            spectrum *= np.fft.rfft(circle) ** (count * steps)
        composed = np.roll(np.fft.irfft(spectrum, _CELLS), _CELLS // 2)
        losses, masses = edges[:-1], np.maximum(composed, 0.0)
        low, high = 0.0, reach
        for _ in range(60):
            middle = (low + high) / 2
            above = losses > middle
            passed = -(masses[above] @ np.expm1(middle - losses[above])) > delta
            low, high = (middle, high) if passed else (low, middle)
        bounds.append(low if not upwards else high)
    return bounds[0], bounds[1]


def gauss(z: float) -> Event:
    return GaussianEvent(noise_multiplier=z)


EPOCH = EpochEvent(noise_multiplier=1.0, rate=50 / 600, steps=5, contraction=0.9)
SMALL_EPOCH = EpochEvent(noise_multiplier=0.8, rate=0.4, steps=4, contraction=0.7)
BATCHES = IndependentEvent(noise_multiplier=1.0, rate=0.02, steps=5, contraction=0.8)
STEPS = SubsampledEvent(noise_multiplier=1.2, rate=0.02, steps=5)

CLOSED: list[tuple[str, Account, float, Callable[[Account, float], float]]] = [
    *[
        (f"{n} Gaussian, z={z:g}", {gauss(z): n}, delta, by_gaussian)
        for z, n, delta in [
            (1, 1, 1e-5),
            (0.5, 7, 1e-5),
            (4, 300, 1e-6),
            (20, 4000, 1e-9),
            (1000, 10, 1e-5),
            (0.05, 3, 1e-5),
        ]
    ],
    ("Gaussian, z=1 and 3", {gauss(1.0): 4, gauss(3.0): 20}, 1e-5, by_gaussian),
    ("Gaussian, z=2, 5, 7 and 50", {gauss(2.0): 1, gauss(5.0): 9, gauss(7.0): 30, gauss(50.0): 900}, 1e-8, by_gaussian),
    ("Gaussian, 200 different z", {gauss(5 + k / 10): 1 for k in range(200)}, 1e-5, by_gaussian),
    *[
        (f"{n} pure, ε={e:g}", {PureEvent.of(e): n}, delta, by_kairouz)
        for e, n, delta in [(0.1, 100, 1e-5), (0.5, 10, 1e-5), (0.02, 300, 1e-6), (1, 5, 1e-3), (2, 3, 1e-9)]
    ],
    ("pure, ε=0.2 to 0.9 once each", {PureEvent.of(k / 10): 1 for k in range(2, 10)}, 1e-4, by_enumeration),
    ("pure, 4 of 0.3, 5 of 0.7", {PureEvent.of(0.3): 4, PureEvent.of(0.7): 5}, 1e-5, by_enumeration),
    ("50 of (0.1, 1e-7)", {ApproximateEvent.of(0.1, 1e-7): 50}, 1e-5, by_kairouz),
    ("8 of (0.5, 1e-6)", {ApproximateEvent.of(0.5, 1e-6): 8}, 1e-4, by_kairouz),
    *[(f"1 Laplace, Δ/b={e:g}", {LaplaceEvent.of(1.0, e): 1}, 1e-2, by_laplace) for e in (0.1, 1.0, 8.0)],
    ("10 zCDP, ρ=0.01", {ZcdpEvent.of(0.01): 10}, 1e-5, by_moments),
    ("1 zCDP, ρ=2", {ZcdpEvent.of(2.0): 1}, 1e-6, by_moments),
    ("zCDP and Gaussian", {ZcdpEvent.of(0.02): 5, gauss(3.0): 6}, 1e-5, by_moments),
    ("zCDP, Gaussian and pure", {ZcdpEvent.of(0.01): 10, gauss(3.0): 2, PureEvent.of(0.1): 10}, 1e-5, by_moments),
    ("1 epoch round", {EPOCH: 1}, 1e-5, by_mixture),
    ("1 epoch round, q=0.4, κ=0.7", {SMALL_EPOCH: 1}, 1e-3, by_mixture),
    ("1 round of independent batches", {BATCHES: 1}, 1e-5, by_mixture),
    ("1 subsampled step", {SubsampledEvent(noise_multiplier=1.2, rate=0.02): 1}, 1e-6, by_mixture),
]
CONVOLVED: list[tuple[str, Account, float]] = [
    ("100 epoch rounds", {EPOCH: 100}, 1e-5),
    ("5 epoch rounds, q=0.4", {SMALL_EPOCH: 5}, 1e-5),
    ("40 rounds of independent batches", {BATCHES: 40}, 1e-5),
    ("60 rounds of records drawn one by one", {IidEvent(noise_multiplier=2.0, rate=0.1): 60}, 1e-6),
    ("30 DP-SGD rounds of 5 steps", {STEPS: 30}, 1e-5),
    ("100 Laplace, Δ/b=0.1", {LaplaceEvent.of(10.0, 1.0): 100}, 1e-5),
    ("20 pure and 20 Gaussian", {PureEvent.of(0.1): 20, gauss(10.0): 20}, 1e-5),
    ("5 Laplace and 10 Gaussian", {LaplaceEvent.of(2.0, 1.0): 5, gauss(4.0): 10}, 1e-5),
    ("epoch, pure and Gaussian", {EPOCH: 30, PureEvent.of(0.05): 20, gauss(5.0): 3}, 1e-5),
    (
        "epoch, DP-SGD and records one by one",
        {EPOCH: 20, STEPS: 10, IidEvent(noise_multiplier=1.5, rate=0.03): 10},
        1e-5,
    ),
    ("epoch rounds of two kinds", {EPOCH: 20, SMALL_EPOCH: 2}, 1e-6),
]


def rows(accountant: Accountant | None = None) -> Iterator[Row]:
    """Every account of the table."""
    accountant = accountant or Accountant(rdp=False)
    for name, account, delta, value in CLOSED:
        found, expected = accountant.epsilon(account, delta), value(account, delta)
        yield Row(name, delta, found.epsilon, found.account, expected, expected)
    for name, account, delta in CONVOLVED:
        found = accountant.epsilon(account, delta)
        low, high = by_convolution(account, delta, 4 * found.epsilon + 8)
        yield Row(name, delta, found.epsilon, found.account, low, high)


def main() -> None:
    worst = 0.0
    print(f"{'account':42} {'δ':>7} {'ledger ε':>12} {'by':18} {'otherwise':>25} {'above by':>10}")
    for row in rows():
        otherwise = f"{row.low:.9f}" if row.exact else f"{row.low:.6f} … {row.high:.6f}"
        print(f"{row.name:42} {row.delta:7.0e} {row.found:12.8f} {row.account:18} {otherwise:>25} {row.excess:10.1e}")
        worst = max(worst, abs(row.excess)) if row.exact else worst
    print(f"worst relative error where there is a closed form: {worst:.1e}")


if __name__ == "__main__":
    main()
