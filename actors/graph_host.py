"""A host of nodes of a graph: it sees its own nodes' states and what neighbouring hosts sent, and no more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms.method import Cohort, GraphMethod, Increment, State
from ..privacy.gate import Bound
from .client_errors import apart
from .host import Host, HostSpec
from .messages import ClientError, GraphDiagnosis, Heading, HostShard, Parcel, Sent, StepResult, StepTask


@dataclass
class _Found:
    """What a step's data came to: the increments ``[n, d]`` of all clients of the host, None where nobody released."""

    increment: Tensor | None = None
    released: int = 0
    clipped: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[ClientError] = field(default_factory=list)


class GraphHost(Host):
    """Nodes of a graph method: SPADE-DFL (Z1)–(Z10), or any other."""

    def __init__(self, spec: HostSpec, shard: HostShard, test: HostShard) -> None:
        super().__init__(spec, shard, test)
        assert isinstance(spec.method, GraphMethod)
        assert spec.neighbourhood is not None
        self._method, self._near = spec.method, spec.neighbourhood
        self._matrix = self._near.exchange.astype(spec.dtype)
        self._everyone = np.arange(len(spec.clients))
        self._used: Tensor | None = None  # the models after final mixing
        self._heading = Heading(0, np.zeros(len(spec.start)))

    def enter(self) -> Sent:
        """What neighbouring hosts need of the released states, and the sum of all of them ``[d]``."""
        state = self._states.read(self._everyone)
        return Sent(self._sum(state["x"]), self._parcels_of(state))

    def take_back(self, first_void_step: int) -> Sent:
        """Return to the states before this exchange."""
        self._states.take_back(first_void_step)
        return self.enter()

    def restore(self, folder: str) -> Sent:
        """Go on from a checkpoint."""
        self._load(folder)
        return self.enter()

    def step(self, task: StepTask, incoming: Mapping[int, Parcel]) -> Sent:
        """One exchange: the pull of the neighbours, the increments of the clients that were granted a release, the advance."""
        began = time.perf_counter()
        state = self._states.read(self._everyone)
        pull = self._pull(state, task, incoming)
        found = self._increments(task, state, pull)
        new = self._completed(self._method.advance(state, pull, found.increment, self._spec.clients, task.round))
        self._states.write(self._everyone, task.step, new)
        seconds = time.perf_counter() - began
        total = self._sum(new["x"])
        result = StepResult(
            self._spec.host, total, found.released, found.clipped, found.counts, seconds, tuple(found.errors)
        )
        return Sent(result, self._parcels_of(new))

    def _increments(self, task: StepTask, state: State, pull: Tensor) -> _Found:
        """What the granted clients' data did; with ``isolate``, of those that do not raise."""
        if not len(task.clients):
            return _Found()
        if not task.isolate:
            parts = [self._increment(task, np.arange(len(task.clients)), state, pull)]
            errors: list[ClientError] = []
        else:
            parts, errors = apart(task.clients, lambda rows: self._increment(task, rows, state, pull))
        headings = [found.heading for _, found, _ in parts if found.heading is not None]
        slots = [where for where, _, _ in parts]
        if headings:
            self._heading = Heading(sum(len(where) for where in slots), np.sum([h.numpy() for h in headings], axis=0))
        counts: dict[str, int] = {}
        for _, found, _ in parts:
            for name, number in found.counts.items():
                counts[name] = counts.get(name, 0) + number
        clipped, released = sum(number for _, _, number in parts), sum(len(where) for where in slots)
        if len(parts) == 1 and released == len(self._everyone):
            return _Found(parts[0][1].released, released, clipped, counts, errors)
        increment = None
        for where, found, _ in parts:
            if increment is None:
                increment = found.released.new_zeros(len(self._everyone), found.released.shape[1])
            increment.index_copy_(0, torch.from_numpy(where), found.released)
        return _Found(increment, released, clipped, counts, errors)

    def _increment(
        self, task: StepTask, rows: np.ndarray, state: State, pull: Tensor
    ) -> tuple[np.ndarray, Increment, int]:
        """(slots, what their data did, how many were clipped) of some of a task's clients."""
        slots, cohort = self._cohort(task.clients[rows])
        gate = self._gate(cohort, task.round, task.numbers[rows], task.events[rows])
        if len(slots) < len(self._everyone):
            where = torch.from_numpy(slots)
            state, pull = {name: value[where] for name, value in state.items()}, pull[where]
        found = self._method.increment(state, pull, cohort, gate, task.round)
        return slots, found, int(gate.clipped.sum())

    def _pull(self, state: State, task: StepTask, incoming: Mapping[int, Parcel]) -> Tensor:
        """What the neighbours' states come to for each client: the product of the exchange with what all share."""
        return self._product(self._matrix, self._shared(state), incoming)

    def _completed(self, state: State) -> State:
        """The new state with what a host itself keeps of it."""
        return state

    def _parcels_of(self, state: State) -> dict[int, Parcel]:
        """What neighbouring hosts need of a state."""
        return self._parcels(self._shared(state))

    def begin_mixing(self) -> Sent:
        """Start plain gossip on a copy of the released states: post-processing, it reveals nothing new."""
        self._used = self._states.read(self._everyone)["x"].clone()
        return Sent(None, self._parcels(self._used))

    def mix(self, incoming: Mapping[int, Parcel]) -> Sent:
        """One gossip round with Metropolis weights."""
        assert self._used is not None
        self._used = self._product(self._near.mixing.astype(self._spec.dtype), self._used, incoming)
        return Sent(None, self._parcels(self._used))

    def score(self, model: np.ndarray) -> dict[str, float]:
        """Loss and accuracy of a model ``[d]`` on the test records."""
        return self._problem.score(torch.as_tensor(model, dtype=self._dtype), *self._test)

    def diagnose(self, model: np.ndarray, chosen: np.ndarray) -> GraphDiagnosis:
        """How the clients' own models do, how far they are from ``model`` ``[d]``, and the objective's value and gradient
        there. ``chosen``: the clients whose models are scored."""
        average = torch.as_tensor(model, dtype=self._dtype)
        x = self._states.read(self._everyone)["x"]
        models = x if self._used is None else self._used
        rows = [self._row_of[int(client)] for client in chosen if int(client) in self._row_of]
        scored = [self._problem.score(models[row], *self._test) for row in rows]
        names = scored[0] if scored else {}
        common = average.expand(len(self._everyone), -1)
        gradient = self._problem.full_gradient(common, self._shards, torch.from_numpy(self._everyone))
        weights, regulariser = torch.as_tensor(self._spec.weights, dtype=self._dtype), self._problem.regulariser
        total = weights @ gradient
        if regulariser.smooth:
            total += len(self._everyone) * torch.func.grad(regulariser.value)(average)
        return GraphDiagnosis(
            clients=len(self._everyone),
            scores={name: np.array([each[name] for each in scored]) for name in names},
            deviation=float((models - average).square().sum()),
            objective=float((weights * self._problem.client_losses(average, self._shards)).sum())
            + len(self._everyone) * float(self._problem.regulariser.value(average)),
            gradient=total.to(torch.float64).numpy(),
            heading=self._heading,
        )

    def states(self) -> dict[str, np.ndarray]:
        """All rows of this host, ``{name: [n, d]}``, for a simulation that records them."""
        return {name: rows.numpy().copy() for name, rows in self._states.read(self._everyone).items()}

    def _bound(self, cohort: Cohort, round: int) -> Bound:
        return self._method.bound_at(self._problem, cohort.sizes, cohort.weights, cohort.clients, round)

    def _shared(self, state: State) -> Tensor:
        """What neighbours see of the state, side by side, ``[n, d·k]``."""
        names = self._method.shared
        return state[names[0]] if len(names) == 1 else torch.cat([state[name] for name in names], dim=1)

    def _product(self, matrix: Any, own: Tensor, incoming: Mapping[int, Parcel]) -> Tensor:
        stacked = np.empty((len(own) + len(self._near.ghosts), own.shape[1]), dtype=self._spec.dtype)
        stacked[: len(own)] = own.numpy()
        for host, where in self._near.ghosts_of.items():
            stacked[len(own) + where] = incoming[host].content
        return torch.from_numpy(np.asarray(matrix @ stacked))

    def _parcels(self, x: Tensor) -> dict[int, Parcel]:
        return {host: Parcel(x.numpy()[rows]) for host, rows in self._near.rows_for.items()}

    @staticmethod
    def _sum(x: Tensor) -> np.ndarray:
        return np.asarray(x.sum(dim=0, dtype=torch.float64).numpy())
