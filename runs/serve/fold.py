"""What a run's events come to: series by round, the condition of each client, and a log in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .board import CONDITIONS, Happening

_SERIES = {"evaluated": "metrics", "diagnosed": "diagnostics", "round": "timing"}
_NOT_SERIES = frozenset({"kind", "seq", "private", "processes"})
_LOG_KEPT = 5000
_ACTIVE, _SPENT, _LOST, _FAILED, _LATE = range(len(CONDITIONS))


class Fold:
    """Takes events in, in their order. Not thread-safe."""

    def __init__(self, clients: int) -> None:
        self.series: dict[str, dict[str, list[float]]] = {"metrics": {}, "diagnostics": {}, "timing": {}}
        self.condition = np.zeros(clients, dtype=np.int8)
        self.counters = {"refused": 0, "lost": 0, "failed": 0, "late": 0, "rebuilt": 0}
        self.log: list[Happening] = []
        self.done = 0
        self.next = 0
        self.extra: dict[str, float | str] = {}

    def take(self, events: Iterable[Mapping[str, Any]]) -> set[str]:
        """Take events in; which parts they changed: ``series``, ``events``, ``accounts``."""
        changed: set[str] = set()
        for event in events:
            self.next = int(event["seq"]) + 1
            kind = str(event["kind"])
            if kind in _SERIES:
                self._add(self.series[_SERIES[kind]], event)
                changed.add("series")
            if kind == "round":
                self._round(event)
            if (words := self._words(kind, event)) is not None:
                clients = _clients(event)
                happening = Happening(
                    int(event["seq"]),
                    int(event.get("round", 0)),
                    float(event.get("wall", math.nan)),
                    kind,
                    clients,
                    words,
                )
                self.log.append(happening)
                if len(self.log) > 2 * _LOG_KEPT:
                    self.log = self.log[-_LOG_KEPT:]
                changed |= {"events", "accounts"}
        return changed

    def _add(self, table: dict[str, list[float]], event: Mapping[str, Any]) -> None:
        """One row; a column that some rows lack has NaN there."""
        rows = len(table.get("round", ()))
        for name, value in event.items():
            if name in _NOT_SERIES or isinstance(value, (bool, str, list, dict)):
                continue
            table.setdefault(name, [math.nan] * rows).append(math.nan if value is None else float(value))
        for column in table.values():
            if len(column) == rows:
                column.append(math.nan)

    def _round(self, event: Mapping[str, Any]) -> None:
        self.done = int(event["round"])
        for name, value in event.items():
            if name.startswith("simulated") and isinstance(value, (int, float)):
                self.extra[name] = float(value)

    def _resume(self, t: int) -> None:
        """Rounds after ``t`` that came before do not count any more; what they cost does."""
        self.done = t
        for table in self.series.values():
            keep = [at <= t for at in table.get("round", ())]
            for name in table:
                table[name] = [value for value, kept in zip(table[name], keep) if kept]
        self.condition[self.condition != _SPENT] = _ACTIVE

    def _words(self, kind: str, event: Mapping[str, Any]) -> str | None:
        """What happened, for the log; None for what is not worth a line of it. Notes the clients' new condition."""
        who = _clients(event)
        match kind:
            case "resumed":
                self._resume(int(event["round"]))
                return f"Resumed after round {event['round']}."
            case "started":
                self.done = 0 if not self.log else self.done
                return "The hosts are up."
            case "refused":
                self._mark(who, _SPENT)
                self.counters["refused"] += 1
                return f"{_named(who)} refused: {event.get('reason', 'its budget is spent')}."
            case "lost":
                self._mark(who, _LOST)
                self.counters["lost"] += len(who)
                return f"Host {event.get('host')} was lost with {_lower(_named(who))}; charged, inactive this round."
            case "rebuilt":
                self.condition[self.condition == _LOST] = _ACTIVE
                self.counters["rebuilt"] += 1
                return f"Host {event.get('host')} is back."
            case "failed":
                self._mark(who, _FAILED)
                self.counters["failed"] += max(1, len(who))
                return f"{_named(who)} failed in its own code; the run ends."
            case "late" | "straggler" | "stragglers" | "dropped" | "missed":
                self._mark(who, _LATE)
                self.counters["late"] += max(1, len(who))
                return f"{_named(who)} came too late ({kind})."
            case "ended":
                return f"Ended: {_ENDINGS.get(str(event.get('ending')), event.get('ending'))}."
        return _NOTED[kind](event) if kind in _NOTED else None

    def _mark(self, clients: tuple[int, ...], condition: int) -> None:
        if clients:
            chosen = np.array(clients)
            self.condition[chosen[self.condition[chosen] != _SPENT]] = condition


_ENDINGS = {
    "completed": "all rounds are done",
    "stopped": "stopped on request, with a checkpoint",
    "exhausted": "every client has spent its budget",
    "failed": "a client's own code failed",
}
_NOTED: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "warning": lambda event: str(event.get("text", event.get("warning", "A warning."))),
}


def _clients(event: Mapping[str, Any]) -> tuple[int, ...]:
    if "client" in event:
        return (int(event["client"]),)
    listed = event.get("clients", ())
    return tuple(int(client) for client in listed) if isinstance(listed, (list, tuple)) else ()


def _named(clients: tuple[int, ...]) -> str:
    if not clients:
        return "No client"
    listed = ", ".join(str(client) for client in clients[:6]) + (
        f" and {len(clients) - 6} more" if len(clients) > 6 else ""
    )
    return f"Client{'' if len(clients) == 1 else 's'} {listed}"


def _lower(words: str) -> str:
    return words[0].lower() + words[1:]
