"""A run held by an actor on a cluster's head node: it goes on whoever watches it, and its folder is there."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError

from ..errors import RunBroken
from .cluster import NAMESPACE
from .job import Listener, interrupt
from .ledger_actor import result
from .nodes import head_node, on_node

_PREFIX = "run-"
_KEPT_EVENTS = 200_000
_POLL_S = 0.5
_LINGER_S = 60.0
_COPIED = "runtime_resources"

Work = Callable[[Any, Listener], str]


@dataclass(frozen=True)
class Told:
    """What a holder answers to whoever watches: events from a number on, and the number of the next."""

    next: int
    events: list[dict[str, Any]]
    over: bool
    folder: str | None


class RunHolder:
    """Does one run in a thread and answers those who watch."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=_KEPT_EVENTS)
        self._count, self._changed = 0, threading.Condition()
        self._over = False
        self._folder: str | None = None
        self._error: Exception | None = None
        self._ended: str | None = None

    def begin(self, work: Work, request: Any, base: str | None, mark: str) -> bool:
        """Start the run; whether the file ``mark`` of whoever asks is seen here, so that both see the same folders.

        Args:
            work: does ``request`` and returns the run's folder; called with a listener of the run's events.
            base: where relative paths count from, if it is seen here; else that is the user's home on this machine.
        """
        seen = Path(mark).exists()
        os.chdir(base if seen and base is not None else Path.home())
        threading.Thread(target=self._carry_out, args=(work, request), daemon=True).start()
        return seen

    def poll(self, since: int, timeout_s: float) -> Told:
        """Events from number ``since`` on, waiting up to ``timeout_s`` for one."""
        with self._changed:
            if self._count <= since and not self._over:
                self._changed.wait(timeout_s)
            fresh = self._count - since
            return Told(self._count, list(self._events)[-fresh:] if fresh > 0 else [], self._over, self._folder)

    def request_stop(self) -> None:
        """End after the round in progress, with a checkpoint."""
        interrupt()

    def outcome(self) -> str:
        """The folder of the run that is over; raises what ended it."""
        if self._error is not None:
            raise self._error
        assert self._ended is not None
        return self._ended

    def _carry_out(self, work: Work, request: Any) -> None:
        try:
            self._ended = work(request, self._heard)
        except Exception as error:
            self._error = error
        with self._changed:
            self._over = True
            self._changed.notify_all()
        threading.Timer(
            _LINGER_S, os._exit, (0,)
        ).start()  # for whoever still wants the outcome; the folder tells the rest

    def _heard(self, event: dict[str, Any]) -> None:
        with self._changed:
            if event["kind"] == "prepared":
                self._folder = str(Path(event["folder"]).resolve())
            self._events.append(event)
            self._count += 1
            self._changed.notify_all()


def start_holder(run: str) -> Any:
    """An actor on the cluster's head node that will hold a run, and outlives this process."""
    options = {
        "name": _PREFIX + run,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_concurrency": 16,
        "scheduling_strategy": on_node(head_node().id),
    }
    return ray.remote(RunHolder).options(**options).remote()


def begin(holder: Any, work: Work, request: Any) -> bool:
    """Have a run started; whether its folder will be seen by this process under the same path."""
    here = Path.cwd()
    with contextlib.ExitStack() as stack:
        try:
            mark = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".dualfed-", dir=here)).name
        except OSError:
            mark = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".dualfed-")).name
        # A submitted job runs in a copy of its files, which Ray removes by and by.
        base = None if _COPIED in here.parts else str(here)
        return bool(ray.get(holder.begin.remote(work, request, base, mark)))


def cluster_facts() -> dict[str, str]:
    """How the run that this process holds can be found: the cluster's address and mode of authentication, and the name."""
    context = ray.get_runtime_context()
    mode = "token" if os.environ.get("RAY_AUTH_MODE", "").lower() == "token" else "disabled"
    return {"address": context.gcs_address, "auth": mode, "actor": context.get_actor_name() or ""}


def holder_named(actor: str) -> Any:
    """The holder of a run by its actor's name. Raises ValueError if it is gone."""
    return ray.get_actor(actor, namespace=NAMESPACE)


def ask_holder_to_stop(holder: Any) -> bool:
    """Ask a held run to stop after its round in progress; False where it has ended meanwhile."""
    try:
        ray.get(holder.request_stop.remote())
    except ray.exceptions.RayActorError:
        return False
    return True


def holders() -> Iterator[tuple[str, Any]]:
    """(folder, actor) of every run that is held on the cluster now."""
    for each in ray.util.list_named_actors(all_namespaces=True):
        if each["namespace"] == NAMESPACE and each["name"].startswith(_PREFIX):
            try:
                actor: Any = ray.get_actor(each["name"], namespace=NAMESPACE)
                told: Told = result(actor.poll.remote(0, 0.0))
            except (ValueError, RayActorError):
                continue  # it ended meanwhile
            if told.folder is not None and not told.over:
                yield told.folder, actor


def watch_holder(holder: Any, listen: Listener) -> str:
    """Tell ``listen`` what happens until the run is over; its folder on the head. Raises what ended the run."""
    since, folder = 0, None
    try:
        while True:
            told: Told = ray.get(holder.poll.remote(since, _POLL_S))
            since, folder = told.next, told.folder or folder
            for event in told.events:
                listen(event)
            if told.over:
                return str(result(holder.outcome.remote()))
    except RayActorError as error:
        where = "" if folder is None else f"; go on with `dualfed resume {folder}`"
        raise RunBroken(f"the process that held the run was lost ({str(error).splitlines()[0]}){where}") from None


def let_go(holder: Any) -> None:
    """End the holder of a run that is over."""
    ray.kill(holder)


def wait_until_prepared(holder: Any) -> str:
    """The folder of a run that has begun. Raises what kept it from beginning."""
    since = 0
    while True:
        told: Told = ray.get(holder.poll.remote(since, _POLL_S))
        since = told.next
        if told.folder is not None:
            return told.folder
        if told.over:
            try:
                return str(result(holder.outcome.remote()))
            finally:
                let_go(holder)
