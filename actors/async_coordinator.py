"""An asynchronous server: ``buffer`` arrivals make an update, and clients go on from the newest model."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..keys import generator, public_key
from .coordinator import Coordinator
from .in_flight import InFlight, Task
from .loop import Ending
from .messages import Answer, Lost, Outcome
from .timing import Timekeeper, TimeSettings


class AsyncCoordinator(Coordinator):
    """Keeps K clients at work. Those that began at the same version of x_0 work in one batch on their host, and what they
    release is kept there until it arrives; work that is older than the bound, or whose client dropped out, is void.

    Every start is a grant of its own, charged before the work.
    """

    def _clock(self, settings: TimeSettings) -> InFlight:
        keeper = Timekeeper(settings, self._settings.clients)
        self._flight = InFlight(keeper, self._fleet, self._host_of, self._emit, self._recorder)
        self._flight.prepare(self._settings.clients)
        self._batches: dict[int, list[tuple[np.ndarray, Any]]] = {}
        self._used: list[Task] = []
        return self._flight

    def _rounds(self) -> Ending:
        settings, last = self._settings, self._settings.rounds
        while self._done < last:
            t, began = self._done + 1, time.perf_counter()
            before = int(self._flight.starts.sum())
            self._top_up(t)
            used = self._arrivals(t)
            if self._failure is None and used:
                released, busy = self._commit(t, used)
            if self._failure is not None:
                return "failed"
            if not used:
                self._end_early(t - 1)
                return "exhausted"
            self._done = t
            self._counters["simulated_s"] = self._flight.now
            self._answer()
            self._emit(
                {
                    "kind": "round",
                    "round": t,
                    "participants": int(self._flight.starts.sum()) - before,
                    "released": released,
                    "seconds": time.perf_counter() - began,
                    "host_seconds": busy,
                    "simulated_s": self._flight.now,
                }
            )
            if settings.record_states:
                self._record_states(t)
            if t == last:
                self._finish()
            if t % settings.evaluate_every == 0 or t == last:
                self._ask(t)
            if self._stop.is_set() and t < last:
                self._checkpoint()
                return "stopped"
            if t % settings.checkpoint_every == 0 or t == last:
                self._checkpoint()
        return "completed"

    def _end_early(self, t: int) -> None:
        self._finish()
        if t % self._settings.evaluate_every:
            self._ask(t)
        self._checkpoint()

    def _checkpoint(self) -> None:
        for host in list(self._batches):
            self._settle(host)
        super()._checkpoint()

    def _top_up(self, t: int) -> None:
        """Let idle clients begin at the newest version until K are at work: the plan's at first, then keyed draws."""
        time_settings = self._flight.keeper.settings
        working = time_settings.policy.working or self._settings.clients
        attempt = 0
        while len(self._flight.tasks) < working:
            idle = self._flight.idle(self._exhausted)
            missing = working - len(self._flight.tasks)
            if not len(idle):
                return
            if t == 1 and not self._flight.starts.any():
                chosen = np.intersect1d(idle, self._plan.participants[0])
            elif len(idle) > missing:
                draw = generator(public_key(time_settings.model.seed), "time/next", round=t, grant=attempt)
                chosen = np.sort(draw.choice(idle, missing, replace=False))
            else:
                chosen = idle
            self._begin_work(t, chosen)
            attempt += 1

    def _begin_work(self, t: int, clients: np.ndarray) -> None:
        """Grant, charge and send work on the newest version; whoever is refused, or never comes back, is out."""
        flight = self._flight
        returns = flight.keeper.delays.presence.next_online(clients, flight.now)
        never = clients[~np.isfinite(returns)]
        flight.tell("offline", t, never, flight.now)
        self._exhausted[never] = True
        clients = clients[np.isfinite(returns)]
        if not len(clients):
            return
        grants = self._granted(t, self._ask_for(t, clients))
        if grants is None or not len(grants):
            return
        flight.tell("offline", t, flight.begin(grants.clients, t), flight.now)
        for host, task in self._tasks(t, grants).items():
            self._batches.setdefault(host, []).append((task.clients, self._fleet.call(host, "begin", task)))
        self._counters["bytes_down"] += len(grants) * self._bytes(self._settings.numbers_down)

    def _arrivals(self, t: int) -> list[Task]:
        """Go on in time until update ``t`` has its arrivals, or nobody is at work. A void client begins anew at once."""
        flight, policy = self._flight, self._flight.keeper.settings.policy
        used = self._used = []
        wakes: dict[int, float] = {}
        while len(used) < policy.buffer and (task := flight.next()) is not None:
            wakes[task.client] = task.arrival
            self._settle(int(self._host_of[task.client]), task)
            if self._failure is not None:
                return []
            outcome = self._judge(task, t - task.version > policy.staleness)
            if outcome == "used":
                used.append(task)
                continue
            flight.close(task, t, outcome)
            flight.tell(outcome, t, np.array([task.client]), flight.now)
            self._fleet.call(int(self._host_of[task.client]), "discard", np.array([task.client]))
            if not self._exhausted[task.client]:
                self._begin_work(t, np.array([task.client]))
        if flight.keeper.real:
            flight.wait_until(wakes)
        return used

    @staticmethod
    def _judge(task: Task, too_old: bool) -> str:
        if task.dropped:
            return "dropped"
        return "void" if task.gone or too_old else "used"

    def _settle(self, host: int, arrived: Task | None = None) -> None:
        """Take in the answers about the work that this host has begun."""
        for clients, ticket in self._batches.pop(host, []):
            outcome: Outcome = self._fleet.gather({host: ticket})[host]
            if isinstance(outcome, Answer):
                errors = outcome.value.errors
                self._clipped += outcome.value.clipped, len(clients) - len(errors)
                self._tell_errors(self._done + 1, errors)
                for error in errors:
                    self._give_up(error.client, arrived)
            elif isinstance(outcome, Lost):
                lost = [] if arrived is None else [arrived]
                for task in lost:
                    task.gone = True
                self._rebuild(self._done + 1, np.array([task.client for task in lost], np.int64), outcome)
                return
            else:
                self._failed(self._done + 1, clients, outcome)

    def _give_up(self, client: int, arrived: Task | None) -> None:
        """A client raised: this work of it is void, and after too many in a row it begins no more."""
        at_work = arrived if arrived is not None and arrived.client == client else self._flight.tasks[client]
        at_work.gone = True
        self._flight.errors[client] += 1
        if self._flight.errors[client] > self._settings.retries:
            self._exhausted[client] = True

    def _rebuild(self, t: int, clients: np.ndarray, lost: Lost, void_from: int | None = None) -> Any:
        """What a lost host's clients were at work on, or had waiting there, is gone; they begin anew when it would have
        arrived. Their charges stand."""
        self._batches.pop(lost.host, None)
        everyone = [*self._flight.tasks.values(), *self._used]
        at_work = [task for task in everyone if self._host_of[task.client] == lost.host]
        for task in at_work:
            task.gone = True
        known = np.union1d(clients, np.array([task.client for task in at_work], dtype=np.int64))
        return super()._rebuild(t, known, lost, void_from)

    def _commit(self, t: int, used: list[Task]) -> tuple[int, float]:
        """Make the arrivals of update ``t`` count; (releases used, 0 seconds: hosts worked before)."""
        flight, waiting = self._flight, {task.client: task for task in used if not task.gone}
        for task in used:
            if task.gone:
                flight.close(task, t, "void")
        clients = np.sort(np.array(list(waiting), dtype=np.int64))
        tickets = {}
        if self._settings.fresh_uploads:
            self._totals[:] = 0
        for host in np.unique(self._host_of[clients]).tolist():
            mine = clients[self._host_of[clients] == host]
            tickets[host] = self._fleet.call(host, "commit", t, mine)
        for host, outcome in self._fleet.gather(tickets).items():
            mine = clients[self._host_of[clients] == host]
            if isinstance(outcome, Answer):
                self._totals[host] = outcome.value
                continue
            for client in mine.tolist():
                flight.close(waiting.pop(client), t, "void")
            if isinstance(outcome, Lost):
                self._totals[host] = self._rebuild(t, mine, outcome)
            else:
                self._failed(t, mine, outcome)
        for task in waiting.values():
            flight.close(task, t, "used")
        done = np.array(list(waiting), dtype=np.int64)
        arrivals = np.array([task.arrival for task in waiting.values()])
        flight.keeper.spend(done, np.zeros(len(done)), flight.now - arrivals)
        flight.keeper.stale(done, np.array([t - task.version for task in waiting.values()], dtype=np.int64))
        flight.errors[done] = 0
        self._counters["bytes_up"] += len(done) * self._bytes(self._settings.numbers_up)
        self._serve(t, len(done))
        flight.keep_spans(t)
        self._used = []
        return len(done), 0.0
