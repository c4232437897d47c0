"""How a coordinator talks to the ledger: in the same process, or to the ledger's actor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    """A ledger in this process, on a thread of its own: its commits overlap the work of a round.

    Args:
        open_ledger: opens the ledger, on that thread.
    """

    def __init__(self, open_ledger: Callable[[], Ledger]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        try:
            self._ledger = self._thread.submit(open_ledger).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def reserve(self, round: int, clients: np.ndarray, events: np.ndarray) -> Any:
        return self._thread.submit(self._ledger.reserve, round, clients, events)

    def collect(self, ticket: Any) -> tuple[Grants, list[Refusal]]:
        grants, refusals = ticket.result()
        return grants, refusals

    def void(self, grants: Grants) -> None:
        self._thread.submit(self._ledger.void, grants).result()

    def ask(self, name: str, *arguments: Any) -> Any:
        return self._thread.submit(getattr(self._ledger, name), *arguments)

    def answer(self, ticket: Any) -> Any:
        return ticket.result()

    def close(self) -> None:
        """Close the journal and end the thread."""
        self._thread.submit(self._ledger.close).result()
        self._thread.shutdown()
