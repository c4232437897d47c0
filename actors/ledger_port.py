"""How a coordinator talks to the ledger: in the same process, or to the ledger's actor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..privacy.ledger import Grants, Ledger, Refusal


class LedgerPort(ABC):
    """Reservations are started and collected apart, so that a round's reservation overlaps the round before it."""

    @abstractmethod
    def reserve(self, round: int, clients: np.ndarray, events: np.ndarray) -> Any:
        """Start to charge ``clients`` for ``events`` ``[k]``; a ticket for ``collect``."""

    @abstractmethod
    def collect(self, ticket: Any) -> tuple[Grants, list[Refusal]]:
        """Wait until the charges are on disk; the grants and who was refused."""

    @abstractmethod
    def void(self, grants: Grants) -> None:
        """Take back grants that were never sent to a host."""

    @abstractmethod
    def ask(self, name: str, *arguments: Any) -> Any:
        """Start a query of the ledger; a ticket for ``answer``."""

    @abstractmethod
    def answer(self, ticket: Any) -> Any:
        """Wait for a query's answer."""


class InlineLedger(LedgerPort):
    """A ledger in this process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def reserve(self, round: int, clients: np.ndarray, events: np.ndarray) -> Any:
        return self._ledger.reserve(round, clients, events)

    def collect(self, ticket: Any) -> tuple[Grants, list[Refusal]]:
        grants, refusals = ticket
        return grants, refusals

    def void(self, grants: Grants) -> None:
        self._ledger.void(grants)

    def ask(self, name: str, *arguments: Any) -> Any:
        return getattr(self._ledger, name)(*arguments)

    def answer(self, ticket: Any) -> Any:
        return ticket
