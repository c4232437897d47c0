"""How much noise: from a budget to noise multipliers, and the coarse grid on which clients share events."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from ..errors import InvalidValue
from .accountants import Accountant, check_delta
from .events import EpochEvent, Event, IidEvent, IndependentEvent, SubsampledEvent
from .profiles import gaussian_delta, position_shares

__all__ = [
    "analytic_noise_multiplier",
    "classic_noise_multiplier",
    "coarsen",
    "contraction_margin",
    "gaussian_delta",
    "grid_contraction",
    "grid_rate",
    "noise_multiplier_for",
    "plan_noise",
]

_Z_STEP = math.log(1.001)
_RATE_STEP = math.log(1.02)
_MARGIN_STEP = math.log(1.001)
_CONTRACTION_STEP = 0.05
_SEARCH_TOLERANCE = 2e-3


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise InvalidValue("privacy.epsilon", epsilon, "give a finite number > 0")


def classic_noise_multiplier(epsilon: float, delta: float) -> float:
    """z = √(2 ln(1.25/δ))/ε for one Gaussian release (Dwork & Roth 2014, Theorem A.1), valid for ε ≤ 1.

    Raises InvalidValue for ε outside (0, 1], where the formula proves nothing, and for δ outside (0, 1).
    """
    _check_epsilon(epsilon)
    check_delta(delta, "privacy.delta")
    if epsilon > 1:
        cure = 'the classic calibration proves nothing above 1: set privacy.calibration="analytic"'
        raise InvalidValue("privacy.epsilon", epsilon, cure)
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def analytic_noise_multiplier(epsilon: float, delta: float) -> float:
    """The smallest z with δ_Gauss(ε; 1/z) ≤ δ for one Gaussian release (Balle & Wang 2018), rounded up by 1e-12.

    Raises InvalidValue for ε ≤ 0 and for δ outside (0, 1).
    """
    _check_epsilon(epsilon)
    check_delta(delta, "privacy.delta")

    def excess(log_mu: float) -> float:
        return float(gaussian_delta(epsilon, math.exp(log_mu))) - delta

    low, high = -1.0, 1.0
    while excess(low) > 0:
        low *= 2
    while excess(high) < 0:
        high *= 2
    z = math.exp(-brentq(excess, low, high, xtol=1e-13, rtol=1e-13)) * (1 + 1e-12)
    while gaussian_delta(epsilon, 1 / z) > delta:
        z *= 1 + 1e-12
    return z


def noise_multiplier_for(
    template: Mapping[Event, int], epsilon: float, delta: float, accountant: Accountant | None = None
) -> float:
    """The smallest common z at which the whole account costs at most (ε, δ).

    ``template`` gives the events and how often each is planned; their own noise multipliers are replaced. The answer is
    rounded up to the grid 1.001^k, so that clients with equal plans share their events, and checked there with the
    accountant's own grid: ``accountant.bound`` at it is at most ε, and z is at most 0.2 % above the smallest.
    An empty template needs no noise and gets 0.

    Raises InvalidValue for ε ≤ 0 and for δ outside (0, 1); ValueError as the accountant does.
    """
    _check_epsilon(epsilon)
    check_delta(delta, "privacy.delta")
    accountant = accountant or Accountant(rdp=False)
    plan = {event: count for event, count in template.items() if count}
    if not plan:
        return 0.0

    def overshoot(log_z: float, tolerance: float | None) -> float:
        events: dict[Event, int] = {}
        for event, count in plan.items():
            noised = replace(event, noise_multiplier=math.exp(log_z))
            events[noised] = events.get(noised, 0) + count
        loss = accountant.bound(events, delta, tolerance)
        return math.log(loss / epsilon) if loss > 0 else -20.0

    start, slope = _search(lambda x: overshoot(x, _SEARCH_TOLERANCE), _first_guess(plan, epsilon, delta))
    step = math.ceil(start / _Z_STEP)
    fits: int | None = None
    fails: int | None = None
    while fits is None or fails != fits - 1:
        over = overshoot(step * _Z_STEP, None)
        move = over / (slope * _Z_STEP)
        if over <= 0:
            fits = step
            if -move < 1:
                break
            step = max(step - max(1, math.floor(-move)), (fails if fails is not None else -(2**40)) + 1)
        else:
            fails = step
            step = min(step + max(1, math.ceil(move)), (fits if fits is not None else 2**40) - 1)
    return math.exp(fits * _Z_STEP)


def _first_guess(plan: Mapping[Event, int], epsilon: float, delta: float) -> float:
    """ln z if amplification were a factor of the rate; only where the search starts."""
    rates = {event: getattr(event, "rate", 1.0) for event in plan}
    hidden = math.sqrt(sum(count * rates[event] ** 2 for event, count in plan.items()))
    return math.log(max(hidden * analytic_noise_multiplier(epsilon, delta), 0.3))


def _search(overshoot: Callable[[float], float], start: float) -> tuple[float, float]:
    """A root of a falling function to 1e-3, and minus its slope there: secant steps, kept inside a bracket."""
    points = [(start, overshoot(start))]
    low, high = -math.inf, math.inf
    slope = 1.0
    for _ in range(60):
        x, y = points[-1]
        low, high = (x, high) if y > 0 else (low, x)
        if abs(y) < 1e-3 * max(1.0, slope) or high - low < 1e-4:
            break
        if len(points) > 1 and points[-2][0] != x:
            slope = min(max((points[-2][1] - y) / (x - points[-2][0]), 0.2), 50.0)
        guess = x + min(max(y / slope, -1.0), 1.0)
        if not low < guess < high:
            guess = (low + high) / 2
        points.append((guess, overshoot(guess)))
    return points[-1][0], slope


def plan_noise(
    templates: Sequence[Mapping[Event, int]], epsilon: float, delta: float, accountant: Accountant | None = None
) -> list[float]:
    """``noise_multiplier_for`` of each template (one per client), solved once per distinct template; raises as it."""
    accountant = accountant or Accountant(rdp=False)
    solved: dict[frozenset[tuple[Event, int]], float] = {}
    answers = []
    for template in templates:
        key = frozenset((event, count) for event, count in template.items() if count)
        if key not in solved:
            solved[key] = noise_multiplier_for(template, epsilon, delta, accountant)
        answers.append(solved[key])
    return answers


def grid_rate(rate: float) -> float:
    """The rate rounded up to 1.02^−k. Safe for every kind, since profiles rise with the rate; it costs at most about
    2 % of ε, 1 % on average."""
    k = math.ceil(math.log(rate) / _RATE_STEP - 1e-9)
    if math.exp(k * _RATE_STEP) < rate:
        k += 1
    return min(1.0, math.exp(k * _RATE_STEP))


def grid_contraction(contraction: float, steps: int) -> float:
    """κ rounded down to a multiple of 0.05/Q: valid as it is for an ``EpochEvent``, with a margin for the other kinds.

    The shifts of (D4) relative to the largest, s_r/s_1 = Σ_{k≤Q−r} κ^k / Σ_{k≤Q−1} κ^k, fall with κ for every κ ≥ 0, so
    a smaller κ can only raise the profile; it costs at most about 2 % of ε. An ``IndependentEvent`` needs the
    ``contraction_margin`` too: there a smaller κ lowers the share of the first batch.
    """
    spacing = _CONTRACTION_STEP / steps
    k = math.floor(contraction / spacing + 1e-9)
    if k * spacing > contraction:
        k -= 1
    return max(0, k) * spacing


def contraction_margin(steps: int, contraction: float, coarse: float) -> float:
    """The factor ≥ 1 on the sensitivity with which an ``IndependentEvent`` may state ``coarse`` for its contraction.

    With shares t_r/Σt of the batches, no set of batches weighs more than max_r share_r(κ)/share_r(coarse) times its
    weight at ``coarse``. Rounded up to 1.001^k.
    """
    ratio = float(np.max(position_shares(steps, contraction) / position_shares(steps, coarse)))
    return math.exp(math.ceil(math.log(max(ratio, 1.0)) / _MARGIN_STEP) * _MARGIN_STEP)


def coarsen(event: Event) -> Event:
    """An event on the coarse grid whose profile is nowhere below that of ``event``: rate up, contraction down, and for
    ``IndependentEvent`` a noise multiplier lowered by the margin."""
    if isinstance(event, EpochEvent):
        return replace(event, rate=grid_rate(event.rate), contraction=grid_contraction(event.contraction, event.steps))
    if isinstance(event, IndependentEvent):
        coarse = grid_contraction(event.contraction, event.steps)
        margin = contraction_margin(event.steps, event.contraction, coarse)
        return replace(
            event,
            rate=grid_rate(event.rate),
            contraction=coarse,
            noise_multiplier=event.noise_multiplier / margin,
        )
    if isinstance(event, (IidEvent, SubsampledEvent)):
        return replace(event, rate=grid_rate(event.rate))
    return event
