"""ε as shown before, so that no later answer for the same releases is smaller."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from .events import Unit

_KEPT = 32


class Shown:
    """The largest ε shown for each of ``n_clients``, at the δ and units asked for last. Not thread-safe.

    Two counts may be computed on two grids that differ in the fifth digit; both are upper bounds.
    """

    def __init__(self, n_clients: int) -> None:
        self._n = n_clients
        self._floors: OrderedDict[tuple[float, Unit | None], NDArray[np.float64]] = OrderedDict()

    def at(self, delta: float, unit: Unit | None = None) -> NDArray[np.float64]:
        """Those at this δ, shape [n_clients], to be raised in place; zeros where it was not asked for among the last."""
        floor = self._floors.pop((delta, unit), None)
        if floor is None:
            floor = np.zeros(self._n)
        self._floors[delta, unit] = floor
        if len(self._floors) > _KEPT:
            self._floors.popitem(last=False)
        return floor

    def forget(self, clients: NDArray[np.int64]) -> None:
        """After a void their ε may fall."""
        for floor in self._floors.values():
            floor[clients] = 0.0
