"""What is known of a run at one moment. Every answer is made from one of these, and none is ever changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

State = Literal["running", "completed", "stopped", "exhausted", "failed", "lost", "unknown"]
"""``lost``: the run's process is gone without having ended it; ``unknown``: it runs elsewhere, and cannot be seen."""

OVER: frozenset[str] = frozenset({"completed", "stopped", "exhausted", "failed", "lost"})
"""States in which nothing more comes, unless the run is resumed."""

Condition = Literal["active", "spent", "lost", "failed", "late"]
CONDITIONS: tuple[Condition, ...] = ("active", "spent", "lost", "failed", "late")
"""``spent``: refused by the ledger; ``lost``, ``failed``, ``late``: in the last round in which it was to take part."""

Columns = Mapping[str, Sequence[float]]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Facts:
    """What a run is; fixed before its first round.

    Attributes:
        identity: tells this run from every other one.
        unit: what two neighbouring data sets differ in, ``record`` or ``client``.
        status: whether its ε is ``guaranteed`` or ``claimed``.
        mode: how its noise was chosen; ``none`` adds none.
        started: Unix time in seconds, NaN where unknown.
    """

    identity: str
    name: str
    method: str
    graph: bool
    engine: str
    clients: int
    rounds: int
    delta: float
    unit: str
    status: str
    mode: str
    noise: str
    folder: str
    started: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Happening:
    """Something that happened, in words, and the clients that it concerns."""

    number: int
    round: int
    wall: float
    kind: str
    clients: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Accounts:
    """Every account of every client; a client has one for each unit that it was charged in. Arrays of shape [A].

    Attributes:
        epsilon, budget: ``inf`` for no noise, and for no budget.
        account: the name of the bound that gave ε.
    """

    client: NDArray[np.int64]
    unit: Sequence[str]
    epsilon: Floats
    budget: Floats
    releases: NDArray[np.int64]
    account: Sequence[str]
    status: Sequence[str]

    @property
    def share(self) -> Floats:
        """ε over budget; NaN where there is no budget or no noise."""
        known = np.isfinite(self.budget) & np.isfinite(self.epsilon)
        share = np.full(len(self.epsilon), np.nan)
        share[known] = self.epsilon[known] / np.maximum(self.budget[known], 1e-300)
        return share

    @property
    def remaining(self) -> Floats:
        """What is left of each budget; ``inf`` where there is none."""
        return np.where(np.isinf(self.budget), np.inf, np.maximum(self.budget - np.minimum(self.epsilon, 1e300), 0.0))


@dataclass(frozen=True)
class Board:
    """A run as of one moment.

    Attributes:
        version: rises with every change, and so do ``versions`` of the parts: accounts, series, events.
        note: one sentence on how the run stands.
        done: rounds that are complete.
        exact_round: the round of the last charge that every ε here includes; −1 before the first.
        seen: when the run was last read, Unix time in seconds.
        condition: positions in ``CONDITIONS``, by client, shape [N].
        metrics, diagnostics, timing: columns; ``diagnostics`` are computed from private data.
        counters: how often what happened.
    """

    version: int
    versions: Mapping[str, int]
    facts: Facts
    state: State
    note: str
    done: int
    exact_round: int
    seen: float
    accounts: Accounts
    condition: NDArray[np.int8]
    metrics: Columns = field(default_factory=dict)
    diagnostics: Columns = field(default_factory=dict)
    timing: Columns = field(default_factory=dict)
    happenings: Sequence[Happening] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def by_client(self, values: Floats) -> Floats:
        """The largest of each client's accounts, shape [N]; NaN where it has none."""
        found = np.full(self.facts.clients, -np.inf)
        known = ~np.isnan(values)
        np.maximum.at(found, self.accounts.client[known], values[known])
        return np.where(found == -np.inf, np.nan, found)
