"""A ledger read from its journal while another process writes it: every answer is exact as of a committed charge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .accountants import Accountant, Epsilon, check_delta
from .answers import AccountTable
from .events import Event
from .grants import Charge, Ints
from .journal import Transaction
from .ledger import Floats, Ledger


class Replica(Ledger):
    """A read-only ledger; ``refresh`` takes in what was written since. Open it with ``Replica.open``. Not thread-safe."""

    @classmethod
    def open(cls, path: Path | str, accountant: Accountant | None = None) -> Replica:
        """The ledger as of the newest transaction. Raises JournalDamaged."""
        replica = cls.open_readonly(path, accountant)
        assert isinstance(replica, Replica)
        replica._settle()
        return replica

    def _begin(self, path: Path | str, facts: Mapping[str, Any], accountant: Accountant | None) -> None:
        super()._begin(path, facts, accountant)
        self.last_round: Ints = np.full(self.n_clients, -1, np.int64)
        self._latest: Ints = np.zeros_like(self._table)
        self._void_seen = False

    def _widen(self, columns: int) -> None:
        super()._widen(columns)
        if self._table.shape[1] > self._latest.shape[1]:
            wider = np.zeros_like(self._table)
            wider[:, : self._latest.shape[1]] = self._latest
            self._latest = wider

    def _charge(self, clients: Ints, events: Ints, round: int) -> None:
        super()._charge(clients, events, round)
        self.last_round[clients] = round
        self._latest[clients] = 0
        np.add.at(self._latest, (clients, events), 1)

    def _discharge(self, clients: Ints, numbers: Ints, events: Ints) -> None:
        super()._discharge(clients, numbers, events)
        self._void_seen = True

    def refresh(self) -> bool:
        """Take in what was written since; whether there was anything. Raises JournalDamaged."""
        before = self._journal.last_seq
        fresh: list[Transaction] = list(self._journal.fresh())
        if self._journal.last_seq == before:
            return False
        known = len(self.events)
        for entry in fresh:
            self._replay(entry)
        if any(entry.kind == "note" for entry in fresh):
            self._adopt(self._journal.events()[known:])
        self._settle()
        return True

    def _settle(self) -> None:
        """After a void, find again which reservation was the last of each client, and of all."""
        if not self._void_seen:
            return
        self._void_seen = False
        self.last_round[:] = -1
        self.round = -1
        newest = -1
        for client, round, seq in self._journal.last_charges():
            self.last_round[client] = round
            if seq > newest:
                newest, self.round = seq, round

    @property
    def transaction(self) -> int:
        """The last entry of the journal that answers are exact as of."""
        return self._journal.last_seq

    def latest(self, client: int) -> dict[Event, int]:
        """What the client was charged for in its last reservation, voided or not: its releases of one round."""
        return self._as_account(self._latest[self.client(client)])

    def latest_counts(self) -> Ints:
        """The same for all clients, shape [n_clients, len(events)]; a copy."""
        return self._latest[:, : len(self.events)].copy()

    def charges(self, client: int | None = None, since: int = -1) -> list[Charge]:
        """The charges after transaction ``since``, of one client or of all, in order; the chain was checked when they
        were taken in."""
        return [
            Charge(round, who, number, self.events[event], wall, voided)
            for round, who, number, event, wall, voided in self._journal.charges_since(since, client)
        ]

    def entries(self, since: int = -1) -> Iterator[Transaction]:
        """The journal's entries after transaction ``since``."""
        return self._journal.after(since)

    def losses(self, delta: float | None = None) -> tuple[list[Epsilon], Ints]:
        """The losses of the distinct accounts at ``delta``, and the account of each client, shape [n_clients]."""
        delta = self.delta if delta is None else check_delta(delta)
        rows, account_of = distinct_rows(self._table[:, : len(self.events)])
        return [self._loss(row, delta) for row in rows], account_of

    def table(self, delta: float | None = None) -> AccountTable:
        """What all clients have spent at ``delta``, by default the ledger's own. Raises InvalidValue for δ out of range."""
        delta = self.delta if delta is None else check_delta(delta)
        found, account_of = self.losses(delta)
        epsilon = self._not_below(delta, np.array([loss.epsilon for loss in found])[account_of])
        budget = self.budgets.copy() if delta == self.delta else np.full(self.n_clients, np.nan)
        remaining = budget.copy()
        kept = np.isfinite(budget)
        remaining[kept] = np.maximum(budget[kept] - epsilon[kept], 0.0)
        return AccountTable(
            round=self.round,
            transaction=self.transaction,
            delta=delta,
            client=np.arange(self.n_clients),
            unit=np.array([loss.unit for loss in found])[account_of],
            epsilon=epsilon,
            budget=budget,
            remaining=remaining,
            account=np.array([loss.account for loss in found])[account_of],
            status=np.array([loss.status for loss in found])[account_of],
            releases=self._table.sum(axis=1),
            participations=self.participations,
            last_round=self.last_round.copy(),
        )

    def _not_below(self, delta: float, epsilon: Floats) -> Floats:
        """ε as shown before where that was more: two grids may differ in the fifth digit, and both are upper bounds."""
        floor = self._shown.at(delta)
        np.maximum(floor, epsilon, out=floor)
        return floor.copy()


def distinct_rows(table: Ints) -> tuple[Ints, Ints]:
    """The distinct rows of ``[N, E]`` and, for each row, which of them it is, ``[N]``: quick where few are distinct."""
    if not table.shape[1]:
        return table[:1], np.zeros(len(table), np.int64)
    # Rows are told apart by a random weighted sum, and then compared for real.
    weights = np.random.Generator(np.random.Philox(0)).integers(-(2**62), 2**62, table.shape[1])
    _, first, place = np.unique(table @ weights, return_index=True, return_inverse=True)
    if np.array_equal(table[first][place], table):
        return table[first], place
    rows, place = np.unique(table, axis=0, return_inverse=True)
    return rows, place.reshape(-1)
