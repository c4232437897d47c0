"""The simulated clock of a run: when clients begin and answer, and what each of them spent its time on. Light: no torch.

Time is simulated whether the clock is virtual or real: a policy decides by drawn times alone, so both clocks give the
same trajectory. The real clock also waits until they have passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import RunBroken
from .delays import Clock, DelayModel, Delays
from .policies import Policy, close_round

_WATCHED = 64


@dataclass(frozen=True)
class TimeSettings:
    """What a coordinator needs to know of time.

    Attributes:
        down_bytes, up_bytes: of what a server sends to a client in a round and what comes back; over a graph ``up_bytes`` is
            one message to a neighbour.
        links: ``[2|E|, 2]`` receiver and sender of each message over a graph, sorted; None with a server.
    """

    model: DelayModel
    policy: Policy
    clock: Clock
    down_bytes: int
    up_bytes: int
    links: np.ndarray | None = None


@dataclass(frozen=True)
class RoundTimes:
    """One round of a server.

    Attributes:
        began, closed: seconds since the start of the run.
        arrivals: ``[k]`` of those who began it; used, late, dropped: bool ``[k]``.
    """

    began: float
    closed: float
    clients: np.ndarray
    arrivals: np.ndarray
    used: np.ndarray
    late: np.ndarray
    dropped: np.ndarray


class Timekeeper:
    """Simulated time and each client's use of it.

    Attributes:
        now: seconds since the start of the run.
    """

    def __init__(self, settings: TimeSettings, clients: int) -> None:
        self.settings, self.delays = settings, Delays(settings.model)
        self.now = 0.0
        self._sums = {name: np.zeros(clients) for name in ("busy_s", "waiting_s", "void_s")}
        self._counts = {name: np.zeros(clients, dtype=np.int64) for name in ("late", "void", "dropped", "offline")}
        self._staleness: dict[tuple[int, int], int] = {}
        self._watched = np.zeros(clients, dtype=bool)
        self._watched[np.unique(np.linspace(0, clients - 1, min(clients, _WATCHED)).astype(np.int64))] = True
        self._spans: list[dict[str, Any]] = []
        self.absent = np.empty(0, dtype=np.int64)
        self._begins = 0.0

    @property
    def real(self) -> bool:
        """Whether the run waits until simulated times have passed."""
        return self.settings.clock == "real"

    def present(self, clients: np.ndarray, t: int) -> np.ndarray:
        """Who of ``clients`` is there for round ``t``, the next; ``absent`` holds the others. With nobody there the round will
        begin when the first comes back.

        Raises RunBroken if none of them ever does.
        """
        self.absent, self._begins = clients[:0], self.now
        if self.delays.presence.always or not len(clients):
            return clients
        returns = self.delays.presence.next_online(clients, self.now)
        first = float(returns.min())
        if not np.isfinite(first):
            raise RunBroken(f"round {t}: none of its clients ever comes back online; look at time.churn_trace")
        self._begins = max(self.now, first)
        there = returns <= self._begins
        self.absent = clients[~there]
        return clients[there]

    def begin(
        self, clients: np.ndarray, rounds: np.ndarray | int, at: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(starts, arrivals, who drops out) ``[k]`` of clients that are sent work at ``at``: those who are off start, and
        answer, when they are back."""
        there = self.delays.presence.next_online
        starts = there(clients, at)
        down, up = self.delays.message(self.settings.down_bytes), self.delays.message(self.settings.up_bytes)
        seconds, dropped = self.delays.work(clients, rounds, starts)
        return starts, there(clients, starts + down + seconds) + up, dropped

    def round(self, t: int, clients: np.ndarray) -> RoundTimes:
        """Run the clock through a round that ``clients`` ``[k]`` begin, as soon as someone is there."""
        began = max(self.now, self._begins)
        self.count("offline", self.absent)
        starts, arrivals, dropped = self.begin(clients, t, began)
        closing = close_round(self.settings.policy, began, clients, arrivals, dropped)
        if not np.isfinite(closing.at):
            gone = int(clients[np.flatnonzero(~np.isfinite(arrivals))[0]])
            raise RunBroken(
                f"round {t}: client {gone} never comes back online and the policy waits for it; "
                'take policy.kind = "deadline" or correct time.churn_trace'
            )
        self.now = closing.at
        ends = np.minimum(arrivals, closing.at)
        busy = np.maximum(ends - starts, 0.0)
        self.spend(clients, busy, np.where(closing.used, closing.at - ends, 0.0), ~closing.used)
        self._counts["late"][clients[closing.late]] += 1
        self._counts["dropped"][clients[dropped]] += 1
        outcomes = np.where(closing.used, "used", np.where(dropped, "dropped", "late"))
        self.span(clients, t, starts, ends, outcomes)
        return RoundTimes(began, closing.at, clients, arrivals, closing.used, closing.late, dropped)

    def spend(
        self, clients: np.ndarray, busy_s: np.ndarray, waiting_s: np.ndarray, void: np.ndarray | None = None
    ) -> None:
        """Book time of distinct ``clients`` ``[k]``; ``void`` marks those whose work was for nothing."""
        self._sums["busy_s"][clients] += busy_s
        self._sums["waiting_s"][clients] += waiting_s
        if void is not None:
            self._sums["void_s"][clients] += np.where(void, busy_s, 0.0)

    def count(self, kind: str, clients: np.ndarray) -> None:
        """Count that ``clients``, distinct, were ``late``, ``void``, ``dropped`` or ``offline``."""
        self._counts[kind][clients] += 1

    def stale(self, clients: np.ndarray, staleness: np.ndarray) -> None:
        """Count the staleness of each client's work that was used."""
        for place in zip(clients.tolist(), staleness.tolist()):
            self._staleness[place] = self._staleness.get(place, 0) + 1

    def span(self, clients: np.ndarray, t: int, starts: np.ndarray, ends: np.ndarray, outcomes: np.ndarray) -> None:
        """Remember, for the plot of some clients over time, what they did."""
        for row in np.flatnonzero(self._watched[clients] & np.isfinite(starts) & (ends >= starts)).tolist():
            self._spans.append(
                {
                    "round": t,
                    "client": int(clients[row]),
                    "start_s": float(starts[row]),
                    "end_s": float(ends[row]),
                    "outcome": str(outcomes[row]),
                }
            )

    def take_spans(self) -> list[dict[str, Any]]:
        """The spans since the last call, for whoever keeps them."""
        spans, self._spans = self._spans, []
        return spans

    def tables(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(one row a client: seconds busy, waiting, idle and counts; one row a client and staleness: how often)."""
        times = {**self._sums, "idle_s": np.maximum(self.now - self._sums["busy_s"] - self._sums["waiting_s"], 0.0)}
        columns = {**times, **self._counts, "stale_mean": np.zeros(len(self._watched))}
        used = np.zeros(len(self._watched))
        for (client, staleness), number in self._staleness.items():
            columns["stale_mean"][client] += staleness * number
            used[client] += number
        columns["stale_mean"] = columns["stale_mean"] / np.maximum(used, 1)
        clients = [
            {"client": client, **{name: values[client].item() for name, values in columns.items()}}
            for client in range(len(self._watched))
        ]
        stale = [
            {"client": client, "staleness": staleness, "updates": number}
            for (client, staleness), number in sorted(self._staleness.items())
        ]
        return clients, stale

    def save(self) -> dict[str, Any]:
        """All of it, as plain values for a checkpoint."""
        return {
            "now": self.now,
            **{name: values.tolist() for name, values in {**self._sums, **self._counts}.items()},
            "staleness": [[*place, number] for place, number in self._staleness.items()],
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from ``save``."""
        self.now = saved["now"]
        for table in (self._sums, self._counts):
            for name, values in table.items():
                values[:] = saved[name]
        self._staleness = {(client, stale): number for client, stale, number in saved["staleness"]}
