"""What every host is: the shards and states of one or more clients, kept across a loss of its process."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..algorithms.method import Cohort, Method, State
from ..algorithms.problems.base import Problem
from ..algorithms.shards import Shards
from ..errors import InvalidValue
from ..privacy.gate import Bound, Granted, NoiseGate
from .fleet import sleep_until
from .messages import HostShard
from .opened import OpenedRecords
from .state_store import StateStore


@dataclass(frozen=True)
class Neighbourhood:
    """A host's part of the graph.

    Attributes:
        exchange: rows of the method's matrix for its own nodes, columns its own nodes and then the ghosts; scipy csr.
        mixing: Metropolis weights in the same shape, for plain gossip.
        ghosts: nodes of other hosts that neighbour one of its own, ascending.
        ghosts_of: for each neighbouring host, where its nodes stand among the ghosts.
        rows_for: for each neighbouring host, the own rows that it needs, ascending.
        degree: the largest degree of the whole graph.
    """

    exchange: Any
    mixing: Any
    ghosts: np.ndarray
    ghosts_of: dict[int, np.ndarray]
    rows_for: dict[int, np.ndarray]
    degree: int = 0


@dataclass(frozen=True)
class HostSpec:
    """What a host is, apart from its records. Travels to the actor once.

    Attributes:
        host: its number.
        clients: ``[n]`` ids of its clients, in the order of the shards.
        total_clients: N of the whole run.
        sizes, weights: ``[n]`` m_i and the public weights w_i.
        start: ``[d]`` the common public start.
        noise_multipliers: z of every event of the plan, by the event's number.
        noise_key: the key of noise and record draws; it stays in this process.
        injected: ``[T, N, d]`` values added in place of noise; tests only.
        state_path: the file that keeps the states across a loss of the process; ``None`` for memory alone.
        neighbourhood: its part of the graph, for methods over one.
        threads: torch threads of this process; ``None`` leaves them as they are.
        per_edge: whether messages between neighbours may be lost, so that the exchange goes by edges.
        device: ``cpu`` or ``cuda``: where its records and its work are.
    """

    host: int
    clients: np.ndarray
    total_clients: int
    sizes: np.ndarray
    weights: np.ndarray
    problem: Problem
    method: Method
    start: np.ndarray
    noise_multipliers: np.ndarray
    noise_key: bytes
    dtype: str = "float64"
    injected: np.ndarray | None = None
    state_path: str | None = None
    neighbourhood: Neighbourhood | None = None
    threads: int | None = None
    device: str = "cpu"
    per_edge: bool = False


class Host:
    """Holds clients. A plain class: Ray wraps it, and the inline engine calls it as it is."""

    def __init__(self, spec: HostSpec, shard: HostShard, test: HostShard) -> None:
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        self._spec, self._dtype = spec, getattr(torch, spec.dtype)
        self._problem = spec.problem
        self._device = _device(spec.device)
        self._shards = self._held(shard)
        held_out = self._held(test)
        self._test = held_out.features, held_out.labels
        self._row_of = {int(client): row for row, client in enumerate(spec.clients)}
        self._start = torch.as_tensor(spec.start, dtype=self._dtype, device=self._device)
        path = None if spec.state_path is None else Path(spec.state_path)
        self._states = StateStore(self._beginning(spec), len(spec.clients), path, self._device)
        self.gate_class: type[NoiseGate] = NoiseGate  # which somebody who watches what is released may replace
        opened = None if path is None else path.with_suffix(".records")
        self._opened = OpenedRecords(self._shards, spec.clients, opened) if spec.method.opens else None

    def ping(self) -> int:
        """The process id: the host is there."""
        return os.getpid()

    @property
    def states_kept(self) -> StateStore:
        """Its clients' states, for whoever keeps a copy of them."""
        return self._states

    def states_replaced(self) -> None:
        """Take note that all states were replaced by those of a copy."""

    def linger(self, due: np.ndarray) -> None:
        """Sleep, for each of some clients at the same time, until its time (of ``time.time``) has passed."""
        asyncio.run(sleep_until(due))

    def _beginning(self, spec: HostSpec) -> State:
        """The public state ``{name: [·]}`` in which every client starts."""
        return spec.method.init(self._start)

    def _held(self, shard: HostShard) -> Shards:
        held = Shards.from_flat(shard.features, shard.labels, shard.offsets)
        if self._device.type == "cpu":
            return held
        return Shards(held.features.to(self._device), held.labels.to(self._device), held.offsets.to(self._device))

    def save(self, path: str) -> None:
        """Write the states of clients that took part to a safetensors file that its owner alone can read."""
        slots, rounds, rows = self._states.export()
        partial = f"{path}.part"
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        tensors = {f"state.{name}": value.contiguous() for name, value in rows.items()}
        tensors["clients"], tensors["rounds"] = torch.from_numpy(self._spec.clients[slots]), torch.from_numpy(rounds)
        save_file({**tensors, **self._extra()}, partial)
        os.chmod(partial, 0o600)  # the library replaces the file
        os.replace(partial, path)

    def _extra(self) -> dict[str, Tensor]:
        """Further tensors for ``save``."""
        return {}

    def _load(self, folder: str) -> None:
        """Take this host's clients out of a checkpoint's files, whatever layout wrote them."""
        slots: list[int] = []
        rounds: list[int] = []
        rows: dict[str, list[Tensor]] = {name: [] for name in self._states.names}
        for path in sorted(Path(folder).glob("clients-*.safetensors")):
            with _opened(path) as file:
                clients = file.get_tensor("clients").tolist()
                mine = [index for index, client in enumerate(clients) if client in self._row_of]
                slots += [self._row_of[clients[index]] for index in mine]
                rounds += file.get_tensor("rounds")[mine].tolist()
                for name in rows:
                    rows[name].append(file.get_tensor(f"state.{name}")[mine])
        if self._opened is not None:
            self._opened.load(Path(folder))
        if slots:
            state = {name: torch.cat(parts) for name, parts in rows.items()}
            self._states.restore(np.array(slots), np.array(rounds), state)

    def _cohort(self, clients: np.ndarray) -> tuple[np.ndarray, Cohort]:
        """(slots, cohort) of some of this host's clients."""
        slots = np.array([self._row_of[int(client)] for client in clients], dtype=np.int64)
        sizes, weights = self._spec.sizes[slots], self._spec.weights[slots]
        where = torch.from_numpy(slots).to(self._device)
        return slots, Cohort(self._problem, self._shards, where, clients, sizes, weights)

    def _bound(self, cohort: Cohort, round: int) -> Bound:
        return self._spec.method.bound(self._problem, cohort.sizes, cohort.weights, round)

    def _gate(self, cohort: Cohort, round: int, numbers: np.ndarray, events: np.ndarray) -> NoiseGate:
        spec = self._spec
        if len(events) and events[0] < 0:  # not charged: nothing gets out, and no noise is known of
            nothing = np.zeros(len(events))
            granted = Granted(round, cohort.clients, numbers, nothing)
            return self.gate_class(granted, Bound(nothing, parts=0), spec.noise_key)
        bound = self._bound(cohort, round)
        granted = Granted(round, cohort.clients, numbers, spec.noise_multipliers[events])
        injected = None
        if spec.injected is not None and round > 0:
            injected = torch.as_tensor(spec.injected[round - 1, cohort.clients], dtype=self._dtype, device=self._device)
        return self.gate_class(granted, bound, spec.noise_key, injected)


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidValue(
            "actors.device", name, 'torch sees no GPU where this host runs; take "cpu", or set gpus_per_actor'
        )
    return torch.device(name)


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise InvalidValue("RUN", str(path), f"this checkpoint is damaged ({error}); restore it from a copy") from None
