"""Drives the rounds of a method over a graph. It carries parcels between hosts and never opens them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph_clock import GraphClock
from .loop import RoundLoop
from .messages import Answer, Failed, GraphDiagnosis, Heading, Lost, Missing, Outcome, Parcel, Sent, StepTask
from .timing import Timekeeper, TimeSettings

if TYPE_CHECKING:
    from ..privacy.ledger import Grants

_REPEATS = 8
_NOBODY = np.empty(0, dtype=np.int64)


@dataclass
class _Evaluation:
    round: int
    score: tuple[int, Any]
    model: np.ndarray
    diagnoses: dict[int, Any]
    spent: Any
    counters: dict[str, int]
    clipped_share: float


class GraphCoordinator(RoundLoop):
    """Steps the whole graph: each exchange is one call a host. With J mixing rounds a release is followed by J exchanges
    without data.

    The coordinator sees references, sums over hosts and the ledger; no actor holds all states.
    """

    _graph_clock: GraphClock | None = None

    def _clock(self, settings: TimeSettings) -> GraphClock:
        keeper = Timekeeper(settings, self._settings.clients)
        assert settings.links is not None
        clock = GraphClock(keeper, self._fleet, self._host_of, self._emit, self._recorder)
        clock.set_up(self._settings.clients, settings.links, self._settings.mixing_rounds + 1)
        self._edges_of = [np.isin(settings.links[:, 0], members) for members in self._settings.hosts]
        self._graph_clock = clock
        return clock

    def model(self) -> np.ndarray:
        """The average ``[d]`` of the released states."""
        return np.asarray(np.sum(self._totals, axis=0) / self._settings.clients)

    def _enter(self, outcomes: dict[int, Outcome], checkpoint: Path | None) -> None:
        self._pending: list[_Evaluation] = []
        self._totals, self._outboxes = [], []
        for outcome in outcomes.values():
            sent: Sent = self._value(outcome)
            self._totals.append(sent.value)
            self._outboxes.append(sent.parcels)

    def _send(self, t: int, grants: Grants | None) -> dict[int, Any]:
        self._granted_now = grants
        return self._step(self._first_step(t), t, grants, range(self._fleet.hosts))

    def _first_step(self, t: int) -> int:
        return (t - 1) * (self._settings.mixing_rounds + 1) + 1

    def _void_from(self, t: int) -> int:
        return self._first_step(t)

    def _step(self, step: int, t: int, grants: Grants | None, hosts: Any) -> dict[int, Any]:
        tickets = {}
        for host in hosts:
            mine = None if grants is None else self._host_of[grants.clients] == host
            clients, numbers, events = (
                (_NOBODY, _NOBODY, _NOBODY)
                if grants is None or mine is None
                else (grants.clients[mine], grants.numbers[mine], grants.events[mine])
            )
            isolate = self._settings.on_error != "stop"
            task = StepTask(step, t, clients, numbers, events, self._heard(host, step), isolate)
            tickets[host] = self._fleet.call(host, "step", task, self._inbox(host))
        return tickets

    def _heard(self, host: int, step: int) -> np.ndarray | None:
        """Which messages to this host's clients came through after the exchange before ``step``."""
        lost = None if self._graph_clock is None else self._graph_clock.lost_before(step)
        return None if lost is None else ~lost[self._edges_of[host]]

    def _inbox(self, host: int) -> dict[int, Parcel]:
        return {source: box[host] for source, box in enumerate(self._outboxes) if host in box}

    def _despite_errors(self, t: int, outcomes: dict[int, Outcome]) -> dict[int, Outcome]:
        """A host whose clients may try again makes its step again, the others of its clients with the grants they have:
        what it made before has reached nobody."""
        left = self._settings.retries if self._settings.on_error == "retry" else 0
        mine = self._granted_now
        again = dict(outcomes)
        while True:
            failing = {
                host: outcome.value.value.errors
                for host, outcome in again.items()
                if isinstance(outcome, Answer) and isinstance(outcome.value, Sent) and outcome.value.value.errors
            }
            errors = [error for each in failing.values() for error in each]
            self._tell_errors(t, errors)
            if not errors or not left or (new := self._grant_again(t, errors)) is None:
                return outcomes
            left -= 1
            mine = _replaced(mine, new)
            step = self._first_step(t)
            hosts = [host for host in failing if len(self._of_host(new, host))]
            self._fleet.gather({host: self._fleet.call(host, "take_back", step) for host in hosts})
            again = self._fleet.gather(self._step(step, t, mine, hosts))
            outcomes |= again

    def _absorb(self, t: int, grants: Grants | None, outcomes: dict[int, Outcome]) -> tuple[int, float]:
        released, busy = self._settle_step(self._first_step(t), t, grants, outcomes)
        for extra in range(1, self._settings.mixing_rounds + 1):
            if self._failure is not None:
                break
            step = self._first_step(t) + extra
            mixed = self._fleet.gather(self._step(step, 0, None, range(self._fleet.hosts)))
            busy += self._settle_step(step, 0, None, mixed)[1]
        return released, busy

    def _settle_step(
        self, step: int, t: int, grants: Grants | None, outcomes: Mapping[int, Outcome]
    ) -> tuple[int, float]:
        """Take in one exchange. A lost host is rebuilt and makes the exchange without its clients' data (Δ̃ = 0), also where
        it had answered but its parcels were lost with it before others had fetched them; a host that missed a lost
        neighbour's parcels makes it now, with its grants still unused."""
        sent: dict[int, Sent] = {}
        silent: set[int] = set()
        for _turn in range(_REPEATS):
            waiting = self._sort(step, t, grants, outcomes, sent, silent)
            if self._failure is not None:
                return 0, 0.0
            if not waiting:
                break
            repeated = {host: self._step(step, t, unused, [host])[host] for host, unused in waiting.items()}
            outcomes = self._fleet.gather(repeated)
        else:
            raise RuntimeError(
                f"hosts {sorted(waiting)} could not make one exchange because others were lost each time"
            )
        released, busy = 0, 0.0
        for host, answer in sorted(sent.items()):
            result = answer.value
            self._outboxes[host], self._totals[host] = answer.parcels, result.total
            released += result.released
            busy = max(busy, result.seconds)
            self._clipped += result.clipped, result.released
            for name, number in result.counts.items():
                self._counters[name] = self._counters.get(name, 0) + number
        traffic = self._settings.messages * self._settings.message_length
        self._counters["bytes_up"] += traffic * self._settings.item_bytes
        self._counters["scalars"] = self._counters.get("scalars", 0) + traffic
        return released, busy

    def _sort(
        self,
        step: int,
        t: int,
        grants: Grants | None,
        outcomes: Mapping[int, Outcome],
        sent: dict[int, Sent],
        silent: set[int],
    ) -> dict[int, Grants | None]:
        """Put answers into ``sent`` and rebuild who was lost; who has to make the exchange again, with which grants.

        A host that may have used its grants is ``silent`` from then on: a grant is used once.
        """
        lost = {host: outcome for host, outcome in outcomes.items() if isinstance(outcome, Lost)}
        missed: list[int] = []
        for host, outcome in outcomes.items():
            if isinstance(outcome, Answer) and isinstance(outcome.value, Missing):
                missed.append(host)
                for source in outcome.value.sources:
                    lost.setdefault(source, Lost(source, "its parcels were lost with its process"))
            elif isinstance(outcome, Answer):
                sent[host] = outcome.value
            elif isinstance(outcome, Failed):
                self._failed(max(t, self._done + 1), self._of_host(grants, host), outcome)
        for host, reason in sorted(lost.items()):
            clients = _NOBODY if host in silent else self._of_host(grants, host)
            self._outboxes[host] = self._rebuild(max(t, self._done + 1), clients, reason, step).parcels
            sent.pop(host, None)
            silent.add(host)
        return {host: None if host in silent else grants for host in {*missed, *lost}}

    def _finish(self) -> None:
        """Final mixing: gossip on a copy, from its start again if a host is lost on the way."""
        for _attempt in range(3):
            if self._settings.final_mixing and self._gossip():
                return
        if self._settings.final_mixing:
            raise RuntimeError("hosts were lost in each of three attempts at the final mixing")

    def _gossip(self) -> bool:
        hosts = range(self._fleet.hosts)
        boxes: dict[int, dict[int, Parcel]] = {}
        for turn in range(self._settings.final_mixing + 1):
            if turn == 0:
                outcomes = self._fleet.everyone("begin_mixing")
            else:
                calls = {
                    h: self._fleet.call(h, "mix", {s: box[h] for s, box in boxes.items() if h in box}) for h in hosts
                }
                outcomes = self._fleet.gather(calls)
            lost = [outcome for outcome in outcomes.values() if isinstance(outcome, Lost)]
            for outcome in lost:
                self._outboxes[outcome.host] = self._rebuild(self._done + 1, _NOBODY, outcome).parcels
            answers = {host: self._value(o) for host, o in outcomes.items() if not isinstance(o, Lost)}
            if lost or any(isinstance(answer, Missing) for answer in answers.values()):
                return False
            boxes = {host: answer.parcels for host, answer in answers.items()}
            traffic = self._settings.messages * self._settings.dim * (turn > 0)
            self._counters["bytes_up"] += traffic * self._settings.item_bytes
            self._counters["scalars"] = self._counters.get("scalars", 0) + traffic
        return True

    def _ask(self, t: int) -> None:
        model, scorer = self.model(), t % self._fleet.hosts
        count = self._settings.clients if t == self._settings.rounds else min(self._settings.clients, 100)
        chosen = np.unique(np.linspace(0, self._settings.clients - 1, count).astype(np.int64))
        self._pending.append(
            _Evaluation(
                t,
                (scorer, self._fleet.call(scorer, "score", model)),
                model,
                {host: self._fleet.call(host, "diagnose", model, chosen) for host in range(self._fleet.hosts)},
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
            score = (
                self._insist({host: ("score", asked.model)})[host] if isinstance(scored, Lost) else self._value(scored)
            )
            own, private = self._diagnosis(asked)
            spent = self._ledger.answer(asked.spent)
            self._emit({"kind": "evaluated", "round": asked.round, **score, **own, **spent, **asked.counters})
            self._emit({"kind": "diagnosed", "round": asked.round, **private, "clipped_share": asked.clipped_share})
        self._pending.clear()

    def _diagnosis(self, asked: _Evaluation) -> tuple[dict[str, float], dict[str, float]]:
        """(figures that follow from released states, figures that depend on private data)."""
        outcomes = self._fleet.gather(asked.diagnoses).values()
        parts: list[GraphDiagnosis] = [outcome.value for outcome in outcomes if isinstance(outcome, Answer)]
        n = self._settings.clients
        names = [name for part in parts for name in part.scores if name != "loss"][:1]
        own: dict[str, float] = {}
        for name in names:
            values = np.concatenate([part.scores[name] for part in parts if name in part.scores])
            own |= {
                f"{name}_clients": float(values.mean()),
                f"{name}_worst": float(values.min()),
                f"{name}_best": float(values.max()),
            }
        if len(parts) < self._fleet.hosts:  # a host was lost before it could answer
            return {**own, "consensus": np.nan}, dict.fromkeys(
                ("objective", "stationarity", "residual", "common_share"), np.nan
            )
        consensus = sum(part.deviation for part in parts) / n
        gradient = np.sum([part.gradient for part in parts], axis=0) / n
        stationarity = float(gradient @ gradient)
        objective = sum(part.objective for part in parts) / n
        private = {"objective": objective, "stationarity": stationarity, "residual": stationarity + consensus}
        private["common_share"] = _common_share([part.heading for part in parts])
        return {**own, "consensus": consensus}, private

    def _record_states(self, t: int) -> None:
        parts = self._insist(dict.fromkeys(range(self._fleet.hosts), ("states",)))
        order = np.argsort(np.concatenate(self._settings.hosts), kind="stable")
        states = {name: np.concatenate([part[name] for part in parts.values()])[order] for name in parts[0]}
        self._emit({"kind": "states", "round": t, "x0": self.model(), **states})


def _replaced(grants: Grants | None, new: Grants) -> Grants:
    """``grants`` with new ones in place of the same clients' old ones, ascending."""
    assert grants is not None
    numbers, events = grants.numbers.copy(), grants.events.copy()
    where = np.searchsorted(grants.clients, new.clients)
    numbers[where], events[where] = new.numbers, new.events
    return replace(grants, numbers=numbers, events=events)


def _common_share(headings: list[Heading]) -> float:
    """r of SPEC section 3: the share of an increment's norm that lies along the direction that all have in common.

    The mean cosine between two different clients' increments is r², of which this is an estimate without bias; 0 where it
    comes out negative, NaN with fewer than two releases.
    """
    n = sum(heading.clients for heading in headings)
    if n < 2:
        return float("nan")
    total = np.sum([heading.total for heading in headings], axis=0)
    return float(np.sqrt(max(0.0, (float(total @ total) - n) / (n * (n - 1)))))
