"""Answers questions about a run's ledger and events from its folder, without touching the run."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DualfedError, InvalidValue
from ..privacy.accountants import Accountant, account_for, check_delta
from ..privacy.answers import AccountTable, Left, Outlook, Spent, Summary
from ..privacy.grants import Charge
from ..privacy.outlook import Question, Standing, outlook
from ..privacy.replica import Replica
from .feed import FEED, FeedReader
from .run_file import read_run_file, state_of

JOURNAL = "ledger.sqlite"
QUESTIONS = ("about", "table", "spent", "summary", "remaining", "history", "what_if", "events", "charges")


class LedgerGone(DualfedError):
    """Nobody answers any more: the run is over, its cluster is gone, or the connection was closed."""


class LedgerDesk:
    """Reads a run's journal and feed as they grow. Thread-safe; asking changes nothing of the run.

    Args:
        folder: the run's folder.
        load: the share of one core that keeping up with the run may take. What is new is taken in when somebody asks,
            but not before the desk has rested for (seconds worked since) / load, so an answer may be exact as of an
            earlier round than the newest, which it states. 1 takes in all that is there.

    Raises:
        InvalidValue: nothing was charged there. JournalDamaged.
    """

    def __init__(self, folder: Path, load: float = 0.1) -> None:
        if not 0 < load <= 1:
            raise InvalidValue("load", load, "give a share of one core, a number above 0 and at most 1")
        journal = folder / JOURNAL
        if not journal.is_file():
            raise InvalidValue("RUN", str(folder), f"has no {JOURNAL}; nothing was charged there")
        self.folder, self._load = folder, load
        self._lock, self._feed_lock = threading.Lock(), threading.Lock()
        self._feed = FeedReader(folder / FEED)
        self._replica = Replica.open(journal)
        self._n, self._delta = self._replica.n_clients, self._replica.delta
        self._worked, self._refreshed = 0.0, time.perf_counter()
        self._closed = False

    def ask(self, question: str, **arguments: Any) -> Any:
        """The answer to one of ``QUESTIONS``, as the method of that name gives it."""
        if question not in QUESTIONS:
            raise ValueError(f"{question!r} is no question; ask one of {', '.join(QUESTIONS)}")
        return getattr(self, question)(**arguments)

    def refresh(self) -> None:
        """Take in what is new at once."""
        with self._lock:
            self._replica.refresh()
            self._refreshed = time.perf_counter()

    def about(self) -> dict[str, Any]:
        """What ``run.json`` says, with ``state`` as judged from here, what answers are exact as of, and how many
        ``events`` there are."""
        content = read_run_file(self.folder)
        with self._feed_lock:
            self._feed.catch_up()
            events = self._feed.count
        facts = {**self._replica.meta, **content, "state": state_of(content)}
        with self._reading() as replica:
            return {
                **facts,
                "clients": self._n,
                "delta": self._delta,
                "round": replica.round,
                "transaction": replica.transaction,
                "events": events,
            }

    def table(self, delta: float | None = None) -> AccountTable:
        """What all clients have spent."""
        with self._reading() as replica:
            return replica.table(self._delta_of(delta))

    def spent(self, client: int, delta: float | None = None, every: bool = False) -> Spent:
        """What one client has spent; ``every`` adds the bounds that are slow and hardly ever the smallest."""
        at = self._delta_of(delta)
        with self._reading() as replica:
            who = self._client(client)
            found = replica.epsilon(who, at)[0]
            alternatives = dict(found.alternatives)
            account, releases = account_for(replica.account(who), found.unit), int(replica.participations[who])
            round, transaction = replica.round, replica.transaction
            budget = float(replica.budgets[who]) if at == self._delta else float("nan")
        if every:
            alternatives = {**dict(Accountant().epsilon(account, at).alternatives), **alternatives}
        return Spent(
            who,
            found.epsilon,
            at,
            found.status,
            found.unit,
            found.account,
            budget,
            releases,
            round,
            transaction,
            alternatives,
        )

    def summary(self, delta: float | None = None) -> Summary:
        """The loss of the run."""
        table = self.table(delta)
        worst = int(np.argmax(table.epsilon))
        return Summary(
            epsilon=float(table.epsilon[worst]),
            median=float(np.median(table.epsilon)),
            delta=table.delta,
            status="claimed" if table.claimed else "guaranteed",
            unit=table.unit[worst].item(),
            account=str(table.account[worst]),
            client=int(table.client[worst]),
            clients=self._n,
            budget=float(table.budget[worst]),
            releases=int(table.releases.sum()),
            round=table.round,
            transaction=table.transaction,
        )

    def remaining(self, client: int) -> Left:
        """What one client has left at the ledger's own δ."""
        with self._reading() as replica:
            who = self._client(client)
            standing = Standing.of(replica, who)
            left = replica.remaining(who)
        ahead = outlook(standing, Question())
        rounds = float(ahead.rounds[0])
        return Left(
            client=who,
            epsilon=left.epsilon,
            participations=left.participations,
            rounds=None if np.isnan(rounds) else rounds,
            delta=self._delta,
            status="claimed" if ahead.claimed else "guaranteed",
            round=standing.round,
            transaction=standing.transaction,
        )

    def what_if(
        self,
        rounds: int | None = None,
        noise: float | None = None,
        budget: float | None = None,
        client: int | None = None,
        delta: float | None = None,
    ) -> Outlook:
        """``outlook`` of all clients, or of one; computed beside other questions, which do not wait for it."""
        question = Question(rounds, noise, budget)
        with self._reading() as replica:
            standing = Standing.of(replica, None if client is None else self._client(client))
        return outlook(standing, question, delta)

    def history(self, client: int | None = None, since: int = -1) -> list[Charge]:
        """The charges after transaction ``since``, of one client or of all, in order."""
        with self._reading() as replica:
            return replica.charges(None if client is None else self._client(client), since)

    def events(self, since: int = 0, private: bool = False) -> list[dict[str, Any]]:
        """The run's events from number ``since`` on; those that depend on private data only if ``private``."""
        with self._feed_lock:
            found = self._feed.since(since)
        return [event for event in found if private or not event.get("private")]

    def charges(self, since: int = -1) -> list[dict[str, Any]]:
        """The entries of the journal after transaction ``since`` as events: ``charged`` and ``voided``."""
        with self._reading() as replica:
            return [
                {
                    "kind": "charged" if entry.kind == "reserve" else "voided",
                    "round": entry.round,
                    "transaction": entry.seq,
                    "wall": entry.wall,
                    "clients": np.unique(entry.rows[:, 0]).tolist(),
                }
                for entry in replica.entries(since)
                if entry.kind in ("reserve", "void")
            ]

    def close(self) -> None:
        """Let go of the journal. Nothing can be asked any more."""
        with self._lock:
            self._closed = True
            self._replica.close()

    @contextmanager
    def _reading(self) -> Iterator[Replica]:
        """The replica, as new as the load allows, for this thread alone."""
        with self._lock:
            if self._closed:
                raise LedgerGone(f"the journal of {self.folder} was closed here; connect again to ask")
            began, made = time.perf_counter(), self._replica.accountant.compositions
            due = began - self._refreshed >= self._worked / self._load
            if due:
                self._replica.refresh()
                self._refreshed, self._worked = began, 0.0
            try:
                yield self._replica
            finally:
                # What is answered from memory is no work: however often it is asked for, it puts no refresh off.
                if due or self._replica.accountant.compositions > made:
                    self._worked += time.perf_counter() - began

    def _delta_of(self, delta: float | None) -> float:
        return self._delta if delta is None else check_delta(delta)

    def _client(self, client: int) -> int:
        try:
            number = operator.index(client)
        except TypeError:
            number = -1
        if not 0 <= number < self._n:
            raise InvalidValue("client", client, f"clients are numbered 0 to {self._n - 1}")
        return number
