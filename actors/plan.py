"""What will happen and what it will cost, as the coordinator reads it. Light: no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..privacy.events import Event


@dataclass(frozen=True)
class Plan:
    """Who takes part when, and which event each participation is.

    Attributes:
        participants: one ascending int64 array a round (round t at index t − 1).
        events: all distinct events as the ledger charges them, noise included, on the coarse grid.
        multipliers: ``[len(events)]`` σ over the sensitivity that the gate uses for each; never below the event's own.
        noise_multipliers: ``[N]`` z_i; 0 where no noise is added.
        budgets: ``[N]`` ε at ``delta`` at which the ledger stops a client, or None.
        planned: ``[N, len(events)]`` int64, how often each client is planned to release each event.
        opening: the clients of round 0, in which a method that opens releases its records, or None.
        caps: ``[N]`` the most participations of each client, or None.
    """

    participants: list[np.ndarray]
    events: list[Event]
    multipliers: np.ndarray
    noise_multipliers: np.ndarray
    delta: float
    budgets: np.ndarray | None
    planned: np.ndarray
    _client_class: np.ndarray
    _round_class: np.ndarray
    _event_of: np.ndarray
    opening: np.ndarray | None = None
    caps: np.ndarray | None = None

    def events_of(self, t: int, clients: np.ndarray) -> np.ndarray:
        """The numbers of the events that round ``t`` would be for ``clients``; −1 in a round that is not charged."""
        column = self._round_class[t - 1 if self.opening is None else t]
        return np.asarray(self._event_of[self._client_class[clients], column])

    def without_rounds(self) -> Plan:
        """What a ledger needs of it: events, planned accounts and budgets, whose size does not grow with the rounds."""
        return replace(self, participants=[], _round_class=self._round_class[:0])
