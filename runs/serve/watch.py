"""Reads a run again and again, and keeps the newest board for everybody who asks."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ...errors import DualfedError
from .board import Accounts, Board, Facts, State
from .fold import Fold

_INTERVAL_S = 1.0
_UNWATCHED_S = 5.0
_FORGET_S = 15.0


class Source(Protocol):
    """The run's ledger and events, as ``Ledger.connect`` answers them. Thread-safe, and never in the run's way."""

    def about(self) -> dict[str, Any]: ...
    def table(self, delta: float | None = None) -> Any: ...
    def events(self, since: int = 0, *, private: bool = False) -> list[dict[str, Any]]: ...
    def epsilon(self, client: int, delta: float | None = None, *, every: bool = False) -> Any: ...
    def remaining(self, client: int) -> Any: ...
    def history(self, client: int | None = None, since: int = -1) -> list[Any]: ...
    def what_if(
        self,
        rounds: int | None = None,
        noise: float | None = None,
        budget: float | None = None,
        client: int | None = None,
        delta: float | None = None,
    ) -> Any: ...


class Watch:
    """A thread that reads ``source`` at most every second; what computing ε may take, ``source`` limits itself.

    When nobody asked for a while it looks every five seconds only. ``board`` is the newest board.
    """

    def __init__(self, source: Source, interval_s: float = _INTERVAL_S) -> None:
        self.source = source
        self._interval = interval_s
        about = source.about()
        self._facts = _facts(about)
        self._fold = Fold(self._facts.clients)
        self._versions = {"accounts": 0, "series": 0, "events": 0}
        self._table: Any = None
        self._trouble = ""
        self._asked = time.monotonic()
        self._wake, self._ended = threading.Event(), threading.Event()
        self._listeners: set[Callable[[], None]] = set()
        self._guard = threading.Lock()
        self.board = self._read(about, None)
        self._thread = threading.Thread(target=self._go, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; returns when it has."""
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def asked(self) -> Board:
        """The newest board, for somebody who asks: from now on the run is looked at often again."""
        idle = time.monotonic() - self._asked > _FORGET_S
        self._asked = time.monotonic()
        if idle:
            self._wake.set()
        return self.board

    def listen(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Have ``changed`` called, in the reading thread, at every new board; returns what ends that."""
        with self._guard:
            self._listeners.add(changed)

        def stop() -> None:
            with self._guard:
                self._listeners.discard(changed)

        return stop

    def _go(self) -> None:
        while not self._ended.is_set():
            began = time.perf_counter()
            try:
                self._trouble = ""
                board = self._read(self.source.about(), self.board)
            except (DualfedError, OSError, ConnectionError) as error:
                self._trouble = " ".join(str(error).split())
                board = self._unread(self.board)
            changed = board.version != self.board.version
            self.board = board
            if changed:
                with self._guard:
                    listeners = list(self._listeners)
                for tell in listeners:
                    tell()
            cost = time.perf_counter() - began
            watched = time.monotonic() - self._asked < _FORGET_S
            self._wake.wait(max(self._interval, cost) if watched else _UNWATCHED_S)
            self._wake.clear()

    def _read(self, about: dict[str, Any], before: Board | None) -> Board:
        changed = self._fold.take(self.source.events(self._fold.next, private=True))
        if self._table is None or about["transaction"] != self._table.transaction:
            self._table = self.source.table()
            changed |= {"accounts"}
        state: State = about["state"]
        for part in changed:
            self._versions[part] += 1
        note = _note(state, self._fold.done, self._facts)
        if before is not None and not changed and (state, note) == (before.state, before.note):
            return _seen_now(before)
        return self._board(state, note, before, changed)

    def _board(self, state: State, note: str, before: Board | None, changed: set[str]) -> Board:
        fold, table = self._fold, self._table
        fresh = before is None or "series" in changed
        series = (
            {name: {column: list(values) for column, values in rows.items()} for name, rows in fold.series.items()}
            if fresh
            else {}
        )
        return Board(
            version=0 if before is None else before.version + 1,
            versions=dict(self._versions),
            facts=self._facts,
            state=state,
            note=note,
            done=fold.done,
            exact_round=int(table.round),
            seen=time.time(),
            accounts=_accounts(table) if before is None or "accounts" in changed else before.accounts,
            condition=fold.condition.copy(),
            metrics=series["metrics"] if before is None or fresh else before.metrics,
            diagnostics=series["diagnostics"] if before is None or fresh else before.diagnostics,
            timing=series["timing"] if before is None or fresh else before.timing,
            happenings=list(fold.log) if before is None or "events" in changed else before.happenings,
            counters=dict(fold.counters),
            extra=dict(fold.extra),
        )

    def _unread(self, before: Board) -> Board:
        """The same board, saying that the run cannot be read at the moment."""
        if before.note == self._trouble:
            return before
        return replace(before, version=before.version + 1, state="unknown", note=self._trouble)


def _seen_now(board: Board) -> Board:
    return replace(board, seen=time.time())


def _accounts(table: Any) -> Accounts:
    budget = np.where(np.isnan(table.budget), np.inf, table.budget)
    return Accounts(
        client=np.asarray(table.client, np.int64),
        unit=[str(unit) for unit in table.unit],
        epsilon=np.asarray(table.epsilon, np.float64),
        budget=np.asarray(budget, np.float64),
        releases=np.asarray(table.releases, np.int64),
        account=[str(name) for name in table.account],
        status=[str(status) for status in table.status],
    )


def _facts(about: dict[str, Any]) -> Facts:
    started = about.get("started")
    return Facts(
        identity=str(about.get("run", "")),
        name=str(about.get("name", "run")),
        method=str(about.get("method", "")),
        graph=bool(about.get("graph", False)),
        engine=str(about.get("engine", "")),
        clients=int(about["clients"]),
        rounds=int(about.get("rounds", 0)),
        delta=float(about["delta"]),
        unit=str(about.get("unit", "record")),
        status=str(about.get("status", "claimed")),
        mode=str(about.get("mode", "")),
        noise=str(about.get("noise", "")),
        folder=str(about.get("folder", "")),
        started=math.nan if started is None else float(started),
        warnings=tuple(str(text) for text in about.get("warnings", ())),
    )


def _note(state: State, done: int, facts: Facts) -> str:
    of = f"{done} of {facts.rounds} rounds"
    match state:
        case "running":
            return f"The run goes on: {of}." if done else "The run is starting."
        case "completed":
            return f"The run is complete: {of}."
        case "stopped":
            return f"The run was stopped after {of}; it goes on with: dualfed resume {facts.folder}"
        case "exhausted":
            return f"The run ended after {of}: every client has spent its budget."
        case "failed":
            return f"The run failed after {of}; its terminal shows the error."
        case "lost":
            return (
                f"The run's process is gone after {of}; nothing that was charged is lost: dualfed resume {facts.folder}"
            )
    return "The run was started on another machine, so whether it still goes on cannot be seen from here."
