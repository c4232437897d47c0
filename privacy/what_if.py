"""What a client could still do: how many more rounds at this noise, and which noise for so many rounds.

Questions change nothing. Answers are about releases planned now and carried out as planned, and a budget holds for each
unit, as the ledger keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..errors import InvalidValue
from .accountants import Accountant, by_unit, check_delta
from .events import Event
from .ledger import Ledger

_ROUNDING = 1e-9
"""As in ``envelope``: a budget is passed only by more than this share of it."""
_MOST_ROUNDS = 2**20
_MOST_NOISE = 1e9
_NOISE_STEP = 1e-5


def rounds_left(
    account: Mapping[Event, int], event: Event, budget: float, delta: float, accountant: Accountant | None = None
) -> float:
    """How many more releases of ``event`` keep (``budget``, ``delta``), given what ``account`` holds already.

    0 where not one fits, ``inf`` where the budget is, and at most 2²⁰. Raises InvalidValue for a budget < 0 or a δ
    outside (0, 1); ValueError as the accountant does.
    """
    fits = _test(account, budget, delta, accountant)
    if math.isinf(budget):
        return math.inf
    if not fits(event, 1):
        return 0
    good, bad = 1, 2
    while bad <= _MOST_ROUNDS and fits(event, bad):
        good, bad = bad, 2 * bad
    bad = min(bad, _MOST_ROUNDS + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(event, middle) else (good, middle)
    return good


def noise_for(
    account: Mapping[Event, int],
    event: Event,
    rounds: int,
    budget: float,
    delta: float,
    accountant: Accountant | None = None,
) -> float:
    """The smallest noise multiplier (1e-5 of it above) at which ``rounds`` more releases of ``event`` keep the budget.

    The event's own noise multiplier is not looked at. 0 for no rounds or no budget; ``inf`` where no noise is enough,
    since the budget is spent. Raises as ``rounds_left``, and InvalidValue for rounds < 0.
    """
    if rounds < 0:
        raise InvalidValue("rounds", rounds, "give a whole number ≥ 0")
    fits = _test(account, budget, delta, accountant)
    if rounds == 0 or math.isinf(budget):
        return 0.0

    def enough(z: float) -> bool:
        return fits(replace(event, noise_multiplier=z), rounds)

    if not enough(_MOST_NOISE):
        return math.inf
    low, high = 1.0, 1.0
    while not enough(high):
        low, high = high, min(2 * high, _MOST_NOISE)
    while low == high or enough(low):
        high, low = low, low / 2
        if low < 1e-9:
            return high
    while high > low * (1 + _NOISE_STEP):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


class _Test:
    """Whether so many more releases of an event still keep the budget."""

    def __init__(self, account: Mapping[Event, int], budget: float, delta: float, accountant: Accountant) -> None:
        self._account = account
        self._limit, self._delta, self._accountant = budget * (1 + _ROUNDING), delta, accountant

    def __call__(self, event: Event, releases: int) -> bool:
        after = dict(self._account)
        after[event] = after.get(event, 0) + releases
        return all(self._accountant.bound(part, self._delta) <= self._limit for part in by_unit(after).values())


def _test(account: Mapping[Event, int], budget: float, delta: float, accountant: Accountant | None) -> _Test:
    check_delta(delta)
    if not budget >= 0:
        raise InvalidValue("budget", budget, "give a number ≥ 0")
    return _Test(account, budget, delta, accountant or Accountant(rdp=False))


def client_rounds_left(ledger: Ledger, client: int, event: Event, budget: float | None = None) -> float:
    """``rounds_left`` of one client of a ledger: at its own budget, or at another one.

    For the next release that the ledger itself would grant, and under its filter where it has one, ask
    ``Ledger.remaining``.
    """
    limit = float(ledger.budgets[ledger.client(client)]) if budget is None else budget
    return rounds_left(ledger.account(client), event, limit, ledger.delta, ledger.accountant)


def client_noise_for(ledger: Ledger, client: int, event: Event, rounds: int, budget: float | None = None) -> float:
    """``noise_for`` of one client of a ledger: at its own budget, or at another one."""
    limit = float(ledger.budgets[ledger.client(client)]) if budget is None else budget
    return noise_for(ledger.account(client), event, rounds, limit, ledger.delta, ledger.accountant)
