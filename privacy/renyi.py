"""Accounts by moments of the privacy loss: ln E e^{tL} adds up over releases, whatever bounds each of them.

With t = α − 1, ln E e^{tL} = t·D_α for the Rényi divergence of order α. Every formula holds for all orders t > 0, so the
smallest ε over any set of them is valid, also where the search for the best one stops early.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from .events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent, PureEvent, ZcdpEvent
from .profiles import Floats

LogMoments = Callable[[Floats], Floats]
"""Orders t, shape [n], to upper bounds on ln E e^{tL}, shape [n]."""

_GRID: Floats = np.geomspace(1e-4, 1e9, 521)


def hoelder(orders: Floats) -> Floats:
    """(1 − e^{ε−l})₊ ≤ e^{t(l−ε)} t^t/(1+t)^{1+t}, so δ(ε) ≤ E e^{tL} · e^{−tε + this}, for each t of ``orders``.

    Canonne, Kamath & Steinke 2020, Proposition 12.
    """
    return np.asarray(orders * np.log(orders) - (1 + orders) * np.log1p(orders))


def closed_form(event: Event) -> bool:
    """Whether ``log_moment`` knows the event."""
    return isinstance(event, (GaussianEvent, PureEvent, LaplaceEvent, ZcdpEvent, ApproximateEvent))


def log_moment(event: Event, orders: Floats) -> Floats:
    """ln E e^{tL} of one release with noise at each t > 0, by its formula; infinite losses (δ) are not in it.

    Gaussian noise and ρ-zCDP: t(t+1)ρ (Bun & Steinke 2016); pure: that of randomised response, which dominates it;
    Laplace: Mironov 2017, Table II. Raises ValueError for another kind of event.
    """
    t = orders
    if isinstance(event, (GaussianEvent, ZcdpEvent)):
        return np.asarray(t * (t + 1) / (2 * event.noise_multiplier**2))
    if isinstance(event, (PureEvent, ApproximateEvent)):
        # The two losses ±ε have the chances 1/(1 + e^{∓ε}).
        likely = -math.log1p(math.exp(-event.epsilon))
        with np.errstate(over="ignore"):
            return np.asarray(np.logaddexp(t * event.epsilon + likely, -(t + 1) * event.epsilon + likely))
    if isinstance(event, LaplaceEvent):
        up = t * event.epsilon + np.log((t + 1) / (2 * t + 1))
        return np.asarray(np.logaddexp(up, -(t + 1) * event.epsilon + np.log(t / (2 * t + 1))))
    raise ValueError(f"no formula is known for the moments of an event of kind {event.kind!r}")


def epsilon(moments: LogMoments, delta: float) -> float:
    """The smallest ε ≥ 0 that some order proves at ``delta``, rounded up by 1e-12; ``inf`` for δ ≤ 0."""
    if delta <= 0:
        return math.inf
    return max(0.0, _smallest(lambda t: (moments(t) + hoelder(t) - math.log(delta)) / t)) * (1 + 1e-12)


def delta(moments: LogMoments, epsilon: float) -> float:
    """The smallest δ ≤ 1 that some order proves at ``epsilon`` ≥ 0."""
    return math.exp(min(0.0, _smallest(lambda t: moments(t) + hoelder(t) - t * epsilon)))


def _smallest(bound: Callable[[Floats], Floats]) -> float:
    """The smallest value over the orders: on a grid, and then between the neighbours of the best."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = bound(_GRID)
    values = np.where(np.isnan(values), np.inf, values)
    best = int(np.argmin(values))
    logs = np.log(_GRID[[max(best - 1, 0), min(best + 1, len(_GRID) - 1)]])
    with np.errstate(over="ignore", invalid="ignore"):
        found = minimize_scalar(
            lambda x: float(bound(np.array([math.exp(x)]))[0]),
            bounds=tuple(logs),
            method="bounded",
            options={"xatol": 1e-9},
        )
    return float(min(values[best], found.fun if not math.isnan(found.fun) else math.inf))
