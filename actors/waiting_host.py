"""A host whose clients' results may have to wait before they count, or may never count."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .client_errors import apart, joined
from .client_host import ClientHost
from .messages import RoundResult, RoundTask, Worked


class WaitingHost(ClientHost):
    """Clients of a server that does not wait for all of them.

    ``begin`` does a task's work and keeps the result aside; ``commit`` makes it count; ``discard`` forgets it, and the
    client is where the last release that the server used left it.
    """

    _kept: dict[int, dict[str, Tensor]]

    def begin(self, task: RoundTask) -> Worked:
        """Do the work of the granted clients from the broadcast that they were sent, and keep it aside."""
        began = time.perf_counter()
        if task.isolate:
            counts, errors = apart(task.clients, lambda part: self._set_aside(_part(task, part)))
            return Worked(self._spec.host, sum(counts), time.perf_counter() - began, tuple(errors))
        return Worked(self._spec.host, self._set_aside(task), time.perf_counter() - began)

    def round(self, task: RoundTask) -> RoundResult:
        """See ``ClientHost.round``; of a task that isolates errors, the clients that raise are left out."""
        if not task.isolate:
            return super().round(task)
        plain = replace(task, isolate=False)
        results, errors = apart(task.clients, lambda part: super(WaitingHost, self).round(_part(plain, part)))
        fresh = self._method.uploads == "fresh"
        if not results:
            total = np.zeros_like(self.enter()) if fresh else self.enter()
            results = [RoundResult(self._spec.host, task.round, total, 0, 0, 0.0, 0)]
        return replace(joined(results, fresh), errors=tuple(errors))

    def _set_aside(self, task: RoundTask) -> int:
        _, _, new, clipped = self._work(task)
        kept = self._aside()
        for row, client in enumerate(task.clients.tolist()):
            kept[client] = {name: rows[row].clone() for name, rows in new.items()}
        return clipped

    def commit(self, round: int, clients: np.ndarray) -> np.ndarray:
        """Make what these clients did count, in update ``round``; the new sum of uploads ``[d]``, released values only."""
        kept = [self._aside().pop(client) for client in clients.tolist()]
        slots = np.array([self._row_of[client] for client in clients.tolist()], dtype=np.int64)
        new = {name: torch.stack([each[name] for each in kept]) for name in kept[0]}
        self._take_in(slots, round, self._states.read(slots), new)
        return self.enter()

    def discard(self, clients: np.ndarray) -> None:
        """Forget what these clients did."""
        for client in clients.tolist():
            self._aside().pop(client, None)

    def _aside(self) -> dict[int, dict[str, Tensor]]:
        if not hasattr(self, "_kept"):
            self._kept = {}
        return self._kept

    def _extra(self) -> dict[str, Tensor]:
        extra, kept = super()._extra(), self._aside()
        if kept:
            extra["kept.clients"] = torch.tensor(list(kept))
            for name in next(iter(kept.values())):
                extra[f"kept.{name}"] = torch.stack([each[name] for each in kept.values()])
        return extra

    def restore(self, folder: str) -> np.ndarray:
        """Go on from a checkpoint, with what was kept aside; the sum of uploads ``[d]``."""
        from safetensors import safe_open

        total = super().restore(folder)
        kept = self._aside()
        for path in sorted(Path(folder).glob("clients-*.safetensors")):
            with safe_open(path, framework="pt") as file:
                if "kept.clients" not in file.keys():  # noqa: SIM118 (no mapping)
                    continue
                rows = {name: file.get_tensor(f"kept.{name}") for name in self._states.names}
                for row, client in enumerate(file.get_tensor("kept.clients").tolist()):
                    if client in self._row_of:
                        kept[client] = {name: value[row].clone() for name, value in rows.items()}
        return total


def _part(task: RoundTask, rows: np.ndarray) -> RoundTask:
    """The part of a task that is of some of its clients."""
    if len(rows) == len(task.clients):
        return task
    return replace(task, clients=task.clients[rows], numbers=task.numbers[rows], events=task.events[rows])
