"""What a client could still do: how many more rounds at this noise, and which noise for so many rounds.

Questions change nothing. Answers are about releases planned now and carried out as planned, and a budget holds for each
unit, as the ledger keeps it; with a ``filter`` (see ``filters``) they are about what that would let pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..errors import InvalidValue
from .accountants import Accountant, check_delta
from .events import Event
from .filters import FilterKind
from .keeping import MOST_ROUNDS, Keeps, keeper, most_that_fit
from .ledger import Ledger

_MOST_NOISE = 1e9
_NOISE_STEP = 1e-5


def rounds_left(
    account: Mapping[Event, int],
    event: Event,
    budget: float,
    delta: float,
    accountant: Accountant | None = None,
    filter: FilterKind | None = None,
) -> float:
    """How many more releases of ``event`` keep (``budget``, ``delta``), given what ``account`` holds already.

    0 where not one fits, ``inf`` where the budget is, and at most 2²⁰. Raises InvalidValue for a budget < 0 or a δ
    outside (0, 1); ValueError as the accountant does.
    """
    keeps = _keeper(budget, delta, accountant, filter)
    if math.isinf(budget):
        return math.inf
    return min(most_that_fit(lambda releases: keeps(_plus(account, event, releases))), MOST_ROUNDS)


def noise_for(
    account: Mapping[Event, int],
    event: Event,
    rounds: int,
    budget: float,
    delta: float,
    accountant: Accountant | None = None,
    filter: FilterKind | None = None,
) -> float:
    """The smallest noise multiplier (1e-5 of it above) at which ``rounds`` more releases of ``event`` keep the budget.

    The event's own noise multiplier is not looked at. 0 for no rounds or no budget; ``inf`` where no noise is enough,
    since the budget is spent. Raises as ``rounds_left``, and InvalidValue for rounds < 0.
    """
    if rounds < 0:
        raise InvalidValue("rounds", rounds, "give a whole number ≥ 0")
    keeps = _keeper(budget, delta, accountant, filter)
    if rounds == 0 or math.isinf(budget):
        return 0.0

    def enough(z: float) -> bool:
        return keeps(_plus(account, replace(event, noise_multiplier=z), rounds))

    if not keeps(account):
        return math.inf
    low, high = 1.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST_NOISE:
            return math.inf
    while low == high or enough(low):
        high, low = low, low / 2
        if low < 1e-9:
            return high
    while high > low * (1 + _NOISE_STEP):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _keeper(budget: float, delta: float, accountant: Accountant | None, filter: FilterKind | None) -> Keeps:
    check_delta(delta)
    if not budget >= 0:
        raise InvalidValue("budget", budget, "give a number ≥ 0")
    return keeper(filter, budget, delta, accountant or Accountant(rdp=False))


def _plus(account: Mapping[Event, int], event: Event, releases: int) -> dict[Event, int]:
    return {**account, event: account.get(event, 0) + releases}


def client_rounds_left(ledger: Ledger, client: int, event: Event, budget: float | None = None) -> float:
    """``rounds_left`` of one client of a ledger: at its own budget, or at another one.

    As the ledger judges it, by its filter where it has one. Raises as ``rounds_left``.
    """
    limit = float(ledger.budgets[ledger.client(client)]) if budget is None else budget
    return rounds_left(ledger.account(client), event, limit, ledger.delta, ledger.accountant, ledger.filter)


def client_noise_for(ledger: Ledger, client: int, event: Event, rounds: int, budget: float | None = None) -> float:
    """``noise_for`` of one client of a ledger: at its own budget, or at another one, as the ledger judges it."""
    limit = float(ledger.budgets[ledger.client(client)]) if budget is None else budget
    return noise_for(ledger.account(client), event, rounds, limit, ledger.delta, ledger.accountant, ledger.filter)
