"""A run made ready: everything the engines need, and the engine that runs it in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .coordinator import Coordinator
from .fleet import InlineFleet
from .ledger_port import InlineLedger
from .loop import Ending, Recorder, RoundLoop
from .messages import HostShard
from .plan import Plan
from .settings import RunSettings

if TYPE_CHECKING:
    from .host import HostSpec

Listener = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class LedgerSpec:
    """What the ledger of a run is. Opened by the process that keeps it.

    Attributes:
        path: its journal; created, or continued where it exists.
        meta: facts of the run that the journal states: unit, noise, method.
    """

    path: str
    clients: int
    plan: Plan
    meta: dict[str, Any]

    def create(self) -> None:
        """Make the empty journal of a new run, before anything else of the run is written."""
        from ..privacy.ledger import Ledger

        plan = self.plan
        Ledger(self.path, self.clients, delta=plan.delta, budgets=plan.budgets, caps=plan.caps, meta=self.meta).close()

    def open(self) -> Any:
        """The ledger, with the plan's events registered and its planned accounts certified against the budgets."""
        from .run_ledger import RunLedger

        plan = self.plan
        ledger = RunLedger(
            self.path, self.clients, delta=plan.delta, budgets=plan.budgets, caps=plan.caps, meta=self.meta
        )
        ledger.register(plan.events)
        within = ledger.certify(plan.planned)
        if self.meta["mode"] == "total" and not within.all():
            raise RuntimeError(f"the noise planned for client {int((~within).argmax())} does not keep its budget")
        return ledger


@dataclass(frozen=True)
class Job:
    """A run made ready.

    Attributes:
        specs, shards: what each host is and holds; test: the held-out records.
        loop: who drives the rounds.
        gpus_per_host: what Ray reserves for each host.
    """

    name: str
    settings: RunSettings
    plan: Plan
    specs: list[HostSpec]
    shards: list[HostShard]
    test: HostShard
    ledger: LedgerSpec
    recorder: Recorder
    loop: type[RoundLoop] = Coordinator
    gpus_per_host: float = 0.0


@dataclass(frozen=True)
class Finished:
    """How a run ended, and the released model ``[d]`` after its last round."""

    ending: Ending
    model: np.ndarray


def run_inline(job: Job, listen: Listener) -> Finished:
    """Run without Ray, in this process, on the threads that the hosts ask for. Ctrl-C ends after the round in progress."""
    import torch

    ledger = InlineLedger(job.ledger.open)
    threads = torch.get_num_threads()
    try:
        fleet = InlineFleet(job.specs, job.shards, job.test)
        coordinator = job.loop(job.settings, job.plan, fleet, ledger, job.recorder, listen)
        with on_interrupt(coordinator.request_stop):
            ending = coordinator.run()
        return Finished(ending, coordinator.model())
    finally:
        ledger.close()
        torch.set_num_threads(threads)


_to_stop: list[Callable[[], object]] = []
_asked = threading.Event()


def interrupt() -> None:
    """Ask the run of this process to stop as Ctrl-C would, from any thread; one that has yet to begin stops as it begins."""
    _asked.set()
    for stop in list(_to_stop):
        stop()


@contextmanager
def on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM, or ``interrupt``, into a request to stop; a second SIGINT interrupts at once.

    Outside the main thread signals cannot be handled, and are left as they are.
    """
    _to_stop.append(stop)
    try:
        if _asked.is_set():
            stop()
        with _on_signal(stop):
            yield
    finally:
        _to_stop.remove(stop)


@contextmanager
def stoppable() -> Iterator[None]:
    """From here on a signal asks for a stop even while the run is still being set up: it then stops as it begins."""
    with on_interrupt(_asked.set):
        try:
            yield
        finally:
            _asked.clear()


@contextmanager
def _on_signal(stop: Callable[[], object]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _frame: object) -> None:
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
