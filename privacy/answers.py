"""What the ledger answers to those who ask from outside: values that say what they are exact as of.

``round`` is the round of the last reservation that was not voided: a run reserves a round while the one before it goes
on, so the newest charge may belong to a round whose releases are still to come. ``transaction`` is the journal's last
entry. A budget is kept at the ledger's own δ; at another one it is not comparable, and NaN here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .events import Status, Unit
from .grants import Ints

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Spent:
    """What one client has spent. ``float(spent)`` is ε, which means little without ``status``.

    ``budget`` is the largest ε allowed, ``inf`` for none; ``account`` names the bound that gave ε, ``alternatives`` all
    bounds that were computed.
    """

    client: int
    epsilon: float
    delta: float
    status: Status
    unit: Unit
    account: str
    budget: float
    releases: int
    round: int
    transaction: int
    alternatives: Mapping[str, float] = field(default_factory=dict)

    def __float__(self) -> float:
        return self.epsilon


@dataclass(frozen=True)
class Summary:
    """The loss of a run: the largest ε and its ``client`` and ``account``, the median over clients, all releases."""

    epsilon: float
    median: float
    delta: float
    status: Status
    unit: Unit
    account: str
    client: int
    clients: int
    budget: float
    releases: int
    round: int
    transaction: int


@dataclass(frozen=True)
class Left:
    """What one client has left.

    ``epsilon``: of its budget, ``inf`` without one; ``participations``: of its cap, None without one; ``rounds``: how
    many more rounds like its last one both of them allow, ``inf`` without either, None before its first release.
    """

    client: int
    epsilon: float
    participations: int | None
    rounds: float | None
    delta: float
    status: Status
    round: int
    transaction: int


@dataclass(frozen=True)
class AccountTable:
    """What every client has spent, as arrays over accounts; a client has one account for each unit it was charged in.

    Attributes:
        round, transaction: the last reservation and the last entry of the journal that this is exact as of.
        delta: the δ of every ε.
        budget: the largest ε allowed at the ledger's own δ, ``inf`` for none, NaN where ``delta`` is another one.
        remaining: what is left of the budget; ``inf`` and NaN as there.
        account: the name of the bound that gave ε; status: ``"guaranteed"`` or ``"claimed"``; unit: what neighbours
            differ in.
        releases: releases charged; participations: reservations charged; last_round: the round of the last one that
            was not voided, −1 before the first.
    """

    round: int
    transaction: int
    delta: float
    client: Ints
    unit: np.ndarray
    epsilon: Floats
    budget: Floats
    remaining: Floats
    account: np.ndarray
    status: np.ndarray
    releases: Ints
    participations: Ints
    last_round: Ints

    @property
    def claimed(self) -> bool:
        """Whether any account rests on a bound that is claimed, not guaranteed."""
        return bool((self.status == "claimed").any())

    def of(self, client: int) -> AccountTable:
        """The rows of one client."""
        rows = self.client == client
        picked = {name: value[rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return AccountTable(self.round, self.transaction, self.delta, **picked)

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays by name, each of shape [accounts]: what a data frame takes."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class Outlook:
    """What more rounds would come to, as arrays over clients, if each took part in all of them.

    Attributes:
        noise: the noise multiplier of each further release (the smallest where a round has several), ``inf`` where no
            noise would do, NaN for a client that has not released yet: nothing is known then of what its rounds cost.
        rounds: how many more rounds; those that fit are at most what a cap leaves, ``inf`` without a budget and a cap;
            NaN as above.
        epsilon: ε after them, ``inf`` where they have no end, NaN where no noise would do.
        budget: the ε that they were fitted into or that the client has, ``inf`` for none.
    """

    round: int
    transaction: int
    delta: float
    client: Ints
    unit: np.ndarray
    status: np.ndarray
    noise: Floats
    rounds: Floats
    epsilon: Floats
    budget: Floats

    @property
    def claimed(self) -> bool:
        """Whether any bound is claimed, not guaranteed."""
        return bool((self.status == "claimed").any())

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays by name, each of shape [clients]: what a data frame takes."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
