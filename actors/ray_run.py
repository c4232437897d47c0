"""The Ray engine: a ledger actor, a coordinator actor, one actor a host; the calling process only watches."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from ..errors import RunBroken
from .cluster import local_cluster
from .job import Finished, Job, LedgerSpec, Listener, on_interrupt
from .ledger_port import LedgerPort
from .loop import Ending, Recorder, RoundLoop, RunSettings
from .plan import Plan
from .ray_fleet import RayFleet

if TYPE_CHECKING:
    from ..privacy.ledger import Grants, Refusal

_POLL_S = 0.2


def _carry_own_files() -> None:
    """Methods from a user's own file travel with their code: no other process can import them by name."""
    from ..algorithms.own_file import MODULES

    for name, module in list(sys.modules.items()):
        if name.startswith(MODULES):
            ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class LedgerActor:
    """Keeps the ledger in a process of its own. Restarted from its journal if it is lost."""

    def __init__(self, spec: LedgerSpec) -> None:
        self._ledger = spec.open()

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._ledger, name)(*arguments)


class RayLedger(LedgerPort):
    """The ledger's actor. While it is away nothing is granted, so nothing is released."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def reserve(self, round: int, clients: np.ndarray, events: np.ndarray) -> Any:
        return self._actor.call.remote("reserve", round, clients, events)

    def collect(self, ticket: Any) -> tuple[Grants, list[Refusal]]:
        grants, refusals = _get(ticket)
        return grants, refusals

    def void(self, grants: Grants) -> None:
        _get(self._actor.call.remote("void", grants))

    def ask(self, name: str, *arguments: Any) -> Any:
        return self._actor.call.remote(name, *arguments)

    def answer(self, ticket: Any) -> Any:
        return _get(ticket)


class CoordinatorActor:
    """Runs the coordinator in one thread and answers those who watch in others."""

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        specs: Sequence[Any],
        shards: Sequence[Any],
        test: Any,
        ledger: Any,
        recorder: Recorder,
        loop: type[RoundLoop],
        gpus_per_host: float,
    ) -> None:
        self._fleet = RayFleet(specs, shards, test, gpus_per_host)
        self._events: deque[dict[str, Any]] = deque(maxlen=100_000)
        self._count, self._changed = 0, threading.Condition()
        self._coordinator = loop(settings, plan, self._fleet, RayLedger(ledger), recorder, self._heard)

    def run(self) -> tuple[Ending, np.ndarray]:
        ending = self._coordinator.run()
        return ending, self._coordinator.model()

    def request_stop(self) -> None:
        self._coordinator.request_stop()

    def poll(self, since: int, timeout_s: float) -> tuple[int, list[dict[str, Any]]]:
        """Events from number ``since`` on, waiting up to ``timeout_s`` for one; the number of the next."""
        with self._changed:
            if self._count <= since:
                self._changed.wait(timeout_s)
            fresh = self._count - since
            return self._count, list(self._events)[-fresh:] if fresh > 0 else []

    def _heard(self, event: dict[str, Any]) -> None:
        with self._changed:
            self._events.append(event)
            self._count += 1
            self._changed.notify_all()


def run_ray(job: Job, listen: Listener, cpus: int) -> Finished:
    """Run on a Ray cluster of this process's own. Ctrl-C ends after the round in progress.

    Raises what a client or the ledger raised, as it was raised there.
    """
    stopping = threading.Event()
    started: list[Any] = []

    def stop() -> None:
        stopping.set()
        for actor in started:
            actor.request_stop.remote()

    # From the first moment on: an interrupt while Ray starts becomes a stop after the first round.
    _carry_own_files()
    with on_interrupt(stop), local_cluster(cpus):
        ledger: Any = (
            ray.remote(LedgerActor).options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote(job.ledger)
        )
        coordinator: Any = (
            ray.remote(CoordinatorActor)
            .options(num_cpus=0, max_concurrency=4)
            .remote(
                job.settings,
                job.plan,
                [ray.put(spec) for spec in job.specs],
                [ray.put(shard) for shard in job.shards],
                ray.put(job.test),
                ledger,
                job.recorder,
                job.loop,
                job.gpus_per_host,
            )
        )
        try:
            running = coordinator.run.remote()
            started.append(coordinator)
            if stopping.is_set():
                stop()
            _watch(coordinator, running, listen)
            ending, model = _get(running)
            return Finished(ending, model)
        except RayActorError:
            raise RunBroken(
                f"the coordinator's process was lost; go on with `dualfed resume {job.settings.folder}`"
            ) from None
        finally:
            with contextlib.suppress(RayError):
                # Closing folds the write-ahead log into the journal; a journal that is not closed is whole all the same.
                ray.get(ledger.call.remote("close"), timeout=10)
            for actor in (coordinator, ledger):  # the hosts belong to the coordinator and end with it
                ray.kill(actor)


def _watch(coordinator: Any, running: Any, listen: Listener) -> None:
    since, over = 0, False
    while not over:
        over = bool(ray.wait([running], timeout=0)[0])
        try:
            since, events = ray.get(coordinator.poll.remote(since, 0.0 if over else _POLL_S))
        except ray.exceptions.RayActorError:
            return  # the coordinator is gone; collecting ``running`` says why
        for event in events:
            listen(event)
        if not over:
            time.sleep(_POLL_S / 4)  # gather a few events a call instead of one


def _get(ticket: Any) -> Any:
    try:
        return ray.get(ticket)
    except RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
