"""The Ray engine: a ledger actor, a coordinator actor, one actor a host; the calling process only watches."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError

from ..errors import RunBroken
from .cluster import local_cluster
from .job import Finished, Job, Listener, on_interrupt
from .ledger_actor import RayLedger, result, start_ledger, whereabouts
from .loop import Ending, Recorder, RoundLoop
from .mirror import start_mirror
from .nodes import nodes, on_node
from .plan import Plan
from .ray_fleet import RayFleet
from .run_gauges import RunGauges
from .settings import RunSettings

_POLL_S = 0.2


def _carry_own_files() -> None:
    """Methods from a user's own file travel with their code: no other process can import them by name."""
    from ..algorithms.own_file import MODULES

    for name, module in list(sys.modules.items()):
        if name.startswith(MODULES):
            ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


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
        labels: dict[str, str],
        home: str,
        mirror: Any,
    ) -> None:
        self._fleet = RayFleet(specs, shards, test, home, gpus_per_host, mirror)
        self._events: deque[dict[str, Any]] = deque(maxlen=100_000)
        self._count, self._changed = 0, threading.Condition()
        self._gauges = RunGauges(labels, plan.budgets)
        self._ledger = RayLedger(ledger)
        self._coordinator = loop(settings, plan, self._fleet, self._ledger, recorder, self._heard)

    def run(self) -> tuple[Ending, np.ndarray]:
        self._heard({"kind": "placed", "round": 0, "coordinator": os.getpid(), "ledger": self._ledger.process()})
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
        self._gauges.take(event)
        with self._changed:
            self._events.append(event)
            self._count += 1
            self._changed.notify_all()


def run_ray(job: Job, listen: Listener, cpus: int) -> Finished:
    """Run on the cluster that this process is connected to, or on one of its own. Ctrl-C ends after the round in progress.

    Whatever reads and writes the run's folder is on this node: ledger, coordinator and the mirror of states elsewhere.
    Raises what a client or the ledger raised, as it was raised there.
    """
    stopping = threading.Event()
    started: list[Any] = []

    def stop() -> None:
        stopping.set()
        for actor in started:
            with contextlib.suppress(Exception):  # one that has ended meanwhile needs no stop
                actor.request_stop.remote()

    # From the first moment on: an interrupt while Ray starts becomes a stop after the first round.
    _carry_own_files()
    with on_interrupt(stop), local_cluster(cpus):
        home = ray.get_runtime_context().get_node_id()
        mirror = start_mirror(home) if len(nodes()) > 1 else None
        ledger: Any = start_ledger(job.ledger, home)
        listen({"kind": "connected", "round": 0, **whereabouts(job.ledger)})
        coordinator = _start_coordinator(job, ledger, home, mirror)
        try:
            running = coordinator.run.remote()
            started.append(coordinator)
            if stopping.is_set():
                stop()
            _watch(coordinator, running, listen)
            ending, model = result(running)
            return Finished(ending, model)
        except RayActorError as error:
            if "creation task" in str(error):  # not lost: a defect
                raise
            raise RunBroken(
                f"the coordinator's process was lost; go on with `dualfed resume {job.settings.folder}`"
            ) from None
        finally:
            with contextlib.suppress(RayError):
                # Closing folds the write-ahead log into the journal; a journal that is not closed is whole all the same.
                ray.get(ledger.call.remote("close"), timeout=10)
            for actor in (coordinator, ledger, mirror):  # the hosts belong to the coordinator and end with it
                if actor is not None:
                    ray.kill(actor)


def _start_coordinator(job: Job, ledger: Any, home: str, mirror: Any) -> Any:
    return (
        ray.remote(CoordinatorActor)
        .options(num_cpus=0, max_concurrency=4, scheduling_strategy=on_node(home))
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
            {"run": job.ledger.meta["run"], "name": job.name, "status": job.ledger.meta["status"]},
            home,
            mirror,
        )
    )


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
