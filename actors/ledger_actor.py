"""The ledger's actor: charges in one thread, questions in others, so that nobody who asks keeps a run waiting."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import RayTaskError

from .cluster import NAMESPACE
from .job import LedgerSpec
from .ledger_desk import LedgerDesk
from .ledger_port import LedgerPort
from .line import Extension, LineGone, LineServer
from .nodes import on_node

if TYPE_CHECKING:
    from ..privacy.ledger import Grants, Refusal

_QUESTIONS = "questions"
_QUERY_THREADS = 4
_QUESTIONS_LOAD = 0.03
_SWITCH_S = 0.0005
_NAME_TAKEN_S = 10.0


def actor_name(run: str) -> str:
    """The name of a run's ledger in the namespace ``dualfed``; ``run`` is the run's id."""
    return f"ledger-{run}"


class LedgerActor:
    """Keeps the ledger in a process of its own. Restarted from its journal if it is lost.

    ``call`` is for the coordinator alone. ``ask`` answers anybody, from a copy of the ledger that reads the journal, in
    threads that share no lock with the charges; ``line`` tells who is on the same machine a shorter way to the same.
    """

    def __init__(self, spec: LedgerSpec) -> None:
        # A charge that becomes ready while a question is computed gets the interpreter back after half a millisecond.
        sys.setswitchinterval(_SWITCH_S)
        self._ledger = spec.open()
        self._folder = Path(spec.path).parent
        self._desk: LedgerDesk | None = None
        self._line: LineServer | None = None
        self._opening = threading.Lock()

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._ledger, name)(*arguments)

    def process(self) -> int:
        return os.getpid()

    @ray.method(concurrency_group=_QUESTIONS)
    def ask(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """One of ``ledger_desk.QUESTIONS``."""
        return self._answer(question, arguments)

    def _answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        with self._opening:
            if self._desk is None:
                self._desk = LedgerDesk(self._folder, load=_QUESTIONS_LOAD)
        answer = self._desk.ask(question, **arguments)
        if question == "about" and answer["state"] == "unknown":  # the driver is on another machine, and this is alive
            answer["state"] = "running"
        return answer

    @ray.method(concurrency_group=_QUESTIONS)
    def line(self) -> Extension | None:
        """Where askers on this machine get the same answers; None where there can be no line."""
        with self._opening:
            if self._line is None:
                try:
                    self._line = LineServer(self._answer)
                except (LineGone, OSError):
                    return None
            return self._line.extension


def whereabouts(spec: LedgerSpec) -> dict[str, str]:
    """Where a process elsewhere finds the run's ledger: the cluster's address, how it knows its users, and the name."""
    return {
        "address": ray.get_runtime_context().gcs_address,
        "auth": os.environ.get("RAY_AUTH_MODE", "disabled").lower(),
        "ledger": actor_name(spec.meta["run"]),
        "namespace": NAMESPACE,
    }


def start_ledger(spec: LedgerSpec, node: str) -> Any:
    """Start a run's ledger under its name, on the node with its journal. The one that a lost driver left behind gives way."""
    grouped: Any = ray.remote(concurrency_groups={_QUESTIONS: _QUERY_THREADS})  # type: ignore[call-overload]
    actor = grouped(LedgerActor).options(
        name=actor_name(spec.meta["run"]),
        namespace=NAMESPACE,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        scheduling_strategy=on_node(node),
    )
    # The ledger asks nothing of the single rounds, and a small argument is kept with the actor, for a restart.
    spec = replace(spec, plan=spec.plan.without_rounds())
    deadline = time.monotonic() + _NAME_TAKEN_S
    while True:
        try:
            return actor.remote(spec)
        except ValueError:  # the name is taken
            if time.monotonic() > deadline:
                raise
            _end(spec.meta["run"])
            time.sleep(0.1)


def _end(run: str) -> None:
    try:
        ray.kill(ray.get_actor(actor_name(run), namespace=NAMESPACE))
    except ValueError:  # it is gone already
        return


class RayLedger(LedgerPort):
    """The ledger's actor. While it is away nothing is granted, so nothing is released."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def reserve(self, round: int, clients: np.ndarray, events: np.ndarray) -> Any:
        return self._actor.call.remote("reserve", round, clients, events)

    def collect(self, ticket: Any) -> tuple[Grants, list[Refusal]]:
        grants, refusals = result(ticket)
        return grants, refusals

    def void(self, grants: Grants) -> None:
        result(self._actor.call.remote("void", grants))

    def ask(self, name: str, *arguments: Any) -> Any:
        return self._actor.call.remote(name, *arguments)

    def answer(self, ticket: Any) -> Any:
        return result(ticket)

    def process(self) -> int:
        """The process that keeps the ledger, once it is up."""
        return int(result(self._actor.process.remote()))


def result(ticket: Any) -> Any:
    """What a call of an actor returned; raises what it raised, as it was raised there."""
    try:
        return ray.get(ticket)
    except RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
