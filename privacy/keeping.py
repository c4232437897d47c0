"""Whether an account keeps a budget as a ledger would judge it, and how much more of something keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from .accountants import Accountant, by_unit
from .events import Event
from .filters import Filter, FilterKind

MOST_ROUNDS = 2**20
"""No more rounds than these are looked for; an account that still fits counts as endless."""
_ROUNDING = 1e-9
"""As in ``envelope``: a budget is passed only by more than this share of it."""

Keeps = Callable[[Mapping[Event, int]], bool]


def limit_of(budget: float) -> float:
    """The largest ε that counts as within ``budget``: an ε planned to equal it is."""
    return budget * (1 + _ROUNDING)


def keeper(filter: FilterKind | None, budget: float, delta: float, accountant: Accountant) -> Keeps:
    """The test of one budget: by ``filter`` where the ledger keeps one, else by the account of each unit."""
    if filter is not None:
        return Filter(filter, accountant, delta, np.array([budget])).holds
    limit = limit_of(budget)
    return lambda account: all(accountant.bound(part, delta) <= limit for part in by_unit(account).values())


def most_that_fit(fits: Callable[[int], bool]) -> float:
    """The largest n for which it fits, 0 if there is none; ``inf`` where more than ``MOST_ROUNDS`` do."""
    low, high = 0, 1
    while fits(high):
        if high > MOST_ROUNDS:
            return math.inf
        low, high = high, min(2 * high, MOST_ROUNDS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return float(low)
