"""A host of nodes of a graph: it sees its own nodes' states and what neighbouring hosts sent, and no more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms.method import Cohort, GraphMethod, State
from ..privacy.gate import Bound
from .host import Host, HostSpec
from .messages import GraphDiagnosis, Heading, HostShard, Parcel, Sent, StepResult, StepTask


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
        return Sent(self._sum(state["x"]), self._parcels(self._shared(state)))

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
        pull = self._product(self._matrix, self._shared(state), incoming)
        increment, clipped, counts = None, 0, {}
        if len(task.clients):
            slots, cohort = self._cohort(task.clients)
            gate = self._gate(cohort, task.round, task.numbers, task.events)
            where = torch.from_numpy(slots)
            all_release = len(slots) == len(self._everyone)
            rows = state if all_release else {name: value[where] for name, value in state.items()}
            found = self._method.increment(rows, pull if all_release else pull[where], cohort, gate, task.round)
            released, counts = found.released, found.counts
            if found.heading is not None:
                self._heading = Heading(len(slots), found.heading.numpy())
            increment = released
            if not all_release:
                increment = released.new_zeros(len(self._everyone), released.shape[1]).index_copy_(0, where, released)
            clipped = int(gate.clipped.sum())
        new = self._method.advance(state, pull, increment, self._spec.clients, task.round)
        self._states.write(self._everyone, task.step, new)
        seconds = time.perf_counter() - began
        result = StepResult(self._spec.host, self._sum(new["x"]), len(task.clients), clipped, counts, seconds)
        return Sent(result, self._parcels(self._shared(new)))

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
