"""The loop of every run: reserve, send the work, collect, record, checkpoint. Knows neither Ray nor torch."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from ..errors import DualfedError
from ..privacy.grants import Grants
from .client_errors import events_of
from .fleet import Fleet
from .ledger_port import LedgerPort
from .messages import Answer, ClientError, Failed, Lost, Outcome
from .rounds_in_time import RoundsInTime
from .settings import RunSettings
from .timing import Timekeeper, TimeSettings

if TYPE_CHECKING:
    from .plan import Plan

_REBUILDS = 5
Ending = Literal["completed", "stopped", "exhausted", "failed"]


class ClientFailed(RuntimeError):
    """A client's own code raised. Says where and shows that error's traceback."""

    def __init__(self, where: str, trace: str) -> None:
        self.where, self.trace = where, trace
        super().__init__(f"{where}:\n{trace}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.where, self.trace)


class Recorder(Protocol):
    """Whoever keeps what happens. Called in the order of the rounds, from one thread."""

    def take(self, event: dict[str, Any]) -> None: ...
    def flush(self) -> None: ...


class RoundLoop(ABC):
    """One run. Subclasses say what a round sends to the hosts and what it does with their answers.

    Args:
        settings, plan: the run, worked out before.
        fleet: the hosts; ledger: who grants releases; recorder: who keeps the events.
        listen: called with every event besides, for whoever watches.
    """

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        fleet: Fleet,
        ledger: LedgerPort,
        recorder: Recorder,
        listen: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._settings, self._plan, self._fleet, self._ledger = settings, plan, fleet, ledger
        self._recorder, self._listen = recorder, listen
        self._stop = threading.Event()
        self._host_of = np.empty(settings.clients, dtype=np.int64)
        for host, members in enumerate(settings.hosts):
            self._host_of[members] = host
        self._exhausted = np.zeros(settings.clients, dtype=bool)
        self._counters: dict[str, Any] = {"bytes_down": 0, "bytes_up": 0, "refused": 0, "lost": 0}
        if settings.on_error != "stop":
            self._counters["errors"] = 0
        if settings.time is not None:
            self._counters["simulated_s"] = 0.0
        self._time: RoundsInTime | None = None if settings.time is None else self._clock(settings.time)
        self._clipped = np.zeros(2, dtype=np.int64)  # clipped releases, all releases, since the last evaluation
        self._done = 0
        self._failure: Failed | None = None
        self._failed_where = ""

    def _clock(self, settings: TimeSettings) -> RoundsInTime:
        """Simulated time, for a run in which something takes time."""
        keeper = Timekeeper(settings, self._settings.clients)
        return RoundsInTime(keeper, self._fleet, self._host_of, self._emit, self._recorder)

    @abstractmethod
    def model(self) -> np.ndarray:
        """The released model ``[d]`` after the last round."""

    @abstractmethod
    def _enter(self, outcomes: dict[int, Outcome], checkpoint: Path | None) -> None:
        """Take in what each host starts from: the answers to ``enter``, or to ``restore`` from a checkpoint."""

    @abstractmethod
    def _send(self, t: int, grants: Grants | None) -> dict[int, Any]:
        """Start round ``t`` on the hosts; tickets by host."""

    @abstractmethod
    def _absorb(self, t: int, grants: Grants | None, outcomes: dict[int, Outcome]) -> tuple[int, float]:
        """Take in the hosts' answers, lost and failed ones too; (releases made, longest host's seconds)."""

    @abstractmethod
    def _record_states(self, t: int) -> None:
        """Emit all clients' states after round ``t``, for a simulation that records them."""

    @abstractmethod
    def _ask(self, t: int) -> None:
        """Start to evaluate the model after round ``t``."""

    @abstractmethod
    def _answer(self) -> None:
        """Finish the evaluations that were started."""

    def request_stop(self) -> None:
        """End after the round in progress, with a checkpoint; what was reserved and never sent is voided."""
        self._stop.set()

    def run(self) -> Ending:
        """All rounds, or as many as can be. Returns how the run ended; raises what a client raised."""
        self._begin()
        try:
            ending = self._rounds()
        finally:
            if self._time is not None:
                self._time.report(self._done)
            self._recorder.flush()
        self._emit({"kind": "ended", "round": self._done, "ending": ending})
        self._recorder.flush()
        if self._failure is not None:
            error = self._failure.error
            raise error if isinstance(error, DualfedError) else ClientFailed(self._failed_where, self._failure.trace)
        return ending

    def _begin(self) -> None:
        self._emit({"kind": "started", "round": 0, "processes": self._fleet.processes()})
        checkpoint = latest_checkpoint(self._settings.checkpoints)
        if checkpoint is None:
            self._enter(self._everyone("enter"), None)
            self._ask(0)
            return
        saved = json.loads((checkpoint / "state.json").read_text())
        self._done = saved["round"]
        self._exhausted[saved["exhausted"]] = True
        self._counters = saved["counters"]
        if self._time is not None:
            self._time.load(saved["time"])
        self._enter(self._everyone("restore", str(checkpoint)), checkpoint)
        self._emit({"kind": "resumed", "round": self._done})

    def _everyone(self, name: str, *arguments: Any) -> dict[int, Outcome]:
        """Call all hosts before the first round; one that is lost meanwhile is started again."""
        outcomes = self._fleet.everyone(name, *arguments)
        for _attempt in range(_REBUILDS):
            lost = [host for host, outcome in outcomes.items() if isinstance(outcome, Lost)]
            for host in lost:
                self._fleet.rebuild(host)
            outcomes |= self._fleet.gather({host: self._fleet.call(host, name, *arguments) for host in lost})
        return outcomes

    def _rounds(self) -> Ending:
        settings, last = self._settings, self._settings.rounds
        reservation = self._reserve(self._done + 1)
        while self._done < last:
            t = self._done + 1
            began = time.perf_counter()
            granted = self._granted(t, reservation)
            grants = granted if self._time is None else self._time.schedule(t, granted, self._counters)
            reservation = self._reserve(t + 1)  # before the work, which in one process takes until it is done
            tickets = self._send(t, grants)
            outcomes = self._fleet.gather(tickets)
            if settings.on_error != "stop":
                outcomes = self._despite_errors(t, outcomes)
            if self._time is not None:
                self._time.wait()
            released, busy = self._absorb(t, grants, outcomes)
            if self._failure is not None:
                self._withdraw(reservation)
                return "failed"
            self._done = t
            self._answer()
            self._emit(
                {
                    "kind": "round",
                    "round": t,
                    "participants": 0 if granted is None else len(granted.clients),
                    "released": released,
                    "seconds": time.perf_counter() - began,
                    "host_seconds": busy,
                    **({} if self._time is None else {"simulated_s": self._time.now}),
                }
            )
            if settings.record_states:
                self._record_states(t)
            if t == last:
                self._finish()
            if t % settings.evaluate_every == 0 or t == last:
                self._ask(t)
            if self._stop.is_set() and t < last:
                self._withdraw(reservation)
                self._checkpoint()
                return "stopped"
            if t < last and self._nobody_left(t):
                self._withdraw(reservation)
                self._finish()
                if t % settings.evaluate_every:
                    self._ask(t)
                self._checkpoint()
                return "exhausted"
            if t % settings.checkpoint_every == 0 or t == last:
                self._checkpoint()
        return "completed"

    def _reserve(self, t: int) -> Any:
        if t > self._settings.rounds:
            return None
        chosen = self._plan.participants[t - 1]
        willing = chosen[~self._exhausted[chosen]]
        if self._time is not None:
            willing = self._time.present(willing, t)
        return self._ask_for(t, willing) if len(willing) else None

    def _ask_for(self, t: int, willing: np.ndarray) -> Any:
        """Start a reservation, or give the grants of a round that is not charged."""
        events = self._plan.events_of(t, willing)
        if events[0] < 0:  # a round that reveals nothing new: nobody is asked, and its gate lets nothing out
            return Grants(t, willing, np.full(len(willing), -1), events)
        return self._ledger.reserve(t, willing, events)

    def _withdraw(self, reservation: Any) -> None:
        if reservation is not None and not isinstance(reservation, Grants):
            grants, _ = self._ledger.collect(reservation)
            self._ledger.void(grants)

    def _granted(self, t: int, reservation: Any) -> Grants | None:
        if reservation is None or isinstance(reservation, Grants):
            return reservation
        grants, refusals = self._ledger.collect(reservation)
        for refusal in refusals:
            self._exhausted[refusal.client] = True
            self._counters["refused"] += 1
            self._emit({"kind": "refused", "round": t, "client": int(refusal.client), "reason": refusal.reason})
        return grants

    def _failed(self, t: int, clients: np.ndarray, outcome: Failed) -> None:
        """Keep the first error that a host raised; the run ends after this round."""
        if self._failure is None:
            self._failure = outcome
            self._failed_where = f"host {outcome.host} (clients {_named(clients)}), round {t}"
            error = {"error": str(outcome.error), "trace": outcome.trace}
            self._emit({"kind": "failed", "round": t, "host": outcome.host, "clients": clients.tolist(), **error})

    def _despite_errors(self, t: int, outcomes: dict[int, Outcome]) -> dict[int, Outcome]:
        """Tell the errors of clients and let them try again, if they may; the outcomes with what that came to."""
        return outcomes

    def _tell_errors(self, t: int, errors: Sequence[ClientError]) -> None:
        if errors:
            for event in events_of(t, errors, first=not self._counters.get("errors")):
                self._emit(event)
            self._counters["errors"] = self._counters.get("errors", 0) + len(errors)

    def _grant_again(self, t: int, errors: Sequence[ClientError]) -> Grants | None:
        """New grants, charged, for clients that raised; None where nobody may try again."""
        clients = np.sort(np.array([error.client for error in errors], dtype=np.int64))
        grants = self._granted(t, self._ask_for(t, clients))
        return grants if grants is not None and len(grants) else None

    def _void_from(self, t: int) -> int:
        """The first stamp of round ``t``: what a host wrote from then on does not count if the round does not."""
        return t

    def _finish(self) -> None:  # noqa: B027 (most methods have nothing to do here)
        """What comes after the last round and before its evaluation."""

    def _rebuild(self, t: int, clients: np.ndarray, lost: Lost, void_from: int | None = None) -> Any:
        """A lost host: ``clients`` did not take part in round ``t``, their charge stands, and all of the host's clients
        return to their last release. The answer to ``take_back``."""
        self._counters["lost"] += len(clients)
        self._emit({"kind": "lost", "round": t, "host": lost.host, "clients": clients.tolist(), "reason": lost.reason})
        for _attempt in range(_REBUILDS):  # what was started on a node that is about to be lost is lost with it
            self._fleet.rebuild(lost.host)
            ticket = self._fleet.call(lost.host, "take_back", self._void_from(t) if void_from is None else void_from)
            outcome = self._fleet.gather({lost.host: ticket})[lost.host]
            if not isinstance(outcome, Lost):
                break
        answer = self._value(outcome)
        self._emit({"kind": "rebuilt", "round": t, "host": lost.host, "processes": self._fleet.processes()})
        return answer

    def _of_host(self, grants: Grants | None, host: int) -> np.ndarray:
        """The granted clients of a host."""
        return np.empty(0, np.int64) if grants is None else grants.clients[self._host_of[grants.clients] == host]

    def _nobody_left(self, t: int) -> bool:
        return bool(self._exhausted.any()) and all(
            self._exhausted[chosen].all() for chosen in self._plan.participants[t:] if len(chosen)
        )

    def _checkpoint(self) -> None:
        self._answer()
        self._recorder.flush()
        if (root := self._settings.checkpoints) is None:
            return
        root.mkdir(mode=0o700 if not self._settings.state_is_released else 0o777, exist_ok=True)
        partial = root / ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        self._save(partial)
        self._insist({h: ("save", str(partial / f"clients-{h:05d}.safetensors")) for h in range(self._fleet.hosts)})
        state = {
            "version": 1,
            "round": self._done,
            "exhausted": np.flatnonzero(self._exhausted).tolist(),
            "counters": self._counters,
            "journal": self._ledger.answer(self._ledger.ask("where")),
        }
        if self._time is not None:
            state["time"] = self._time.save()
        (partial / "state.json").write_text(json.dumps(state))
        os.replace(partial, root / f"round-{self._done:08d}")
        for older in sorted(root.glob("round-*"))[:-1]:
            shutil.rmtree(older)

    def _save(self, folder: Path) -> None:  # noqa: B027 (a graph has no server)
        """Put what the coordinator itself must keep beside the hosts' files of a checkpoint."""

    def _emit(self, event: dict[str, Any]) -> None:
        self._recorder.take(event)
        if self._listen is not None and event["kind"] != "states":
            self._listen(event)

    def _insist(self, calls: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Values of calls ``{host: (name, *arguments)}`` between rounds; a host that is lost is rebuilt and asked again."""
        outcomes = self._fleet.gather({host: self._fleet.call(host, *call) for host, call in calls.items()})
        for host, outcome in outcomes.items():
            if isinstance(outcome, Lost):
                self._rebuild(self._done + 1, np.empty(0, np.int64), outcome)
                outcomes[host] = self._fleet.gather({host: self._fleet.call(host, *calls[host])})[host]
        return {host: self._value(outcome) for host, outcome in outcomes.items()}

    @staticmethod
    def _value(outcome: Outcome) -> Any:
        if isinstance(outcome, Answer):
            return outcome.value
        if isinstance(outcome, Failed):
            raise outcome.error
        raise RuntimeError(f"host {outcome.host} was lost twice in a row: {outcome.reason}")


def _named(clients: np.ndarray) -> str:
    shown = ", ".join(str(client) for client in clients[:8])
    return shown if len(clients) <= 8 else f"{shown}, … {len(clients)} in all"


def latest_checkpoint(root: Path | None) -> Path | None:
    """The newest complete checkpoint below ``root``."""
    found = sorted(root.glob("round-*/state.json")) if root is not None and root.is_dir() else []
    return found[-1].parent if found else None
