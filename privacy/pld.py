"""Privacy loss distributions that are never optimistic, and their composition by one inverse FFT per account.

One release becomes a distribution on the grid {i·h} by connecting the dots of its profile (Doroshenko, Ghazi, Kamath,
Kumar & Manurangsi 2022): the chords of a convex curve lie above it. Grids of h = 2^−level are nested, so a coarse one
dominates a fine one. Releases compose by adding the logarithms of their spectra; a count is a factor. What the circular
grid of the result cannot hold is bounded by Chernoff's inequality and added to δ, as are truncation and rounding.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import logsumexp

from .profiles import Floats, LossProfile
from .renyi import hoelder

Spectrum = NDArray[np.complex128]

ORDERS: Floats = np.geomspace(1e-2, 1e6, 37)
"""Orders t of the moments E e^{tL}; a neighbour is at most 1.67 away, which costs Chernoff's bound under 7 %."""
_HOELDER: Floats = hoelder(ORDERS)
_OCTAVES, _DOTS_PER_OCTAVE = 14, 64
_FEWEST_CELLS = 32
_MOST_CELLS = 2**21
_VAST = 1e7
"""No grid is fine enough for larger ε, of releases with next to no noise, and they are all one."""
_UNIT_ROUNDOFF = 2.0**-53


def connect_dots(dots: Floats, delta: Floats) -> tuple[Floats, float]:
    """The loss distribution whose profile joins (dots[i], delta[i]) by chords in e^ε, mirrored to negative losses.

    Args:
        dots: losses 0 = l_0 < l_1 < … < l_n, shape [n+1].
        delta: a symmetric convex profile at the dots, shape [n+1].

    Returns:
        The chances of −l_n … l_n, shape [2n+1], and the chance of an infinite loss (the curve is level beyond l_n).
    """
    width, drop = np.diff(dots), np.diff(delta)
    # α_i (m_i − m_{i−1}) with the chords' slopes m_i and α_i = e^{l_i}, written without e^{l_i}.
    with np.errstate(over="ignore"):  # nothing is left of a chord that is 700 wide, where there is next to no noise
        level = drop / np.expm1(width)
    upper = np.maximum(np.append(level[1:], 0.0) + drop / np.expm1(-width), 0.0)
    zero = max(0.0, float(1 - delta[0] + 2 * level[0]))
    # The profile is the same in both directions, so P(L = −l) = e^{−l} P(L = l).
    lower = upper * np.exp(-dots[1:])
    return np.concatenate([lower[::-1], [zero], upper]), float(delta[-1])


@dataclass(frozen=True)
class Moments:
    """ln E e^{tL} of the finite losses at ± the common orders, each of shape [37]."""

    up: Floats
    down: Floats

    @staticmethod
    def of(losses: Floats, masses: Floats) -> Moments:
        held = masses > 0
        values, logs = losses[held], np.log(masses[held])
        return Moments(
            up=np.asarray(logsumexp(np.outer(ORDERS, values) + logs, axis=1)),
            down=np.asarray(logsumexp(np.outer(-ORDERS, values) + logs, axis=1)),
        )


