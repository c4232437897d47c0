"""What the ledger hands out and reads back: grants, refusals, charges and what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidValue
from .events import Event

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Grants:
    """Permissions to release once each, in the order asked for; the arrays have shape [n].

    ``numbers`` counts each client's grants 0, 1, 2, … over the whole run; ``events`` are positions in
    ``Ledger.events``; ``transaction`` is the journal's entry, −1 where nothing was granted.
    """

    round: int
    clients: Ints
    numbers: Ints
    events: Ints
    transaction: int = -1

    def __len__(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Refusal:
    """Why a client may not take part in a round."""

    client: int
    round: int
    reason: str


@dataclass(frozen=True)
class Charge:
    """One line of the history. ``wall`` is the Unix time in seconds at which it was written."""

    round: int
    client: int
    number: int
    event: Event
    wall: float
    voided: bool


@dataclass(frozen=True)
class Remaining:
    """What a client has left: ε (``inf`` without a budget), participations (``None`` without a cap), and, if an event
    was named, how many releases of it still fit (``inf`` without a budget)."""

    epsilon: float
    participations: int | None
    releases: float | None


def ranks(values: Ints) -> Ints:
    """How often the value at each place occurred before it: [5, 7, 5, 5] gives [0, 0, 1, 2]."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(values) else order
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return ranks


def per_client(values: ArrayLike, n_clients: int, field: str) -> NDArray[np.float64]:
    """One positive number per client. Raises InvalidValue."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (n_clients,):
        raise InvalidValue(field, f"{numbers.shape}", f"give one number for each of the {n_clients} clients")
    if not (numbers >= 0).all():
        bad = numbers[~(numbers >= 0)][0]
        raise InvalidValue(field, float(bad), "give numbers ≥ 0")
    return numbers
