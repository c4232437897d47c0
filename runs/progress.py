"""Shows a run while it goes on: a bar on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

import math
import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .statement import epsilon_text, seconds_text

_PLAIN_LINES = 20
_STRAGGLERS = {"late": "too late", "void": "too old to count", "dropped": "dropped out", "offline": "offline"}


class Watcher(Protocol):
    """Listens to a run's events."""

    failure: dict[str, Any] | None

    def __call__(self, event: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class _State:
    """What the events said so far, in words."""

    def __init__(self) -> None:
        self.rounds, self.round = 0, 0
        self.status = "guaranteed"
        self.scores: dict[str, Any] = {}
        self.last_event = ""
        self.refused: set[int] = set()
        self.simulated_s: float | None = None
        self._marks: list[tuple[float, int]] = []

    def take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "prepared":
            self.rounds, self.status = event["rounds"], event["status"]
        elif kind in ("round", "resumed"):
            self.round = event["round"]
            self.simulated_s = event.get("simulated_s", self.simulated_s)
            self._marks = [*self._marks[-40:], (time.monotonic(), self.round)]
        elif kind == "evaluated":
            self.scores = event
        else:
            self.last_event = self._words(event) or self.last_event

    def _words(self, event: dict[str, Any]) -> str:
        t = event["round"]
        match event["kind"]:
            case "refused":
                self.refused.add(event["client"])
                return f"round {t}: {len(self.refused)} clients have spent their budget"
            case "lost":
                return f"round {t}: lost {_clients(event['clients'])}, inactive this round"
            case "rebuilt":
                return f"round {t}: host {event['host']} is back"
            case "late" | "void" | "dropped" | "offline" as kind:
                return f"round {t}: {_clients(event['clients'])} {_STRAGGLERS[kind]}"
            case "error":
                return f"round {t}: client {event['client']} raised {event['error']}"
            case "failed":
                return f"round {t}: {_clients(event['clients'])} failed"
        return ""

    @property
    def rate(self) -> float:
        """Rounds a second over the last rounds."""
        if len(self._marks) < 2:
            return math.nan
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / max(end - start, 1e-9)

    def sentence(self) -> str:
        """Accuracy, loss, largest ε and speed, as far as they are known."""
        parts = []
        if "accuracy" in self.scores:
            parts.append(f"accuracy {100 * self.scores['accuracy']:.1f} %")
        if "loss" in self.scores:
            parts.append(f"loss {self.scores['loss']:.3f}")
        if "epsilon_max" in self.scores:
            parts.append(f"ε ≤ {epsilon_text(self.scores['epsilon_max'], self.status)}")
        if self.simulated_s is not None:
            parts.append(f"{seconds_text(self.simulated_s)} simulated")
        if not math.isnan(self.rate):
            parts.append(f"{self.rate:.1f} rounds/s")
        return " · ".join(parts)


class BarWatcher:
    """A progress bar on a terminal."""

    def __init__(self, console: Console, label: str) -> None:
        self.failure: dict[str, Any] | None = None
        self._state = _State()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[told]}"),
            TextColumn("[yellow]{task.fields[event]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(label, total=None, told="preparing", event="")
        self._progress.start()

    def __call__(self, event: dict[str, Any]) -> None:
        self._state.take(event)
        if event["kind"] == "failed":
            self.failure = event
        state = self._state
        told = state.sentence() or "starting"
        self._progress.update(
            self._task, completed=state.round, total=state.rounds or None, told=told, event=state.last_event
        )

    def close(self) -> None:
        self._progress.stop()


class LineWatcher:
    """Plain lines, about twenty a run, and one for each kind of trouble when it first comes up."""

    def __init__(self, console: Console, label: str) -> None:
        self.failure: dict[str, Any] | None = None
        self._console, self._label, self._state = console, label, _State()
        self._printed = -1
        self._told = ""
        self._seen: set[str] = set()

    def __call__(self, event: dict[str, Any]) -> None:
        state = self._state
        state.take(event)
        if event["kind"] == "failed":
            self.failure = event
        if event["kind"] == "evaluated":
            done = event["round"]
            if done == state.rounds or self._printed < 0 or done - self._printed >= state.rounds / _PLAIN_LINES:
                self._printed = done
                self._say(f"round {done}/{state.rounds} · {state.sentence()}")
        elif event["kind"] in _STRAGGLERS or event["kind"] == "error":
            if event["kind"] not in self._seen:
                self._say(state.last_event)
                if "trace" in event:
                    self._console.print(event["trace"], highlight=False, markup=False, soft_wrap=True)
            self._seen.add(event["kind"])
        elif state.last_event != self._told and event["kind"] in ("lost", "rebuilt", "failed", "refused"):
            if event["kind"] != "refused" or "spent their budget" not in self._told:
                self._say(state.last_event)
            self._told = state.last_event

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        self._console.print(f"{self._label}: {text}", highlight=False, markup=False, soft_wrap=True)


def watcher(label: str) -> Watcher:
    """A bar where the error stream is a terminal, else plain lines, both on the error stream."""
    console = Console(stderr=True)
    return BarWatcher(console, label) if console.is_terminal else LineWatcher(console, label)


def _clients(clients: list[int]) -> str:
    listed = ", ".join(str(client) for client in clients[:5]) + (", …" if len(clients) > 5 else "")
    return f"client{'' if len(clients) == 1 else 's'} {listed}"
