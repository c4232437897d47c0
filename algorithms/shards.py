"""The records of several clients, flat with offsets: unequal sizes cost nothing and nothing is padded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InvalidValue

# The most numbers that `batches` gathers into one copy (32 MB of float64): large enough to hide the cost of a call,
# small enough that a full gradient never doubles the memory of the shards.
GATHER_LIMIT = 1 << 22


@dataclass(frozen=True, eq=False)
class Shards:
    """Records of C clients, one client's after the other's.

    ``features`` is ``[M, p]``, ``labels`` ``[M]`` (int64 for classes, floating for regression) and ``offsets`` int64
    ``[C + 1]``: client ``c`` holds the rows from ``offsets[c]`` up to ``offsets[c + 1]``. A *slot* is a client's
    position here. The tensors may be views of shared read-only memory, so nothing may write to them.
    """

    features: Tensor
    labels: Tensor
    offsets: Tensor

    @classmethod
    def from_arrays(
        cls,
        features: NDArray[Any],
        labels: NDArray[Any],
        index_lists: Sequence[NDArray[np.int64]],
        dtype: torch.dtype = torch.float64,
    ) -> Shards:
        """Copies out the rows that each client holds.

        Args:
            features: ``[M, p]``.
            labels: ``[M]``; integers become int64 (classes), floating numbers ``dtype`` (targets).
            index_lists: the rows of each client, one array a client.
            dtype: the floating type of the shards.

        Raises:
            InvalidValue: a client has no record, or an index is no row of ``features``.
        """
        sizes = np.fromiter((len(rows) for rows in index_lists), dtype=np.int64, count=len(index_lists))
        order = np.concatenate([np.asarray(rows, dtype=np.int64) for rows in index_lists] or [np.empty(0, np.int64)])
        if order.size and not (order.min() >= 0 and order.max() < len(features)):
            raise InvalidValue("partition", int(order.max()), f"records are numbered 0 to {len(features) - 1}")
        taken_labels = labels[order]
        wide = np.int64 if np.issubdtype(labels.dtype, np.integer) else _numpy_type(dtype)
        return cls.from_flat(
            features[order].astype(_numpy_type(dtype), copy=False),
            taken_labels.astype(wide, copy=False),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        )

    @classmethod
    def from_flat(cls, features: NDArray[Any], labels: NDArray[Any], offsets: NDArray[np.int64]) -> Shards:
        """Wraps arrays that are laid out already, without a copy; they may be read-only.

        Raises:
            InvalidValue: the lengths disagree, or a client has no record.
        """
        if features.ndim != 2 or labels.shape != features.shape[:1]:
            raise InvalidValue("data.labels", labels.shape, f"give one label for each row of features {features.shape}")
        sizes = np.diff(offsets)
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(features):
            raise InvalidValue("partition", len(features), "offsets must start at 0 and end at the number of records")
        if sizes.min() < 1:
            raise InvalidValue("partition", int(sizes.argmin()), "this client holds no record; every client needs one")
        return cls(_tensor(features), _tensor(labels), _tensor(offsets))

    @cached_property
    def sizes(self) -> Tensor:
        """Number of records of each client, int64 ``[C]``."""
        return self.offsets.diff()

    @property
    def n_clients(self) -> int:
        """C, the number of clients held here."""
        return len(self.offsets) - 1

    @cached_property
    def _bounds(self) -> list[int]:
        # Plain integers: slicing with a tensor's element would cost a synchronisation each time.
        bounds: list[int] = self.offsets.tolist()
        return bounds

    def rows(self, slots: Tensor, records: Tensor) -> tuple[Tensor, Tensor]:
        """The same number of records of each of several clients, in one gather.

        Args:
            slots: int64 ``[k]``, which clients.
            records: int64 ``[k, n]``, positions inside each client's own shard (not checked: this is the inner loop).

        Returns:
            features ``[k, n, p]`` and labels ``[k, n]``, copies.
        """
        return self.taken(self.places(slots, records))

    def places(self, slots: Tensor, records: Tensor) -> Tensor:
        """int64 ``[k, n]``: which rows of all features these records are; arguments as of ``rows``."""
        starts = self.offsets.index_select(0, slots.to(self.offsets.device))
        return starts.unsqueeze(1) + records.to(starts.device)

    def taken(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Features ``[…, p]`` and labels ``[…]`` at ``places``, copies."""
        flat = places.flatten()
        features = self.features.index_select(0, flat).view(*places.shape, -1)
        return features, self.labels.index_select(0, flat).view(places.shape)

    def client(self, slot: int) -> tuple[Tensor, Tensor]:
        """Features ``[m, p]`` and labels ``[m]`` of one client, as views."""
        first, last = self._bounds[slot], self._bounds[slot + 1]
        return self.features[first:last], self.labels[first:last]

    def span(self, first: int, last: int) -> Shards:
        """The clients ``first`` up to ``last`` (exclusive) as shards of their own, sharing memory with these."""
        start, stop = self._bounds[first], self._bounds[last]
        return Shards(self.features[start:stop], self.labels[start:stop], self.offsets[first : last + 1] - start)

    def batches(self, slots: Tensor) -> Iterator[tuple[slice | Tensor, Tensor, Tensor]]:
        """All records of some clients, clients of equal size together, so that few kernels do the work of many.

        Args:
            slots: int64 ``[k]``, which clients.

        Yields:
            where in ``slots`` a group stands (a slice where it can, else int64 ``[g]``), its features ``[g, m, p]`` and
            its labels ``[g, m]``. Neighbouring clients come as views; others are gathered, a bounded number at a time.
        """
        chosen: list[int] = slots.tolist()
        groups: dict[int, list[int]] = {}
        for position, slot in enumerate(chosen):
            groups.setdefault(self._bounds[slot + 1] - self._bounds[slot], []).append(position)
        width = self.features.shape[1]
        for size, positions in groups.items():
            step = max(1, GATHER_LIMIT // (size * max(1, width)))
            for start in range(0, len(positions), step):
                group = positions[start : start + step]
                yield self._batch(group, [chosen[position] for position in group], size)

    def _batch(self, positions: list[int], slots: list[int], size: int) -> tuple[slice | Tensor, Tensor, Tensor]:
        device, count = self.features.device, len(slots)
        where: slice | Tensor = slice(positions[0], positions[0] + count)
        if positions[-1] - positions[0] != count - 1:
            where = torch.tensor(positions, device=device)
        if slots == list(range(slots[0], slots[0] + count)):
            first, last = self._bounds[slots[0]], self._bounds[slots[-1] + 1]
            features, labels = self.features[first:last], self.labels[first:last]
            return where, features.view(count, size, -1), labels.view(count, size)
        records = torch.arange(size, device=device).expand(count, size)
        return where, *self.rows(torch.tensor(slots, device=device), records)


def _numpy_type(dtype: torch.dtype) -> type[np.floating[Any]]:
    return np.float32 if dtype == torch.float32 else np.float64


def _tensor(array: NDArray[Any]) -> Tensor:
    """A tensor that shares the array's memory. Torch warns of read-only memory; `Shards` promises not to write."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return torch.from_numpy(array)
