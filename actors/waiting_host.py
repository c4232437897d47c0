"""A host whose clients' results may have to wait before they count, or may never count."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .client_host import ClientHost
from .messages import RoundTask, Worked


class WaitingHost(ClientHost):
    """Clients of a server that does not wait for all of them.

    ``begin`` does a task's work and keeps the result aside; ``commit`` makes it count; ``discard`` forgets it, and the
    client is where the last release that the server used left it.
    """

    _kept: dict[int, dict[str, Tensor]]

    def begin(self, task: RoundTask) -> Worked:
        """Do the work of the granted clients from the broadcast that they were sent, and keep it aside."""
        began = time.perf_counter()
        _, _, new, clipped = self._work(task)
        kept = self._aside()
        for row, client in enumerate(task.clients.tolist()):
            kept[client] = {name: rows[row].clone() for name, rows in new.items()}
        return Worked(self._spec.host, clipped, time.perf_counter() - began)

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
