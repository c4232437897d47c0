"""Lower bounds on a privacy loss from what a mechanism was seen to do: statistics alone, no method and no data.

Two distinguishable data sets P and P' and a statistic of the releases give a test "P if the statistic is above a
threshold". With TPR = Pr[above | P] and FPR = Pr[above | P'] every (ε, δ)-private mechanism has TPR ≤ e^ε FPR + δ, and
every μ-Gaussian-private one TPR ≤ Φ(Φ⁻¹(FPR) + μ) (Dong, Roth & Su 2022). Confidence limits for the two rates (Clopper &
Pearson 1934) turn both around: Jagielski, Ullman & Oprea 2020 for ε, Nasr et al. 2023 for μ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import beta

from ..errors import InvalidValue
from .profiles import Floats

_THRESHOLDS = 400
_FEWEST = 5
_REACH = 10.0
_GRID_LOSS = 0.002
"""How far the grid may move ε, downwards, on average."""

Objective = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Lower:
    """What a number of releases proves; both bounds hold together with probability ``confidence``.

    Attributes:
        epsilon: below the ε at the δ asked for of *any* mechanism that behaves as seen.
        mu: below the Gaussian-privacy parameter μ of the mechanism. As a statement about ε it needs the mechanism to be
            Gaussian, as the account of a Gaussian event says that it is: μ above that account's refutes it.
        fitted_mu: mean difference over standard deviation: a fit, no bound.
        trials: releases of each data set that were counted, the ones that chose the thresholds left out.
        ceiling: the largest ``mu`` that so many trials could have shown.
    """

    epsilon: float
    mu: float
    fitted_mu: float
    trials: int
    confidence: float
    ceiling: float


def lower_limit(hits: Floats, trials: int, alpha: float) -> Floats:
    """The one-sided Clopper–Pearson lower limit of a chance, at confidence 1 − α, for ``hits`` ``[n]`` of ``trials``."""
    return np.where(hits > 0, beta.ppf(alpha, np.maximum(hits, 1e-300), trials - hits + 1), 0.0)


def upper_limit(hits: Floats, trials: int, alpha: float) -> Floats:
    """The one-sided Clopper–Pearson upper limit; see ``lower_limit``."""
    return 1 - lower_limit(trials - hits, trials, alpha)


def lower_bound(under: Floats, other: Floats, delta: float, confidence: float) -> Lower:
    """Lower bounds from a statistic's values ``[n]`` under the one data set, where it is larger, and under the other.

    A tenth of the values chooses the thresholds and which data set plays P; the rest is counted once, so no choice
    costs confidence. Raises InvalidValue for fewer than 100 values, or a confidence outside (0, 1).
    """
    count = min(len(under), len(other))
    if count < 100:
        raise InvalidValue("--trials", count, "give at least 100")
    if not 0 < confidence < 1:
        raise InvalidValue("--confidence", confidence, "give a number between 0 and 1, such as 0.99")
    chosen, trials = count // 10, count - count // 10
    alpha = (1 - confidence) / 4  # two bounds of two rates each

    def epsilon(tpr: Floats, fpr: Floats) -> Floats:
        return np.log(np.maximum(tpr - delta, 1e-300) / fpr)

    def mu(tpr: Floats, fpr: Floats) -> Floats:
        return np.where(tpr > 0, ndtri(np.maximum(tpr, 1e-300)) - ndtri(fpr), 0.0)

    bounds = [_split_bound(under[:count], other[:count], chosen, alpha, objective) for objective in (epsilon, mu)]
    gap, spread = under.mean() - other.mean(), np.sqrt((under.var() + other.var()) / 2)
    all_hit = np.array([float(trials)])
    ceiling = float(mu(lower_limit(all_hit, trials, alpha), upper_limit(0 * all_hit, trials, alpha))[0])
    fitted = float(gap / spread) if spread > 0 else (np.inf if gap > 0 else 0.0)
    return Lower(bounds[0], bounds[1], fitted, trials, confidence, ceiling)


def _split_bound(under: Floats, other: Floats, chosen: int, alpha: float, objective: Objective) -> float:
    trials = len(under) - chosen
    best, threshold, swap = -np.inf, 0.0, False
    # The choice takes both statistics for normal, which smooths their tails; where they are not, it is merely not the best.
    for turned, (p, q) in enumerate(((under, other), (-other, -under))):
        first = np.sort(p[:chosen])
        # No threshold beyond which hardly anything was seen, whatever a fit says of it.
        candidates = np.linspace(min(first[0], q[:chosen].min()), first[-_FEWEST], _THRESHOLDS, endpoint=False)
        fits = [(side[:chosen].mean(), max(side[:chosen].std(), 1e-12)) for side in (p, q)]
        hits = [trials * ndtr((mean - candidates) / std) for mean, std in fits]
        values = objective(lower_limit(hits[0], trials, alpha), upper_limit(hits[1], trials, alpha))
        index = int(np.argmax(values))
        if values[index] > best:
            best, threshold, swap = float(values[index]), float(candidates[index]), bool(turned)
    p, q = (-other, -under) if swap else (under, other)
    hits = [np.array([float((side[chosen:] > threshold).sum())]) for side in (p, q)]
    found = objective(lower_limit(hits[0], trials, alpha), upper_limit(hits[1], trials, alpha))
    return max(0.0, float(found[0]))


def mixture_log_ratio(y: Floats, rate: float, shifts: Floats) -> Floats:
    """ln p(y)/φ(y), p = (1 − rate) N(0, 1) + rate · mean_r N(shifts[r], 1).

    What one round of epoch batches shows of a record among others that are all alike, along the direction in which it
    differs from them (SPEC D4).
    """
    terms = [shift * y - shift * shift / 2 + np.log(rate / len(shifts)) for shift in shifts.tolist()]
    if rate < 1:
        terms.append(np.full_like(y, np.log1p(-rate)))
    return np.asarray(np.logaddexp.reduce(terms, axis=0))


def mixture_epsilon(rate: float, shifts: Floats, rounds: int, delta: float) -> float:
    """ε at δ of ``rounds`` independent observations of (1 − rate) N(0, 1) + rate · mean_r N(shifts[r], 1) against N(0, 1).

    A pair of neighbours that exists, so a lower bound on what any account may report. Privacy losses are rounded *down*
    to a grid, mass beyond 10 standard deviations is left out, and the convolution's rounding is far below δ.
    """
    span = float(shifts.max()) + _REACH
    edges = np.linspace(-span, span, 40001)
    # ln p/p' rises with y, so its value at a cell's left edge is the smallest in the cell.
    losses = mixture_log_ratio(edges[:-1], rate, shifts)
    weights, centres = [1 - rate, *[rate / len(shifts)] * len(shifts)], [0.0, *shifts.tolist()]
    masses = sum(w * np.diff(np.exp(log_ndtr(edges - c))) for w, c in zip(weights, centres))
    step = 2 * _GRID_LOSS / rounds
    cells = np.floor(losses / step).astype(np.int64)
    first = int(cells.min())
    total = _power(np.bincount(cells - first, weights=np.asarray(masses)).astype(np.float64), first, rounds)
    values = (total[1] + np.arange(len(total[0]))) * step

    def excess(epsilon: float) -> float:
        return float(total[0] @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - values, 0.0)))) - delta

    return float(brentq(excess, 0.0, float(values[-1]))) if excess(0.0) > 0 else 0.0


def _power(masses: Floats, first: int, rounds: int) -> tuple[Floats, int]:
    """The distribution of the sum of ``rounds`` draws, and the cell of its first mass; tails below 1e-13 are dropped."""
    result: tuple[Floats, int] | None = None
    base = _trimmed(masses, first)
    while True:
        if rounds & 1:
            result = base if result is None else _trimmed(fftconvolve(result[0], base[0]), result[1] + base[1])
        rounds >>= 1
        if not rounds:
            assert result is not None
            return result
        base = _trimmed(fftconvolve(base[0], base[0]), 2 * base[1])


def _trimmed(masses: Floats, first: int) -> tuple[Floats, int]:
    masses = np.maximum(masses, 0.0)
    kept = int(np.flatnonzero(np.cumsum(masses) > 1e-13)[0])
    last = len(masses) - int(np.flatnonzero(np.cumsum(masses[::-1]) > 1e-13)[0])
    return masses[kept:last], first + kept
