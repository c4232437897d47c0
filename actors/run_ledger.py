"""The ledger as a run uses it: asked about a round while the next round's reservation is already in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..privacy.ledger import Grants, Ledger, Refusal


class RunLedger(Ledger):
    """A ledger that can leave out the reservation that was made ahead of its round."""

    _ahead: Grants | None = None
    _floor: np.ndarray | None = None

    def reserve(self, round: int, clients: ArrayLike, events: ArrayLike) -> tuple[Grants, list[Refusal]]:
        grants, refusals = super().reserve(round, clients, events)
        if self._ahead is None or round > self._ahead.round:  # a client that tries again does so in the round before
            self._ahead = grants
        return grants, refusals

    def void(self, grants: Grants) -> None:
        rows = zip(grants.clients.tolist(), grants.numbers.tolist())
        if len(grants) and all(row in self._voided for row in rows):
            return  # asked again because the answer to the first call was lost
        super().void(grants)
        self._ahead = None

    def where(self) -> dict[str, Any]:
        """The journal's position, which a checkpoint keeps."""
        return self.position

    def spent(self, round: int) -> dict[str, float]:
        """The loss at the ledger's δ as of the end of ``round``: the largest and the median over clients."""
        table = self.counts
        if self._ahead is not None and self._ahead.round > round:
            table = table.copy()
            np.subtract.at(table, (self._ahead.clients, self._ahead.events), 1)
        accounts, account_of = np.unique(table, axis=0, return_inverse=True)
        values = np.array([self._loss(row, self.delta).epsilon for row in accounts])[account_of.reshape(-1)]
        if self._floor is not None:  # two counts may be computed on two grids that differ in the fifth digit
            values = np.maximum(values, self._floor)
        self._floor = values
        return {"epsilon_max": float(values.max()), "epsilon_median": float(np.median(values))}
