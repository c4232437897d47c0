"""A run in this process whose hosts are watched: what passed their gates, and what becomes of it when one is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..actors.fleet import InlineFleet
from ..actors.job import Job
from ..actors.ledger_port import InlineLedger
from ..actors.messages import Lost
from ..privacy.gate import NoiseGate
from .config import parse
from .prepare import Given, prepare
from .recorder import FileRecorder
from .simulate import client_table

_ROUND_CALLS = ("round", "step", "begin")


class Release(NamedTuple):
    """A value of a client that left through the gate, under the grant of this number."""

    client: int
    round: int
    number: int
    part: int


class Loss(NamedTuple):
    """A host that is lost in a round, after its clients' work and before its answer."""

    host: int
    round: int


@dataclass(frozen=True)
class Watched:
    """What a watched run came to.

    Attributes:
        released: every value that left a client, by the gates' own count.
        charged_rounds: the rounds from 1 that are charged.
        hosts: the clients of each host.
        events: all events of the run, as they were told.
        clients: one row a client, as in ``RunResult``; staleness: the same of an asynchronous run.
        states: every round's states ``{name: [T, N, d]}`` and, with a server, ``x0`` ``[T, d]``.
    """

    ending: str
    model: np.ndarray
    released: list[Release]
    charged_rounds: set[int]
    hosts: list[np.ndarray]
    events: list[dict[str, Any]]
    clients: pd.DataFrame
    staleness: pd.DataFrame
    states: dict[str, np.ndarray]

    @property
    def charges(self) -> np.ndarray:
        """``[N]``: how often the ledger charged each client."""
        return self.clients["releases"].to_numpy()

    @property
    def used_grants(self) -> np.ndarray:
        """``[N]``: under how many grants each client released something."""
        grants = {(release.client, release.number) for release in self.released}
        return np.bincount([client for client, _ in grants], minlength=len(self.clients))

    def told(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds."""
        return [event for event in self.events if event["kind"] in kinds]


class _WatchedGate(NoiseGate):
    """Writes down what it lets out."""

    seen: ClassVar[list[Release]]

    def release(self, value: Tensor, part: int = 0) -> Tensor:
        return self._noted(super().release(value, part), part)

    def release_rows(self, value: Tensor, counts: Sequence[int] | np.ndarray, part: int = 0) -> Tensor:
        return self._noted(super().release_rows(value, counts, part), part)

    def release_minimiser(self, solve: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        return self._noted(super().release_minimiser(solve, like), 0)

    def _noted(self, value: Tensor, part: int) -> Tensor:
        granted = self._granted
        for client, number in zip(granted.clients.tolist(), granted.numbers.tolist()):
            self.seen.append(Release(client, granted.round, number, part))
        return value


class WatchedFleet(InlineFleet):
    """Hosts in this process with watched gates. States are kept in files, as under Ray, for the host that is lost: its
    process is taken to end when all its work is written down and nobody has heard of it yet."""

    def __init__(self, job: Job, folder: Path, lose: Loss | None, shift: int) -> None:
        self.seen: list[Release] = []
        self._lose, self._shift = lose, shift
        self._gates: type[NoiseGate] = type("WatchedGate", (_WatchedGate,), {"seen": self.seen})
        kept = [replace(spec, state_path=str(folder / f"host-{spec.host:05d}")) for spec in job.specs]
        super().__init__(kept, job.shards, job.test)
        for member in self._members:
            member.gate_class = self._gates

    def call(self, host: int, name: str, *arguments: Any) -> Any:
        if name not in _ROUND_CALLS:
            return super().call(host, name, *arguments)
        task, *others = arguments
        charged = task.events >= 0
        outcome = super().call(host, name, replace(task, numbers=task.numbers + self._shift * charged), *others)
        if self._lose == (host, task.round):
            self._lose = None
            return Lost(host, "its process was ended")
        return outcome

    def rebuild(self, host: int) -> None:
        super().rebuild(host)
        self._members[host].gate_class = self._gates


def watched(
    tables: Mapping[str, Any],
    *,
    participation: Sequence[Sequence[int]] | None = None,
    lose: Loss | None = None,
    shift: int = 0,
) -> Watched:
    """Run a configuration to its end in this process, and keep no folder.

    Args:
        participation: as in ``simulate``.
        lose: the host that is lost, once.
        shift: added to the numbers of all grants on their way to the hosts, as if as many had been voided before.

    Raises:
        InvalidValue: whatever is wrong with the configuration; nothing was run.
    """
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="dualfed-watched-") as place:
        folder = Path(place)
        (folder / "hosts").mkdir(mode=0o700)
        config = parse({**tables, "engine": "inline", "record_states": True})
        prepared = prepare(config, folder, Given(participation=participation))
        job, events = prepared.job, list[dict[str, Any]]()
        ledger = InlineLedger(job.ledger.open)
        try:
            fleet = WatchedFleet(job, folder / "hosts", lose, shift)
            loop = job.loop(job.settings, job.plan, fleet, ledger, job.recorder, events.append)
            ending, model = loop.run(), loop.model()
        finally:
            ledger.close()
            torch.set_num_threads(threads)
        everyone, rounds = np.arange(len(prepared.sizes)), range(1, job.settings.rounds + 1)
        recorder = job.recorder
        assert isinstance(recorder, FileRecorder)
        return Watched(
            ending=ending,
            model=model,
            released=fleet.seen,
            charged_rounds={t for t in rounds if (job.plan.events_of(t, everyone) >= 0).all()},
            hosts=job.settings.hosts,
            events=events,
            clients=client_table(prepared, folder),
            staleness=recorder.frames()["staleness"],
            states=recorder.states(),
        )
