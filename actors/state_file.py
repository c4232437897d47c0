"""How the states of a host's clients lie in a file: the same for the host that maps it and for the mirror on another node.

Light: numpy alone, so that the mirror need not import torch.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_ALIGNED = 64  # rows: any row length then fills whole cache lines, in float32 too


@dataclass(frozen=True)
class StateLayout:
    """Two versions of the rows of ``clients`` clients.

    Attributes:
        widths: the length d of each named row, in the file's order.
        dtype: of the rows: ``float32`` or ``float64``.
    """

    clients: int
    widths: Mapping[str, int]
    dtype: str

    @property
    def spaced(self) -> int:
        """Rows between the two versions: both start at a multiple of 64 bytes, for with another alignment a matrix
        product gives other last bits."""
        return -(-self.clients // _ALIGNED) * _ALIGNED

    @property
    def offsets(self) -> dict[str, int]:
        """Where each name's rows ``[2·spaced, d]`` begin; the stamps ``[2, clients]`` int64 come first."""
        found, offset, item = {}, 2 * self.spaced * 8, np.dtype(self.dtype).itemsize
        for name, width in self.widths.items():
            found[name] = offset
            offset += 2 * self.spaced * width * item
        return found

    @property
    def size(self) -> int:
        """Bytes of the whole; what nobody wrote takes no room."""
        item = np.dtype(self.dtype).itemsize
        return max(2 * self.spaced * (8 + sum(self.widths.values()) * item), 1)


@dataclass(frozen=True)
class Versions:
    """What changed in one of the two versions: ``slots`` ``[k]`` have the rounds ``stamps`` ``[k]`` now, 0 for a row that
    does not count; ``rows`` ``{name: [h, d]}`` are those of the slots that do, in their order."""

    version: int
    slots: np.ndarray
    stamps: np.ndarray
    rows: dict[str, np.ndarray]


def opened(path: Path | None, size: int) -> mmap.mmap:
    """A file of ``size`` bytes in memory, its owner's alone; without a path it is memory only."""
    if path is None:
        return mmap.mmap(-1, size)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


class StateFile:
    """The states of one host's clients as numpy arrays over its file."""

    def __init__(self, layout: StateLayout, path: Path) -> None:
        self.layout = layout
        buffer = opened(path, layout.size)
        self.stamps = np.frombuffer(buffer, np.int64, 2 * layout.clients).reshape(2, layout.clients)
        self._rows = {
            name: np.frombuffer(buffer, layout.dtype, 2 * layout.spaced * width, layout.offsets[name]).reshape(
                -1, width
            )
            for name, width in layout.widths.items()
        }

    def put(self, changed: Versions) -> None:
        """Take over rows; the stamps, set last, make them count."""
        here = self.stamps[changed.version]
        here[changed.slots] = 0
        where = changed.version * self.layout.spaced + changed.slots[changed.stamps > 0]
        for name, rows in changed.rows.items():
            self._rows[name][where] = rows
        here[changed.slots] = changed.stamps

    def get(self) -> list[Versions]:
        """All rows that count."""
        found = []
        for version in (0, 1):
            slots = np.flatnonzero(self.stamps[version])
            where = version * self.layout.spaced + slots
            rows = {name: array[where] for name, array in self._rows.items()}
            found.append(Versions(version, slots, self.stamps[version, slots].copy(), rows))
        return found
