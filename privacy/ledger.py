"""Who was charged for what, and what it comes to. The one place that grants permission to release.

Every charge is on disk before ``reserve`` returns (see ``journal``), so a crash can only overstate the loss. A grant
number is never used twice, also not after a void or a restart: noise keyed by it is never repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidValue
from .accountants import Accountant, Epsilon, account_for, by_unit, check_delta
from .envelope import Envelope
from .events import Event, Unit
from .filters import Filter, FilterKind
from .grants import Charge, Grants, Ints, Refusal, Remaining, per_client, ranks
from .journal import Journal, JournalDamaged, Transaction
from .shown import Shown

__all__ = ["Charge", "Grants", "Ledger", "Refusal", "Remaining"]

Floats = NDArray[np.float64]


class Ledger:
    """Creates the journal at ``path``, or reopens the one that is there and goes on from it.

    Args:
        path: the SQLite file.
        n_clients: clients are 0 … n_clients − 1.
        delta: the δ at which budgets are kept.
        budgets: the largest ε per client at ``delta``, shape [n_clients], ``inf`` for none; None for no budgets.
        caps: the largest number of participations per client, shape [n_clients]; None for no caps. A reservation is
            one participation of each client in it, however many charges it holds.
        meta: further facts of the run, as JSON values, kept in the journal.
        accountant: computes ε; by default without the RDP account.
        filter: keeps the budgets by this filter, for events that are chosen by what was released (see ``filters``); by
            default by the exact account, for events that were planned beforehand.

    Raises:
        InvalidValue: δ, budgets or caps out of range, or other than those the journal was made with.
        JournalDamaged, JournalUnwritable: see ``Journal.open``.

    Not thread-safe. Queries change nothing.
    """

    def __init__(
        self,
        path: Path | str,
        n_clients: int,
        *,
        delta: float,
        budgets: ArrayLike | None = None,
        caps: ArrayLike | None = None,
        meta: Mapping[str, Any] | None = None,
        accountant: Accountant | None = None,
        filter: FilterKind | None = None,
    ) -> None:
        facts: dict[str, Any] = {
            "n_clients": int(n_clients),
            "delta": check_delta(float(delta), "privacy.delta"),
            "budgets": None if budgets is None else per_client(budgets, n_clients, "privacy.budget").tolist(),
            "caps": None if caps is None else per_client(caps, n_clients, "caps").astype(np.int64).tolist(),
            "filter": filter,
        }
        self._begin(path, facts, accountant)
        self._journal = Journal.open(path, {**(meta or {}), **facts}, self._replay)
        self._finish(facts)

    @classmethod
    def open_readonly(cls, path: Path | str, accountant: Accountant | None = None) -> Ledger:
        """The ledger as of the newest transaction, for queries only, also while another process writes it."""
        ledger = cls.__new__(cls)
        with Journal.open_readonly(path) as journal:
            facts = {key: journal.meta.get(key) for key in ("n_clients", "delta", "budgets", "caps", "filter")}
        ledger._begin(path, facts, accountant)
        ledger._journal = Journal.open_readonly(path, ledger._replay)
        ledger._finish(facts)
        return ledger

    def _begin(self, path: Path | str, facts: Mapping[str, Any], accountant: Accountant | None) -> None:
        self.path = Path(path)
        n = facts["n_clients"]
        self.n_clients: int = n
        self.delta: float = facts["delta"]
        self.budgets: Floats = np.full(n, np.inf) if facts["budgets"] is None else np.array(facts["budgets"], float)
        self.caps: Ints | None = None if facts["caps"] is None else np.array(facts["caps"], np.int64)
        self.round = -1
        """The round of the last reservation: what queries are exact as of."""
        self.events: list[Event] = []
        self.accountant = accountant or Accountant(rdp=False)
        self._envelope: Envelope | Filter = Envelope(self.accountant, self.delta, self.budgets)
        self.filter: FilterKind | None = facts["filter"]
        if self.filter is not None:
            self._envelope = Filter(self.filter, self.accountant, self.delta, self.budgets)
        self._table: Ints = np.zeros((n, 8), np.int64)
        self._granted: Ints = np.zeros(n, np.int64)
        self._joined: Ints = np.zeros(n, np.int64)
        self._voided: set[tuple[int, int]] = set()
        self._known: dict[tuple[bytes, float, Unit | None], Epsilon] = {}
        self._shown = Shown(n)

    def _finish(self, facts: Mapping[str, Any]) -> None:
        for name, value in facts.items():
            if self._journal.meta.get(name) != value:
                self._journal.close()
                raise InvalidValue(
                    f"ledger.{name}",
                    value if not isinstance(value, list) else f"{len(value)} numbers",
                    "the journal was made with another one; resume with the same settings, or start a new run",
                )
        self._adopt(self._journal.events())

    def _replay(self, entry: Transaction) -> None:
        if not len(entry.rows):
            return
        clients, numbers, events = entry.rows.T
        if clients.min() < 0 or clients.max() >= self.n_clients or events.min() < 0:
            raise JournalDamaged(self.path, "it charges a client or an event that does not exist", entry.seq)
        self._widen(int(events.max()) + 1)
        if entry.kind == "reserve":
            if not np.array_equal(numbers, self._granted[clients] + ranks(clients)):
                raise JournalDamaged(self.path, "grant numbers do not follow each other", entry.seq)
            self._charge(clients, events, entry.round)
        elif entry.kind == "void":
            self._discharge(clients, numbers, events)

    @property
    def meta(self) -> dict[str, Any]:
        """The facts that the journal was made with."""
        return dict(self._journal.meta)

    @property
    def position(self) -> dict[str, Any]:
        """Where its journal stands: the last transaction and its chain digest."""
        return self._journal.position

    @property
    def counts(self) -> Ints:
        """Releases charged per client and event, shape [n_clients, len(events)]; a copy."""
        return self._table[:, : len(self.events)].copy()

    @property
    def participations(self) -> Ints:
        """Reservations charged and not voided, per client, shape [n_clients]; a copy."""
        return self._joined.copy()

    def close(self) -> None:
        self._journal.close()

    def register(self, events: Sequence[Event]) -> Ints:
        """The positions of the events in ``events``, adding those that are new; asking again changes nothing.

        Raises JournalUnwritable.
        """
        ids = self._journal.register(events)
        new = {id: event for id, event in zip(ids, events) if id >= len(self.events)}
        self._adopt([new[id] for id in sorted(new)])
        return np.array(ids, dtype=np.int64)

    def certify(self, planned: ArrayLike) -> NDArray[np.bool_]:
        """Check each client's planned counts, shape [n_clients, len(events)], against its budget, once for all.

        Reservations within a plan that passed need no further check. False where a plan passes the budget.
        """
        plan = np.asarray(planned, dtype=np.int64)
        if plan.shape != (self.n_clients, len(self.events)) or (plan < 0).any():
            raise ValueError(f"planned counts must be whole numbers ≥ 0 of shape {(self.n_clients, len(self.events))}")
        return self._envelope.certify(plan)

    def reserve(self, round: int, clients: ArrayLike, events: ArrayLike) -> tuple[Grants, list[Refusal]]:
        """Charge each client for one release of its event, on disk when this returns; refuse what would pass a limit.

        Args:
            round: the round.
            clients: shape [n]; a client that releases several times occurs several times, and gets all or nothing.
            events: positions in ``events``, shape [n], or one for all.

        Raises:
            JournalUnwritable: nothing was charged, nothing may be released.
            ValueError: an unknown client or event.
        """
        who = np.atleast_1d(np.asarray(clients, dtype=np.int64))
        what = np.broadcast_to(np.asarray(events, dtype=np.int64), who.shape)
        if len(who) and (who.min() < 0 or who.max() >= self.n_clients):
            raise ValueError(f"clients must lie between 0 and {self.n_clients - 1}")
        if len(who) and (what.min() < 0 or what.max() >= len(self.events)):
            raise ValueError("an event was not registered")
        distinct, place = np.unique(who, return_inverse=True)
        growth = np.zeros((len(distinct), len(self.events)), np.int64)
        np.add.at(growth, (place, what), 1)
        free = np.ones(len(distinct), bool) if self.caps is None else self._joined[distinct] < self.caps[distinct]
        good = free.copy()
        accounts = self._table[distinct[free], : len(self.events)] + growth[free]
        good[free] = self._envelope.admits(distinct[free], accounts, growth[free])
        refusals = [
            Refusal(int(distinct[k]), round, self._reason(int(distinct[k]), bool(free[k])))
            for k in np.flatnonzero(~good)
        ]
        granted = good[place]
        who, what = who[granted], what[granted].copy()
        if not len(who):
            return Grants(round, who, who.copy(), what), refusals
        numbers = self._granted[who] + ranks(who)
        seq = self._journal.append("reserve", round, np.stack([who, numbers, what], axis=1))
        self._charge(who, what, round)
        return Grants(round, who, numbers, what, seq), refusals

    def void(self, grants: Grants) -> None:
        """Take back grants that were never sent to a host: all those of a reservation, or all of some of its clients.

        Their numbers stay used. Raises ValueError, before anything changes, for grants that are not in the journal,
        were voided before, or are a part of what their client got; JournalUnwritable.
        """
        if not len(grants):
            return
        written = self._journal.charges_of(grants.transaction)
        rows = np.stack([grants.clients, grants.numbers, grants.events], axis=1)
        expected = written[np.isin(written[:, 0], grants.clients)]
        if sorted(map(tuple, rows.tolist())) != sorted(map(tuple, expected.tolist())):
            raise ValueError("these grants are not what the journal holds, or not all that a client got")
        if any((client, number) in self._voided for client, number, _ in rows.tolist()):
            raise ValueError("a grant can be voided only once")
        self._journal.append("void", grants.round, rows, json.dumps({"of": grants.transaction}))
        self._discharge(grants.clients, grants.numbers, grants.events)

    def account(self, client: int) -> dict[Event, int]:
        """How often the client was charged for each event."""
        return self._as_account(self._table[self.client(client)])

    def epsilon(
        self, clients: int | Iterable[int] | None = None, delta: float | None = None, unit: Unit | None = None
    ) -> list[Epsilon]:
        """The loss of the given clients (all of them by default) at ``delta`` (the ledger's own by default).

        A client that made releases of both units has an account of each: that for a record holds all of them, that for
        the whole data set only those that protect it (see ``account_for``). ``unit`` chooses one, and without it the
        larger of the two is reported, with its unit. Computed once per distinct account and
        remembered. Never below what was shown for the client before, except after a void. Raises InvalidValue for a δ
        outside (0, 1).
        """
        delta = self.delta if delta is None else check_delta(delta)
        chosen = self._chosen(clients)
        accounts, account_of = np.unique(self._table[chosen], axis=0, return_inverse=True)
        losses = [self._loss(row, delta, unit) for row in accounts]
        shown = self._shown.at(delta, unit)
        answers = []
        for client, index in zip(chosen.tolist(), account_of.reshape(-1).tolist()):
            found = losses[index]
            # Two grids may differ in the fifth digit; both are upper bounds.
            if found.epsilon < shown[client]:
                found = replace(found, epsilon=float(shown[client]))
            shown[client] = found.epsilon
            answers.append(found)
        return answers

    def summary(self, delta: float | None = None) -> dict[str, Any]:
        """The loss of the run.

        Keys: ``max`` and ``median`` ε over clients, ``per_client`` (shape [n_clients]), ``client`` and ``account`` of
        the largest, its ``alternatives`` (with RDP), ``status`` (claimed if any client's is), ``unit``, ``delta``,
        ``releases`` in all, and the ``round`` that all this is exact as of (−1 before the first).
        """
        losses = self.epsilon(delta=delta)
        values = np.array([loss.epsilon for loss in losses])
        worst = int(np.argmax(values))
        full = Accountant(tolerance=self.accountant.tolerance).epsilon(
            account_for(self.account(worst), losses[worst].unit), self.delta if delta is None else delta
        )
        return {
            "delta": self.delta if delta is None else delta,
            "max": float(values[worst]),
            "median": float(np.median(values)),
            "per_client": values,
            "client": worst,
            "account": losses[worst].account,
            "alternatives": dict(full.alternatives),
            "status": "claimed" if any(loss.status == "claimed" for loss in losses) else "guaranteed",
            "unit": losses[worst].unit,
            "releases": int(self._table.sum()),
            "round": self.round,
        }

    def remaining(self, client: int, event: Event | None = None) -> Remaining:
        """What the client has left, and how many releases of ``event`` (a registered one) still fit."""
        client = self.client(client)
        left = float(self.budgets[client])
        if np.isfinite(left):
            left = max(0.0, left - self.epsilon(client)[0].epsilon)
        releases = None
        if event is not None:
            growth = np.zeros(len(self.events), np.int64)
            growth[self.events.index(event)] = 1
            releases = self._envelope.releases_left(client, self._table[client, : len(self.events)], growth)
        free = None if self.caps is None else max(0, int(self.caps[client] - self._joined[client]))
        return Remaining(left, free, releases)

    def what_if(
        self, event: Event, releases: int, clients: int | Iterable[int] | None = None, delta: float | None = None
    ) -> list[Epsilon]:
        """The loss of the clients (all by default) after ``releases`` more of ``event``, registered or not, in its unit."""
        delta = self.delta if delta is None else check_delta(delta)
        known: dict[bytes, Epsilon] = {}
        answers = []
        for client in self._chosen(clients).tolist():
            row = self._table[client]
            if row.tobytes() not in known:
                account = account_for(self._as_account(row), event.unit)
                account[event] = account.get(event, 0) + releases
                known[row.tobytes()] = self.accountant.epsilon(account, delta)
            answers.append(known[row.tobytes()])
        return answers

    def history(self, client: int | None = None) -> list[Charge]:
        """Every charge, or those of one client, in order, read back from the journal and checked against its chain."""
        charges: list[tuple[Transaction, list[int]]] = []
        voided: set[tuple[int, int]] = set()
        events = self._journal.events()
        for entry in self._journal.transactions():
            for row in entry.rows.tolist():
                if entry.kind == "void":
                    voided.add((row[0], row[1]))
                elif client is None or row[0] == client:
                    charges.append((entry, row))
        return [
            Charge(entry.round, who, number, events[event], entry.wall, (who, number) in voided)
            for entry, (who, number, event) in charges
        ]

    def _loss(self, row: Ints, delta: float, unit: Unit | None = None) -> Epsilon:
        used = np.flatnonzero(row)
        key = (np.stack([used, row[used]]).tobytes(), delta, unit)
        if key not in self._known:
            if len(self._known) >= 2**17:
                self._known.clear()
            account = self._as_account(row)
            accounts = by_unit(account) if unit is None else {unit: account_for(account, unit)}
            losses = [replace(self.accountant.epsilon(accounts[name], delta), unit=name) for name in sorted(accounts)]
            nothing = self.accountant.epsilon({}, delta)
            self._known[key] = max(losses, key=lambda loss: loss.epsilon, default=nothing)
        return self._known[key]

    def _as_account(self, row: Ints) -> dict[Event, int]:
        return {self.events[e]: int(row[e]) for e in np.flatnonzero(row)}

    def _chosen(self, clients: int | Iterable[int] | None) -> Ints:
        """The numbers of the clients that were asked about: one, some or, for None, all."""
        if clients is None:
            return np.arange(self.n_clients)
        asked = [clients] if isinstance(clients, (int, np.integer)) else clients
        return np.array([self.client(client) for client in asked], dtype=np.int64)

    def client(self, client: int) -> int:
        """The client's number, if there is such a client. Raises ValueError."""
        if not 0 <= client < self.n_clients:
            raise ValueError(f"client {client} does not exist: clients are 0 to {self.n_clients - 1}")
        return int(client)

    def _reason(self, client: int, free: bool) -> str:
        if not free:
            assert self.caps is not None
            return f"its {self.caps[client]} planned participations are used up"
        claimed = " (claimed)" if any(event.status == "claimed" for event in self.events) else ""
        return f"the release would pass its budget of ε = {self.budgets[client]:g}{claimed} at δ = {self.delta:g}"

    def _adopt(self, events: list[Event]) -> None:
        self.events += events
        self._widen(len(self.events))
        self._envelope.extend(events)

    def _widen(self, columns: int) -> None:
        if columns > self._table.shape[1]:
            wider = np.zeros((self.n_clients, 2 * columns), np.int64)
            wider[:, : self._table.shape[1]] = self._table
            self._table = wider

    def _charge(self, clients: Ints, events: Ints, round: int) -> None:
        np.add.at(self._table, (clients, events), 1)
        np.add.at(self._granted, clients, 1)
        self._joined[np.unique(clients)] += 1
        self.round = round

    def _discharge(self, clients: Ints, numbers: Ints, events: Ints) -> None:
        np.add.at(self._table, (clients, events), -1)
        self._joined[np.unique(clients)] -= 1
        self._voided.update(zip(clients.tolist(), numbers.tolist()))
        self._shown.forget(clients)
