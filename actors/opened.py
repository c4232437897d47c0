"""Records that were released once, with noise, for all rounds to compute from; the true ones are out of a round's reach."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..algorithms.method import Cohort
from ..algorithms.shards import Shards
from ..privacy.gate import GrantMissing

_NAMES = ("clients", "sizes", "features", "labels")


class OpenedRecords:
    """The released records of one host's clients; those of a client that released none are zeros.

    Args:
        shards: the true records, for their layout alone.
        clients: ``[n]`` ids of the host's clients, in the order of the shards.
        path: a file to keep the released records in, across a loss of the process; ``None`` for memory alone.
    """

    def __init__(self, shards: Shards, clients: np.ndarray, path: Path | None = None) -> None:
        self._shards = Shards(torch.zeros_like(shards.features), torch.zeros_like(shards.labels), shards.offsets)
        self._clients, self._path = clients, path
        self._there = np.zeros(len(clients), dtype=bool)
        if path is not None and path.exists():
            self._take(load_file(path), prefix="")

    def keep(self, slots: np.ndarray, features: Tensor, labels: Tensor) -> None:
        """Take in what the clients at ``slots`` released: features ``[M, p]`` and labels ``[M]``, client after client."""
        first = 0
        for slot in slots.tolist():
            into, labels_into = self._shards.client(slot)
            last = first + len(labels_into)
            into.copy_(features[first:last])
            labels_into.copy_(labels[first:last])
            first = last
        self._there[slots] = True
        if self._path is not None:
            partial = self._path.with_suffix(".part")
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            save_file(self._packed(), partial)
            os.chmod(partial, 0o600)  # the library replaces the file
            os.replace(partial, self._path)

    def in_place_of(self, cohort: Cohort) -> Cohort:
        """The same clients with their released records. Raises GrantMissing for a client that released none."""
        slots = cohort.slots.cpu().numpy()
        if not self._there[slots].all():
            client = int(cohort.clients[~self._there[slots]][0])
            raise GrantMissing(f"client {client} has not released its records, and no round may see them")
        return replace(cohort, shards=self._shards)

    def export(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint."""
        return {f"records.{name}": value for name, value in self._packed().items()}

    def load(self, folder: Path) -> None:
        """Take this host's clients out of a checkpoint's files, whatever layout wrote them."""
        for path in sorted(folder.glob("clients-*.safetensors")):
            with safe_open(path, framework="pt") as file:
                if f"records.{_NAMES[0]}" in file.keys():  # noqa: SIM118 (it is no mapping)
                    self._take({f"records.{name}": file.get_tensor(f"records.{name}") for name in _NAMES}, "records.")

    def _packed(self) -> dict[str, Tensor]:
        slots = np.flatnonzero(self._there)
        rows = [self._shards.client(slot) for slot in slots.tolist()]
        empty = self._shards.features[:0], self._shards.labels[:0]
        return {
            "clients": torch.from_numpy(self._clients[slots].astype(np.int64)),
            "sizes": self._shards.sizes.cpu()[torch.from_numpy(slots)],
            "features": torch.cat([features for features, _ in rows] or [empty[0]]).cpu(),
            "labels": torch.cat([labels for _, labels in rows] or [empty[1]]).cpu(),
        }

    def _take(self, packed: dict[str, Tensor], prefix: str) -> None:
        clients, sizes, features, labels = (packed[f"{prefix}{name}"] for name in _NAMES)
        position = {int(client): slot for slot, client in enumerate(self._clients)}
        parts = zip(clients.tolist(), torch.split(features, sizes.tolist()), torch.split(labels, sizes.tolist()))
        mine = [(position[client], a, b) for client, a, b in parts if client in position]
        if mine:
            slots = np.array([slot for slot, _, _ in mine])
            self.keep(slots, torch.cat([a for _, a, _ in mine]), torch.cat([b for _, _, b in mine]))
