"""What if: ε after more rounds, how many rounds still fit, and which noise would make them fit.

A client's further rounds are taken to be like its last one, with the noise that is asked about. Every ε is the
accountant's upper bound for what was spent and what would come, composed together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..errors import InvalidValue
from .accountants import Accountant, account_for, check_delta
from .answers import Floats, Outlook
from .events import Event
from .filters import FilterKind
from .grants import Ints
from .keeping import MOST_ROUNDS, Keeps, keeper, limit_of, most_that_fit
from .replica import Replica, distinct_rows

_NOISE_STEP = math.log(1.001)
_MOST_NOISE = 1e9


@dataclass(frozen=True)
class Question:
    """At most two of the three; the third is what is asked for. Without ``noise`` it is that of the last round, without
    ``budget`` each client's own.

    Raises:
        InvalidValue: a value out of range, or all three.
    """

    rounds: int | None = None
    noise: float | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.rounds is not None and not (0 <= self.rounds <= MOST_ROUNDS and self.rounds == int(self.rounds)):
            raise InvalidValue("rounds", self.rounds, f"give a whole number from 0 to {MOST_ROUNDS}")
        if self.noise is not None and not 0 < self.noise < math.inf:
            raise InvalidValue("noise", self.noise, "give a noise multiplier, a finite number above 0")
        if self.budget is not None and not 0 < self.budget < math.inf:
            raise InvalidValue("budget", self.budget, "give an ε, a finite number above 0")
        if None not in (self.rounds, self.noise, self.budget):
            raise InvalidValue("budget", self.budget, "rounds and noise decide ε already; leave one of the three out")


@dataclass(frozen=True)
class Standing:
    """What the clients' accounts are at one moment: copied, so that it can be looked at while the ledger goes on.

    ``table`` and ``latest`` [C, E]: releases so far and in the last round; ``budgets`` [C] at the ledger's own ``kept``;
    ``free`` [C]: participations left of the caps, or None; ``filter``: what keeps the budgets where it is not the account.
    """

    clients: Ints
    events: list[Event]
    table: Ints
    latest: Ints
    budgets: Floats
    free: Ints | None
    kept: float
    round: int
    transaction: int
    filter: FilterKind | None = None

    @staticmethod
    def of(replica: Replica, client: int | None = None) -> Standing:
        """Of one client, or of all."""
        chosen = np.arange(replica.n_clients) if client is None else np.array([client])
        return Standing(
            chosen,
            list(replica.events),
            replica.counts[chosen],
            replica.latest_counts()[chosen],
            replica.budgets[chosen],
            None if replica.caps is None else np.maximum(replica.caps - replica.participations, 0)[chosen],
            replica.delta,
            replica.round,
            replica.transaction,
            replica.filter,
        )


def outlook(standing: Standing, question: Question, delta: float | None = None) -> Outlook:
    """The answer for every client of ``standing`` at ``delta``, by default the ledger's own.

    Where the ledger keeps a filter, the rounds that fit and the noise are those that the filter would let pass with the
    budget; ``epsilon`` is the account of what is released by then, which is at most that.

    Raises InvalidValue: δ out of range, or without a budget that holds at this δ where one is needed.
    """
    at = standing.kept if delta is None else check_delta(delta)
    budgets = _budgets(standing, question, at)
    accountant = Accountant(rdp=False)
    # Budgets enter the grouping by their bits: equal accounts with equal limits have equal answers.
    limits = [budgets.view(np.int64)] if standing.free is None else [budgets.view(np.int64), standing.free]
    rows, place = distinct_rows(np.column_stack([standing.table, standing.latest, *limits]))
    found = [_answer(standing, row, question, at, accountant) for row in rows]
    noise, rounds, epsilon = (np.array(values)[place] for values in zip(*(answer[:3] for answer in found)))
    return Outlook(
        round=standing.round,
        transaction=standing.transaction,
        delta=at,
        client=standing.clients,
        unit=np.array([answer[3] for answer in found])[place],
        status=np.array([answer[4] for answer in found])[place],
        noise=noise,
        rounds=rounds,
        epsilon=epsilon,
        budget=budgets,
    )


def _budgets(standing: Standing, question: Question, delta: float) -> Floats:
    if question.budget is not None:
        return np.full(len(standing.clients), float(question.budget))
    if delta == standing.kept:
        return standing.budgets.copy()
    if question.rounds is None:
        raise InvalidValue("delta", delta, f"the run's budgets hold at δ = {standing.kept:g}; give a budget for this δ")
    return np.full(len(standing.clients), np.nan)


def _answer(
    standing: Standing, row: Ints, question: Question, delta: float, accountant: Accountant
) -> tuple[float, float, float, str, str]:
    """(noise, rounds, ε, unit, status) of one distinct account; the row is [2E + 1] or, where there are caps, [2E + 2]:
    releases, last round, budget, participations left."""
    events, size = standing.events, len(standing.events)
    spent = {events[e]: int(row[e]) for e in np.flatnonzero(row[:size])}
    last = {events[e]: int(row[size + e]) for e in np.flatnonzero(row[size : 2 * size])}
    if len({event.unit for event in (*spent, *last)}) > 1:  # all of them count for a record, which decides then
        spent, last = account_for(spent, "record"), account_for(last, "record")
    budget = float(row[2 * size : 2 * size + 1].view(np.float64)[0])
    free = math.inf if standing.free is None else float(row[2 * size + 1])
    now = accountant.epsilon(spent, delta)
    if not last:
        return math.nan, math.nan, now.epsilon, now.unit, now.status
    unit = next(iter(last)).unit
    status = "claimed" if any(event.status == "claimed" for event in (*spent, *last)) else "guaranteed"
    noise = _smallest(last)
    more = last if question.noise is None else with_noise(last, question.noise)
    rounds = question.rounds
    if rounds is not None and question.budget is not None:
        noise = noise_that_fits(spent, last, rounds, keeper(standing.filter, budget, delta, accountant))
        more = with_noise(last, noise) if 0 < noise < math.inf else {}
    elif question.noise is not None:
        noise = question.noise

    def after(count: int) -> float:
        return accountant.bound(_plus(spent, more, count), delta)

    if rounds is not None:
        fits = float(rounds)
    elif standing.filter is None:
        fits = min(rounds_that_fit(after, budget), free)
    elif math.isinf(budget):
        fits = free
    else:
        keeps = keeper(standing.filter, budget, delta, accountant)
        fits = min(most_that_fit(lambda count: keeps(_plus(spent, more, count))), free)
    reached = math.nan if not more else after(int(fits)) if math.isfinite(fits) else math.inf
    return noise, fits, max(reached, now.epsilon), unit, status


def rounds_that_fit(after: Callable[[int], float], budget: float) -> float:
    """The largest n with after(n) ≤ budget, 0 if there is none; ``inf`` where more than ``MOST_ROUNDS`` fit.

    ``after`` must not fall. Doubling, then interpolation that halves the bracket every other time.
    """
    limit = limit_of(budget)
    if math.isinf(budget):
        return math.inf
    low, low_value = 0, after(0)
    high, high_value = 1, after(1)
    while high_value <= limit:
        low, low_value = high, high_value
        if high > MOST_ROUNDS:
            return math.inf
        high = min(2 * high, MOST_ROUNDS + 1)
        high_value = after(high)
    halve = False
    while high - low > 1:
        share = 0.5 if halve or math.isinf(high_value) else (limit - low_value) / max(high_value - low_value, 1e-300)
        middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
        value = after(middle)
        if value <= limit:
            low, low_value = middle, value
        else:
            high, high_value = middle, value
        halve = not halve
    return float(low)


def noise_that_fits(spent: Mapping[Event, int], last: Mapping[Event, int], rounds: int, keeps: Keeps) -> float:
    """The smallest noise multiplier, rounded up to 1.001^k, at which ``rounds`` more rounds like ``last`` keep the budget.

    ``inf`` where what was spent leaves no room, or next to none; the present noise where no further round is asked for.
    """
    if not rounds:
        return _smallest(last)

    def fits(step: int) -> bool:
        return keeps(_plus(spent, with_noise(last, math.exp(step * _NOISE_STEP)), rounds))

    if not keeps(spent):
        return math.inf
    last_step = math.ceil(math.log(_MOST_NOISE) / _NOISE_STEP)
    step = math.ceil(math.log(max(_smallest(last), 1e-3)) / _NOISE_STEP)
    stride = 64
    if fits(step):
        good, bad = step, step - stride
        while fits(bad):
            good, stride = bad, 2 * stride
            bad -= stride
    else:
        bad, good = step, step + stride
        while not fits(good):
            bad, stride = good, 2 * stride
            good += stride
            if good > last_step:
                return math.inf
    while good - bad > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return math.exp(good * _NOISE_STEP)


def with_noise(last: Mapping[Event, int], noise: float) -> dict[Event, int]:
    """The releases of a round with their noise scaled so that the smallest multiplier is ``noise``.

    Raises InvalidValue where a release has no Gaussian noise to scale.
    """
    smallest = _smallest(last)
    if not smallest > 0:
        raise InvalidValue("noise", noise, "the last releases had no Gaussian noise, so there is none to change")
    scaled: dict[Event, int] = {}
    for event, count in last.items():
        noised = replace(event, noise_multiplier=event.noise_multiplier * (noise / smallest))
        scaled[noised] = scaled.get(noised, 0) + count
    return scaled


def _smallest(last: Mapping[Event, int]) -> float:
    return min(event.noise_multiplier for event in last)


def _plus(spent: Mapping[Event, int], more: Mapping[Event, int], rounds: int) -> dict[Event, int]:
    total = dict(spent)
    for event, count in more.items():
        total[event] = total.get(event, 0) + rounds * count
    return total
