"""A host of clients of a server: one call a round works on all that take part, and returns the sum of their uploads."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from ..algorithms.method import ServerMethod, State
from .host import Host, HostSpec
from .messages import Diagnosis, HostShard, RoundResult, RoundTask


class ClientHost(Host):
    """Clients of a method with a server (S1)–(C3)."""

    def __init__(self, spec: HostSpec, shard: HostShard, test: HostShard) -> None:
        super().__init__(spec, shard, test)
        assert isinstance(spec.method, ServerMethod)
        self._method = spec.method
        self._total = self._sum_uploads()
        self._untouched_losses: Tensor | None = None

    def states_replaced(self) -> None:
        self._total = self._sum_uploads()

    def enter(self) -> np.ndarray:
        """The sum of uploads ``[U]`` that this host's clients start with."""
        return self._total.numpy().copy()

    def open(self, task: RoundTask) -> None:
        """Round 0 of a method that opens: release the records of the granted clients, for all rounds to compute from."""
        assert self._opened is not None
        slots, cohort = self._cohort(task.clients)
        gate = self._gate(cohort, task.round, task.numbers, task.events)
        self._opened.keep(slots, *self._method.open(cohort, gate))

    def serve(self, server: np.ndarray, total: np.ndarray, uploads: int) -> np.ndarray:
        """The server's own state ``[S]`` after a round: a function of what was uploaded, computed where torch is."""
        return np.asarray(self._method.serve(server, total, uploads, self._spec.total_clients), dtype=np.float64)

    def round(self, task: RoundTask) -> RoundResult:
        """Run one round of the granted clients and release what they upload.

        Returns the sum of uploads, float64 ``[U]``, of all this host's clients or, where the method's server adds up
        the round's alone, of those that take part: released values only.
        """
        began = time.perf_counter()
        slots, old, new, clipped = self._work(task)
        self._take_in(slots, task.round, old, new)
        seconds = time.perf_counter() - began
        released = len(slots) if len(slots) and task.events[0] >= 0 else 0
        return RoundResult(self._spec.host, task.round, self.enter(), released, clipped, seconds, len(slots))

    def _work(self, task: RoundTask) -> tuple[np.ndarray, State, State, int]:
        """(slots, their rows before, their rows after, how many releases were clipped) of a task's clients."""
        slots, cohort = self._cohort(task.clients)
        if self._opened is not None:
            cohort = self._opened.in_place_of(cohort)
        gate = self._gate(cohort, task.round, task.numbers, task.events)
        old = self._states.read(slots)
        new = self._method.local_round(old, self._broadcast(task.total), cohort, gate, task.round)
        return slots, old, new, int(gate.clipped.sum())

    def _take_in(self, slots: np.ndarray, round: int, old: State, new: State) -> None:
        """Make new rows current, and the sum of uploads with them."""
        total = self._method.upload_total(new).to("cpu", torch.float64)
        if len(slots) < len(self._spec.clients) and self._method.uploads == "kept":
            total += self._total - self._method.upload_total(old).to("cpu", torch.float64)
        self._states.write(slots, round, new)
        self._total = total

    def take_back(self, first_void_round: int) -> np.ndarray:
        """Return clients to their last round before this one; the new sum of uploads ``[U]``."""
        if len(self._states.take_back(first_void_round)):
            self._total = self._sum_uploads()
        return self.enter()

    def restore(self, folder: str) -> np.ndarray:
        """Go on from a checkpoint; the sum of uploads ``[U]``."""
        self._load(folder)
        self._total = self._sum_uploads()
        own = Path(folder) / f"clients-{self._spec.host:05d}.safetensors"
        if own.exists():
            with safe_open(own, framework="pt") as file:
                # The running sum differs from a fresh one in the last bits; the same layout goes on with the same bits.
                if torch.equal(file.get_tensor("members"), torch.from_numpy(self._spec.clients)):
                    self._total = file.get_tensor("total")
        return self.enter()

    def model(self, total: np.ndarray) -> np.ndarray:
        """The model ``[d]`` in the broadcast of a server that keeps this."""
        return np.asarray(self._model(total).cpu().numpy(), dtype=np.float64)

    def score(self, total: np.ndarray) -> dict[str, float]:
        """Loss and accuracy of the released model on the test records."""
        return self._problem.score(self._model(total), *self._test)

    def diagnose(self, total: np.ndarray) -> Diagnosis:
        """Sums over this host's clients that depend on private data: for the simulation's eyes, not a release."""
        spec, x0 = self._spec, self._model(total)
        weights = torch.as_tensor(spec.weights, dtype=self._dtype, device=self._device)
        at_model = self._problem.client_losses(x0, self._shards)
        slots = self._states.touched
        if self._untouched_losses is None:
            self._untouched_losses = self._problem.client_losses(self._start, self._shards)
        own, distance = (
            self._untouched_losses.clone(),
            torch.linalg.vector_norm(self._start - x0).repeat(len(spec.clients)),
        )
        if len(slots):
            where = torch.from_numpy(slots).to(self._device)
            x = self._method.local_models(self._states.read(slots))
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
        named = {**rows, "upload": self._method.upload(rows)}
        return {name: value.cpu().numpy().copy() for name, value in named.items()}

    def _sum_uploads(self) -> Tensor:
        slots = self._states.touched
        if self._method.uploads == "fresh":
            slots = slots[:0]
        common = self._method.upload({name: row[None] for name, row in self._method.init(self._start).items()})
        silent = 0 if self._method.uploads == "fresh" else len(self._spec.clients) - len(slots)
        total = silent * common[0].to("cpu", torch.float64)
        if len(slots):
            total = total + self._method.upload_total(self._states.read(slots)).to("cpu", torch.float64)
        return total

    def _broadcast(self, total: np.ndarray) -> Tensor:
        return torch.as_tensor(
            self._method.broadcast(total, self._spec.total_clients), dtype=self._dtype, device=self._device
        )

    def _model(self, total: np.ndarray) -> Tensor:
        return self._method.model(self._broadcast(total))

    def _extra(self) -> dict[str, Tensor]:
        opened = {} if self._opened is None else self._opened.export()
        return {"total": self._total, "members": torch.from_numpy(self._spec.clients), **opened}
