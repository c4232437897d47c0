"""What the ledger hands out and reads back: grants, refusals, charges and what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
