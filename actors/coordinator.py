"""Drives the rounds of a method with a server: broadcast, collect, add up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from .client_errors import joined
from .loop import RoundLoop
from .messages import Answer, Diagnosis, Lost, Outcome, RoundTask

if TYPE_CHECKING:
    from ..privacy.ledger import Grants


_SERVER = "server.safetensors"


@dataclass
class _Evaluation:
    """Questions about the model after a round, asked while the next one already runs."""

    round: int
    total: np.ndarray
    score: tuple[int, Any]
    diagnoses: dict[int, Any]
    epsilon: Any
    counters: dict[str, int]
    clipped_share: float


class Coordinator(RoundLoop):
    """The server's side of (S1), (S2). It holds each host's sum of uploads, or the state that the method's server keeps;
    hosts make the broadcast of it."""

    def model(self) -> np.ndarray:
        return np.asarray(self._insist({0: ("model", self._kept())})[0])

    def _enter(self, outcomes: dict[int, Outcome], checkpoint: Path | None) -> None:
        self._pending: list[_Evaluation] = []
        self._totals = np.stack([self._value(outcome) for outcome in outcomes.values()])
        self._server = self._settings.server
        if checkpoint is None:
            self._open()
        elif self._server is not None:
            self._server = load_file(checkpoint / _SERVER)["state"]

    def _save(self, folder: Path) -> None:
        if self._server is not None:
            save_file({"state": np.ascontiguousarray(self._server)}, folder / _SERVER)

    def _open(self) -> None:
        """Round 0 of a method that releases its records once: charged, then carried out by every host.

        A host that is lost meanwhile is asked again with the same grants: its key and theirs give the same values.
        """
        clients = self._plan.opening
        if clients is None or not len(clients):
            return
        grants = self._granted(0, self._ledger.reserve(0, clients, self._plan.events_of(0, clients)))
        if grants is None or not len(grants):
            return
        hosts = self._host_of[grants.clients]
        nothing = np.empty(0)
        tasks = {
            host: RoundTask(
                0, nothing, *(part[hosts == host] for part in (grants.clients, grants.numbers, grants.events))
            )
            for host in np.unique(hosts).tolist()
        }
        self._insist({host: ("open", task) for host, task in tasks.items()})

    def _send(self, t: int, grants: Grants | None) -> dict[int, Any]:
        if grants is None:
            return {}
        tasks = self._tasks(t, grants)
        tickets = {host: self._fleet.call(host, "round", task) for host, task in tasks.items()}
        if self._time is not None and self._time.void is not None:
            self._work_in_vain(t, self._time.void)
        self._counters["bytes_down"] += len(grants.clients) * self._bytes(self._settings.numbers_down)
        return tickets

    def _tasks(self, t: int, grants: Grants) -> dict[int, RoundTask]:
        """The work of the granted clients, by host."""
        kept, hosts = self._kept(), self._host_of[grants.clients]
        return {
            host: RoundTask(
                t,
                kept,
                grants.clients[hosts == host],
                grants.numbers[hosts == host],
                grants.events[hosts == host],
                isolate=self._settings.on_error != "stop",
            )
            for host in np.unique(hosts).tolist()
        }

    def _despite_errors(self, t: int, outcomes: dict[int, Outcome]) -> dict[int, Outcome]:
        latest, left = outcomes, self._settings.retries if self._settings.on_error == "retry" else 0
        outcomes = dict(outcomes)
        while True:
            answers = [outcome.value for outcome in latest.values() if isinstance(outcome, Answer)]
            errors = [error for result in answers for error in result.errors]
            self._tell_errors(t, errors)
            if not errors or not left or (grants := self._grant_again(t, errors)) is None:
                return outcomes
            left -= 1
            tasks = self._tasks(t, grants)
            latest = self._fleet.gather({host: self._fleet.call(host, "round", task) for host, task in tasks.items()})
            fresh = self._settings.fresh_uploads
            for host, outcome in latest.items():
                earlier = outcomes[host]
                if isinstance(outcome, Answer) and isinstance(earlier, Answer):
                    outcome = Answer(host, joined([earlier.value, outcome.value], fresh))
                outcomes[host] = outcome

    def _work_in_vain(self, t: int, void: Grants) -> None:
        """Clients that will be late: their state will be that of the last release that was used. The virtual clock knows
        that beforehand and spares the work; with the real one they do it."""
        assert self._time is not None
        if self._time.keeper.real:
            for host, task in self._tasks(t, void).items():
                self._fleet.call(host, "begin", task)
                self._fleet.call(host, "discard", task.clients)
        self._counters["bytes_down"] += len(void) * self._bytes(self._settings.numbers_down)

    def _absorb(self, t: int, grants: Grants | None, outcomes: dict[int, Outcome]) -> tuple[int, float]:
        released, uploads, busy = 0, 0, 0.0
        if self._settings.fresh_uploads:
            self._totals[:] = 0
        for host, outcome in outcomes.items():
            if isinstance(outcome, Answer):
                self._totals[host] = outcome.value.total
                released += outcome.value.released
                uploads += outcome.value.uploads
                self._clipped += outcome.value.clipped, outcome.value.released
                busy = max(busy, outcome.value.seconds)
            elif isinstance(outcome, Lost):
                self._totals[host] = self._rebuild(t, self._of_host(grants, host), outcome)
            else:
                self._failed(t, self._of_host(grants, host), outcome)
        self._counters["bytes_up"] += uploads * self._bytes(self._settings.numbers_up)
        self._serve(t, uploads)
        return released, busy

    def _serve(self, t: int, uploads: int) -> None:
        """The server's own step, where the method has one, after ``uploads`` uploads."""
        if self._server is not None and self._failure is None:
            self._server = self._served(t, self._server, uploads)

    def _served(self, t: int, server: np.ndarray, uploads: int) -> np.ndarray:
        """The server's state after round ``t``, computed by the first host, where torch is."""
        call = ("serve", server, self._total(), uploads)
        outcome = self._fleet.gather({0: self._fleet.call(0, *call)})[0]
        if isinstance(outcome, Lost):  # what its clients did in this round is counted, and stands
            self._rebuild(t, np.empty(0, np.int64), outcome, t + 1)
            outcome = self._fleet.gather({0: self._fleet.call(0, *call)})[0]
        return np.asarray(self._value(outcome))

    def _bytes(self, numbers: int | None) -> int:
        return (self._settings.dim if numbers is None else numbers) * self._settings.item_bytes

    def _total(self) -> np.ndarray:
        return np.asarray(self._totals.sum(axis=0))

    def _kept(self) -> np.ndarray:
        """What hosts make the broadcast of."""
        return self._total() if self._server is None else self._server

    def _ask(self, t: int) -> None:
        total, scorer = self._kept(), t % self._fleet.hosts
        self._pending.append(
            _Evaluation(
                t,
                total,
                (scorer, self._fleet.call(scorer, "score", total)),
                {host: self._fleet.call(host, "diagnose", total) for host in range(self._fleet.hosts)},
                self._ledger.ask("spent", t),
                dict(self._counters),
                self._clipped[0] / max(int(self._clipped[1]), 1),
            )
        )
        self._clipped[:] = 0
        if t == 0 or t == self._settings.rounds:
            self._answer()

    def _answer(self) -> None:
        for asked in self._pending:
            host, ticket = asked.score
            scored = self._fleet.gather({host: ticket})[host]
            # A host that was lost meanwhile is asked again: the question does not depend on its clients.
            score = (
                self._insist({host: ("score", asked.total)})[host] if isinstance(scored, Lost) else self._value(scored)
            )
            spent = self._ledger.answer(asked.epsilon)
            row = {"round": asked.round, **score, **spent, **asked.counters}
            self._emit({"kind": "evaluated", **row})
            self._emit(
                {
                    "kind": "diagnosed",
                    "round": asked.round,
                    **self._diagnosis(asked),
                    "clipped_share": asked.clipped_share,
                }
            )
        self._pending.clear()

    def _diagnosis(self, asked: _Evaluation) -> dict[str, float]:
        outcomes = self._fleet.gather(asked.diagnoses).values()
        parts: list[Diagnosis] = [outcome.value for outcome in outcomes if isinstance(outcome, Answer)]
        if len(parts) < self._fleet.hosts:  # a host was lost before it could answer
            return {"objective": np.nan, "local_loss": np.nan, "consensus": np.nan}
        clients = self._settings.clients
        return {
            name: sum(getattr(part, name) for part in parts) / clients
            for name in ("objective", "local_loss", "consensus")
        }

    def _record_states(self, t: int) -> None:
        parts = self._insist(dict.fromkeys(range(self._fleet.hosts), ("states",)))
        states = {name: np.concatenate([part[name] for part in parts.values()]) for name in parts[0]}
        self._emit({"kind": "states", "round": t, "x0": self.model(), **states})