class EventLoss:
    """The privacy loss of one release at any level of the grid, with its moments to plan with."""

    def __init__(self, profile: LossProfile) -> None:
        self.profile = profile
        # The last dot, a multiple of the steps of all levels with at least _FEWEST_CELLS cells.
        self.coarsest_level = math.ceil(math.log2(_FEWEST_CELLS / profile.ceiling))
        self.top = math.ceil(profile.ceiling * 2.0**self.coarsest_level) * 2.0**-self.coarsest_level
        self.mass_at_zero = profile.mass_at_zero
        self.infinite = float(profile.delta(np.array([self.top]))[0])

    def masses(self, level: int) -> tuple[Floats, float]:
        """The chances of the losses −n·h … n·h, h = 2^−level, shape [2n+1], and that of an infinite loss."""
        dots: Floats = np.arange(math.ceil(self.top * 2.0**level) + 1, dtype=np.float64) * 2.0**-level
        return connect_dots(dots, self.profile.delta(dots))

    @cached_property
    def _dots(self) -> tuple[Floats, Floats]:
        """Losses whose distance grows with the loss, and their chances: a dominating pair that is quick to sum over."""
        fractions = np.linspace(0.5, 1.0, _DOTS_PER_OCTAVE, endpoint=False)
        octaves = self.top * 2.0 ** np.arange(1 - _OCTAVES, 1)
        dots: Floats = np.concatenate([[0.0], np.outer(octaves, fractions).ravel(), [self.top]])
        masses, _ = connect_dots(dots, self.profile.delta(dots))
        losses: Floats = np.concatenate([-dots[:0:-1], dots])
        return losses, masses

    @cached_property
    def sketch(self) -> Moments:
        """Upper bounds on the moments of the losses up to ``top`` at the common orders."""
        return Moments.of(*self._dots)

    def log_moment(self, orders: Floats) -> Floats:
        """Upper bounds on ln E e^{tL} of the losses up to ``top`` at any orders t > 0, shape [n]."""
        losses, masses = self._dots
        held = masses > 0
        return np.asarray(logsumexp(np.outer(orders, losses[held]) + np.log(masses[held]), axis=1))

    def moments(self, level: int) -> Moments:
        """Upper bounds on the moments of ``masses(level)`` at positive orders (and near values at negative ones)."""
        if level < self.coarsest_level:
            masses, _ = self.masses(level)
            half = len(masses) // 2
            losses: Floats = np.arange(-half, half + 1, dtype=np.float64) * 2.0**-level
            return Moments.of(losses, masses)
        # In y = e^{−l} a cell is a chord of y^{−t}: its excess is at most ⅛ (Δy)² max t(t+1) y^{−t−2}.
        step = 2.0**-level
        spread = ORDERS * (ORDERS + 1) * math.expm1(step) ** 2 / 8
        moved = -np.expm1(np.minimum(0.0, math.log(max(self.mass_at_zero, 1e-300)) - self.sketch.up))
        return Moments(
            up=self.sketch.up + np.log1p(moved * spread * np.exp(np.minimum(ORDERS * step, 600.0))),
            down=self.sketch.down,
        )

    def log_spectrum(self, level: int, size: int) -> Spectrum:
        """The logarithm of the Fourier transform of the losses on a circle of ``size`` cells, shape [size/2 + 1]."""
        masses, _ = self.masses(level)
        half = len(masses) // 2
        turns = -(-len(masses) // size)
        padded = np.zeros(turns * size)
        padded[: len(masses)] = masses
        circle = np.roll(padded.reshape(turns, size).sum(axis=0), -half)
        spectrum = fft.rfft(circle)
        spectrum[spectrum == 0] = 1e-300
        return np.asarray(np.log(spectrum))


class SpectrumCache:
    """The spectra in use, up to ``limit_bytes``; the least recently used one goes first."""

    def __init__(self, limit_bytes: int = 128 * 2**20) -> None:
        self._limit, self._held = limit_bytes, 0
        self._spectra: OrderedDict[tuple[EventLoss, int, int], Spectrum] = OrderedDict()

    def get(self, loss: EventLoss, level: int, size: int) -> Spectrum:
        key = (loss, level, size)
        found = self._spectra.get(key)
        if found is not None:
            self._spectra.move_to_end(key)
            return found
        spectrum = loss.log_spectrum(level, size)
        self._spectra[key] = spectrum
        self._held += spectrum.nbytes
        while self._held > self._limit and len(self._spectra) > 1:
            self._held -= self._spectra.popitem(last=False)[1].nbytes
        return spectrum


@dataclass(frozen=True)
class ComposedLoss:
    """Loss of a whole account on the grid {(first + j)·step}, shape [size]; ``slack`` is added to every δ."""

    first: int
    step: float
    masses: Floats
    slack: float

    def delta(self, epsilon: float) -> float:
        """An upper bound on δ at ε ≥ 0."""
        losses = (self.first + np.arange(len(self.masses))) * self.step
        above = losses > epsilon
        return float(min(1.0, self.slack - _dot(self.masses[above], np.expm1(epsilon - losses[above]))))

    def slope(self, epsilon: float) -> float:
        """−d ln δ / dε at ε ≥ 0, within [1e-3, 1e8]."""
        losses = (self.first + np.arange(len(self.masses))) * self.step
        above = losses > epsilon
        falling = _dot(self.masses[above], np.exp(epsilon - losses[above]))
        return min(max(falling / max(self.delta(epsilon), 1e-300), 1e-3), 1e8)

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 at which the bound is at most δ; ``inf`` where the slack alone exceeds δ."""
        target = delta - self.slack
        if target <= 0:
            return math.inf
        start = max(0, -self.first)
        masses = self.masses[start:]
        losses = (self.first + start + np.arange(len(masses))) * self.step
        # Suffix sums of p and p·e^{pivot−l}: δ(ε) = A − e^{ε−pivot} B over the losses above ε.
        mass = np.cumsum(masses[::-1])[::-1]
        heavy = mass > target
        if not heavy.any():
            return 0.0
        last = int(np.flatnonzero(heavy)[-1])
        pivot = float(losses[last])
        scaled = np.cumsum((masses * np.exp(np.clip(pivot - losses, -600.0, 600.0)))[::-1])[::-1]
        # With the losses from dot j on, the bound is at most δ from pivot + ln((A_j − δ)/B_j) on; it applies to the
        # first dot that this does not pass.
        with np.errstate(divide="ignore"):
            crossing = pivot + np.log(mass[: last + 1] - target) - np.log(scaled[: last + 1])
        reached = np.flatnonzero(crossing <= losses[: last + 1])
        j = int(reached[0]) if len(reached) else last
        below = float(losses[j - 1]) if j else 0.0
        answer = float(losses[last + 1]) if not len(reached) and last + 1 < len(losses) else float(crossing[j])
        return max(0.0, below, answer)


def _dot(one: Floats, other: Floats) -> float:
    """Σ one·other without BLAS, whose threads wait for each other where all cores are busy: ten times as long."""
    return float((one * other).sum())


def chernoff_epsilon(log_moments: Floats, log_delta: float) -> tuple[float, int]:
    """An ε at which δ(ε) ≤ e^{log_delta}, from ln E e^{tL} at the common orders, and the order's index."""
    bounds = (log_moments + _HOELDER - log_delta) / ORDERS
    best = int(np.argmin(bounds))
    return float(bounds[best]), best


def within(log_moments: Floats, epsilon: Floats, delta: Floats) -> NDArray[np.bool_]:
    """Where Chernoff's bound already proves (ε, δ); log_moments [C, 37], epsilon and delta [C], result [C]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_delta = np.log(np.maximum(delta, 0.0))[:, None]
    return np.asarray((log_moments + _HOELDER - log_delta <= np.outer(epsilon, ORDERS)).any(axis=1))


def chernoff_delta(log_moments: Floats, epsilon: float) -> tuple[float, int]:
    """ln of an upper bound on δ(ε), and the index of the order that gives it."""
    bounds = log_moments + _HOELDER - ORDERS * epsilon
    best = int(np.argmin(bounds))
    return float(min(bounds[best], 0.0)), best


def compose(
    losses: Sequence[EventLoss],
    counts: Sequence[int],
    cache: SpectrumCache,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    tolerance: float = 5e-5,
) -> ComposedLoss:
    """The loss of ``counts[j]`` releases of ``losses[j]``, adaptively composed.

    The grid is chosen for the neighbourhood of the given δ (or of the given ε), so that the discretisation moves ε by a
    share of about ``tolerance``; the result is an upper bound everywhere.
    """
    bound = _total([loss.sketch for loss in losses], counts)
    if not chernoff_epsilon(bound.up, math.log(delta or 0.5))[0] <= _VAST:
        return ComposedLoss(0, 1.0, np.zeros(2), 1.0)
    if delta is not None:
        log_delta = math.log(delta)
        near, order = chernoff_epsilon(bound.up, log_delta)
    else:
        near = epsilon or 0.0
        log_delta, order = chernoff_delta(bound.up, near)
        log_delta = max(log_delta, -600.0)
    low, high = _reach(bound, log_delta)
    width = 0.05 * (high - low)
    log_lost = log_delta - math.log(1e7)
    level = _level(losses, counts, float(ORDERS[order]), max(near, width), tolerance)
    result = _compose_on(losses, counts, cache, level, log_lost)
    # Where few large losses decide, Chernoff's order says nothing of the slope of ln δ that turns errors of δ into ε.
    near = result.epsilon(delta) if delta is not None else near
    if math.isinf(near):
        return result
    needed = _level(losses, counts, result.slope(near), max(near, 0.1 * width), tolerance)
    return _compose_on(losses, counts, cache, needed, log_lost) if needed > level else result


def _compose_on(
    losses: Sequence[EventLoss], counts: Sequence[int], cache: SpectrumCache, level: int, log_lost: float
) -> ComposedLoss:
    level, first, size = _circle(losses, counts, level, log_lost)
    total = np.zeros(size // 2 + 1, dtype=np.complex128)
    for loss, count in zip(losses, counts):
        total += count * cache.get(loss, level, size)
    # Below e^{−200} a coefficient is nothing; of many releases nearly all of them are.
    held = np.flatnonzero(total.real > -200.0)
    spectrum = np.zeros_like(total)
    spectrum[held] = np.exp(total[held])
    circle = np.roll(fft.irfft(spectrum, size), -(first % size))
    np.maximum(circle, 0.0, out=circle)
    energy = math.sqrt(2 * float(np.sum(spectrum.real**2 + spectrum.imag**2)))
    rounding = 2 * _UNIT_ROUNDOFF * math.log2(size) * (sum(counts) + 1) * energy
    infinite = sum(count * loss.infinite for loss, count in zip(losses, counts))
    return ComposedLoss(first, 2.0**-level, circle, infinite + math.exp(log_lost) + rounding)


def _level(losses: Sequence[EventLoss], counts: Sequence[int], tilt: float, scale: float, tolerance: float) -> int:
    """The coarsest level that moves an ε of this scale by a share of about ``tolerance``."""
    # Spreading a loss to its two dots adds about t(t+1)h²/12 to ln E e^{tL}, for each loss that is not exactly 0.
    order = int(np.argmin(np.abs(np.log(ORDERS) - math.log(max(tilt, 1e-12)))))
    active = sum(
        count * -math.expm1(min(0.0, math.log(max(loss.mass_at_zero, 1e-300)) - loss.sketch.up[order]))
        for loss, count in zip(losses, counts)
    )
    return math.ceil(-0.5 * math.log2(12 * tolerance * scale / ((tilt + 1) * max(active, 1e-9))))


def _circle(losses: Sequence[EventLoss], counts: Sequence[int], level: int, log_lost: float) -> tuple[int, int, int]:
    """The level (coarser where the grid would be too long), the first cell and the number of cells."""
    while True:
        low, high = _reach(_total([loss.moments(level) for loss in losses], counts), log_lost)
        first = math.floor(low * 2.0**level) - 1
        needed = math.ceil(high * 2.0**level) + 2 - first
        if max(needed, max(loss.top for loss in losses) * 2.0**level) <= _MOST_CELLS:
            return level, first, max(256, 1 << (needed - 1).bit_length())
        level -= 1


def _total(moments: Sequence[Moments], counts: Sequence[int]) -> Moments:
    weights = np.asarray(counts, dtype=np.float64)
    return Moments(weights @ np.array([m.up for m in moments]), weights @ np.array([m.down for m in moments]))


def _reach(moments: Moments, log_chance: float) -> tuple[float, float]:
    """Losses below and above which at most e^{log_chance} of the mass lies each, by Chernoff's inequality."""
    return float(np.max((log_chance - moments.down) / ORDERS)), float(np.min((moments.up - log_chance) / ORDERS))
