"""A host: the shards and states of one or more clients, and the one call a round that works on all of them together."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..algorithms.method import Cohort, ServerMethod
from ..algorithms.problems.base import Problem
from ..algorithms.shards import Shards
from ..privacy.gate import Granted, NoiseGate
from .messages import Diagnosis, HostShard, RoundResult, RoundTask
from .state_store import StateStore


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
        threads: torch threads of this process; ``None`` leaves them as they are.
    """

    host: int
    clients: np.ndarray
    total_clients: int
    sizes: np.ndarray
    weights: np.ndarray
    problem: Problem
    method: ServerMethod
    start: np.ndarray
    noise_multipliers: np.ndarray
    noise_key: bytes
    dtype: str = "float64"
    injected: np.ndarray | None = None
    state_path: str | None = None
    threads: int | None = None


class ClientHost:
    """Holds clients. A plain class: Ray wraps it, and the inline engine calls it as it is."""

    def __init__(self, spec: HostSpec, shard: HostShard, test: HostShard) -> None:
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        self._spec, self._dtype = spec, getattr(torch, spec.dtype)
        self._problem, self._method = spec.problem, spec.method
        self._shards = Shards.from_flat(shard.features, shard.labels, shard.offsets)
        held_out = Shards.from_flat(test.features, test.labels, test.offsets)
        self._test = held_out.features, held_out.labels
        self._row_of = {int(client): row for row, client in enumerate(spec.clients)}
        self._start = torch.as_tensor(spec.start, dtype=self._dtype)
        path = None if spec.state_path is None else Path(spec.state_path)
        self._states = StateStore(spec.method.init(self._start), len(spec.clients), path)
        self._total = self._sum_uploads()
        self._untouched_losses: Tensor | None = None

    def ping(self) -> int:
        """The process id: the host is there."""
        return os.getpid()

    def round(self, task: RoundTask) -> RoundResult:
        """Run one round of the granted clients and release what they upload.

        Returns the sum of the last uploads of all this host's clients, float64 ``[d]``: released values only.
        """
        began = time.perf_counter()
        spec, method = self._spec, self._method
        slots = np.array([self._row_of[int(client)] for client in task.clients], dtype=np.int64)
        cohort = Cohort(
            self._problem, self._shards, torch.from_numpy(slots), task.clients, spec.sizes[slots], spec.weights[slots]
        )
        bound = method.bound(self._problem, cohort.sizes, cohort.weights, task.round)
        granted = Granted(task.round, task.clients, task.numbers, spec.noise_multipliers[task.events])
        gate = NoiseGate(granted, bound, spec.noise_key, self._injected(task))
        old = self._states.read(slots)
        x0 = self._broadcast(task.total)
        new = method.local_round(old, x0, cohort, gate, task.round)
        change = (method.upload(new).sum(dim=0) - method.upload(old).sum(dim=0)).to(torch.float64)
        self._states.write(slots, task.round, new)
        self._total += change
        return RoundResult(
            spec.host,
            task.round,
            self._total.numpy().copy(),
            len(slots),
            int(gate.clipped.sum()),
            time.perf_counter() - began,
        )

    def take_back(self, first_void_round: int) -> np.ndarray:
        """Return clients to their last round before this one; the new sum of uploads ``[d]``."""
        if len(self._states.take_back(first_void_round)):
            self._total = self._sum_uploads()
        return self._total.numpy().copy()

    def model(self, total: np.ndarray) -> np.ndarray:
        """The model ``[d]`` that the server broadcasts for this sum of uploads."""
        return np.asarray(self._broadcast(total).numpy(), dtype=np.float64)

    def score(self, total: np.ndarray) -> dict[str, float]:
        """Loss and accuracy of the released model on the test records."""
        return self._problem.score(self._broadcast(total), *self._test)

    def diagnose(self, total: np.ndarray) -> Diagnosis:
        """Sums over this host's clients that depend on private data: for the simulation's eyes, not a release."""
        spec, x0 = self._spec, self._broadcast(total)
        weights = torch.as_tensor(spec.weights, dtype=self._dtype)
        at_model = self._problem.client_losses(x0, self._shards)
        slots = self._states.touched
        if self._untouched_losses is None:
            self._untouched_losses = self._problem.client_losses(self._start, self._shards)
        own, distance = (
            self._untouched_losses.clone(),
            torch.linalg.vector_norm(self._start - x0).repeat(len(spec.clients)),
        )
        if len(slots):
            where, x = torch.from_numpy(slots), self._states.read(slots)["x"]
            own[where] = self._problem.losses(x, self._shards, where)
            distance[where] = torch.linalg.vector_norm(x - x0, dim=1)
        regulariser = float(self._problem.regulariser.value(x0))
        return Diagnosis(
            clients=len(spec.clients),
            objective=float((weights * at_model).sum()) + len(spec.clients) * regulariser,
            local_loss=float((weights * own).sum()),
            consensus=float(distance.sum()),
        )

    def states(self) -> dict[str, np.ndarray]:
        """All rows and uploads of this host, ``{name: [n, d]}``, for a simulation that records them."""
        rows = self._states.read(np.arange(len(self._spec.clients)))
        return {name: value.numpy().copy() for name, value in {**rows, "upload": self._method.upload(rows)}.items()}

    def save(self, path: str) -> None:
        """Write the states of clients that took part to a safetensors file that its owner alone can read."""
        slots, rounds, rows = self._states.export()
        partial = f"{path}.part"
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        tensors = {f"state.{name}": value.contiguous() for name, value in rows.items()}
        tensors["clients"], tensors["rounds"] = torch.from_numpy(self._spec.clients[slots]), torch.from_numpy(rounds)
        save_file(tensors, partial, metadata={"names": json.dumps(list(rows))})
        os.chmod(partial, 0o600)  # the library replaces the file
        os.replace(partial, path)

    def restore(self, folder: str) -> np.ndarray:
        """Take this host's clients out of a checkpoint's files, whatever layout wrote them; the sum of uploads ``[d]``."""
        slots: list[int] = []
        rounds: list[int] = []
        rows: dict[str, list[Tensor]] = {name: [] for name in self._states.names}
        for path in sorted(Path(folder).glob("clients-*.safetensors")):
            with safe_open(path, framework="pt") as file:
                clients = file.get_tensor("clients").tolist()
                mine = [index for index, client in enumerate(clients) if client in self._row_of]
                slots += [self._row_of[clients[index]] for index in mine]
                rounds += file.get_tensor("rounds")[mine].tolist()
                for name in rows:
                    rows[name].append(file.get_tensor(f"state.{name}")[mine])
        if slots:
            state = {name: torch.cat(parts) for name, parts in rows.items()}
            self._states.restore(np.array(slots), np.array(rounds), state)
        self._total = self._sum_uploads()
        return self._total.numpy().copy()

    def enter(self) -> np.ndarray:
        """The sum of uploads ``[d]`` that this host's clients start with."""
        return self._total.numpy().copy()

    def _sum_uploads(self) -> Tensor:
        slots = self._states.touched
        common = self._method.upload({name: row[None] for name, row in self._method.init(self._start).items()})
        total = (len(self._spec.clients) - len(slots)) * common[0].to(torch.float64)
        if len(slots):
            total = total + self._method.upload(self._states.read(slots)).sum(dim=0).to(torch.float64)
        return total

    def _broadcast(self, total: np.ndarray) -> Tensor:
        return torch.as_tensor(self._method.aggregate(total, self._spec.total_clients), dtype=self._dtype)

    def _injected(self, task: RoundTask) -> Tensor | None:
        if self._spec.injected is None:
            return None
        return torch.as_tensor(self._spec.injected[task.round - 1, task.clients], dtype=self._dtype)
