"""Simulated time around the rounds of a server: who is there, whose work counts, what is told of it. Light: no torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..privacy.grants import Grants
from .timing import RoundTimes, Timekeeper

if TYPE_CHECKING:
    from .fleet import Fleet

Emit = Callable[[dict[str, Any]], None]


class Keeps(Protocol):
    """Whoever keeps events; see ``loop.Recorder``."""

    def take(self, event: dict[str, Any]) -> None: ...


class RoundsInTime:
    """Runs the simulated clock beside a loop of rounds.

    Attributes:
        void: of the round in progress, the grants of those whose work does not count; they were charged all the same.
    """

    def __init__(self, keeper: Timekeeper, fleet: Fleet, host_of: np.ndarray, emit: Emit, recorder: Keeps) -> None:
        self.keeper, self._fleet, self._host_of = keeper, fleet, host_of
        self._emit, self._recorder = emit, recorder
        self.void: Grants | None = None
        self._origin: float | None = None
        self._wakes: dict[int, float] = {}

    @property
    def now(self) -> float:
        """Simulated seconds since the start of the run."""
        return self.keeper.now

    def present(self, clients: np.ndarray, t: int) -> np.ndarray:
        """Who of ``clients`` can be asked to take part in round ``t``, the next one."""
        return self.keeper.present(clients, t)

    def schedule(self, t: int, granted: Grants | None, counters: dict[str, Any]) -> Grants | None:
        """Run the clock through round ``t``; the grants of those whose work is in time."""
        nobody = np.empty(0, dtype=np.int64)
        times = self.keeper.round(t, nobody if granted is None else granted.clients)
        counters["simulated_s"] = times.closed
        self._tell(t, times)
        self.void = None
        if granted is None:
            return None
        self.void = part_of(granted, ~times.used)
        self._set_off(times.began)
        self._wakes = dict(zip(times.clients.tolist(), np.minimum(times.arrivals, times.closed).tolist()))
        return part_of(granted, times.used)

    def _tell(self, t: int, times: RoundTimes) -> None:
        for kind, clients in (
            ("offline", self.keeper.absent),
            ("late", times.clients[times.late]),
            ("dropped", times.clients[times.dropped]),
        ):
            self.tell(kind, t, clients, times.closed)
        self.keep_spans(t)

    def tell(self, kind: str, t: int, clients: np.ndarray, at: float) -> None:
        """One event of stragglers, if there are any."""
        if len(clients):
            self._emit({"kind": kind, "round": t, "clients": clients.tolist(), "simulated_s": at})

    def keep_spans(self, t: int) -> None:
        """Hand what clients did to whoever keeps it."""
        if spans := self.keeper.take_spans():
            self._recorder.take({"kind": "spans", "round": t, "rows": spans})

    def _set_off(self, began: float) -> None:
        if self._origin is None:
            self._origin = time.time() - began

    def wait(self) -> None:
        """With the real clock, wait until everyone's answer is due, all clients at the same time."""
        if self.keeper.real:
            self.wait_until(self._wakes)

    def wait_until(self, wakes: dict[int, float]) -> None:
        """Let clients sleep until simulated times have passed: ``wakes`` by client."""
        self._set_off(self.keeper.now)
        assert self._origin is not None
        due: dict[int, list[float]] = {}
        for client, at in wakes.items():
            if np.isfinite(at):
                due.setdefault(int(self._host_of[client]), []).append(self._origin + at)
        self._fleet.linger({host: np.array(times) for host, times in due.items()})

    def report(self, t: int) -> None:
        """Hand over what every client spent its time on, at the end of a run."""
        clients, stale = self.keeper.tables()
        self._recorder.take({"kind": "client-times", "round": t, "clients": clients, "staleness": stale})

    def save(self) -> dict[str, Any]:
        return self.keeper.save()

    def load(self, saved: dict[str, Any]) -> None:
        self.keeper.load(saved)


def part_of(grants: Grants, chosen: np.ndarray) -> Grants:
    """Some of a reservation's grants."""
    if chosen.all():
        return grants
    return Grants(
        grants.round, grants.clients[chosen], grants.numbers[chosen], grants.events[chosen], grants.transaction
    )
