"""Simulated time over a graph: every client has its own clock, and waits for its neighbours, for everyone, or for nobody."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import RunBroken
from ..privacy.grants import Grants
from .rounds_in_time import RoundsInTime, part_of


class GraphClock(RoundsInTime):
    """Clocks T_i ``[N]`` of clients: T_i is when client i's newest state is ready to be sent.

    A client begins an exchange at S_i = max(T_i, max_j T_j + link), over its neighbours j whose message it waits for
    (``neighbour``; with ``lossy`` those whose message is not lost), or over all clients (``barrier``): a recursion in the
    max-plus algebra. What is computed is the same under ``barrier`` and ``neighbour``: only clocks differ.

    A client that is off, or out of budget, adds no data of its own (Δ̃ = 0 in (Z8)); with ``lossy`` its messages and those
    to it are lost besides.
    """

    def set_up(self, clients: int, links: np.ndarray, exchanges: int) -> None:
        """Args:
        links: ``[2|E|, 2]``, receiver and sender of each message, sorted.
        exchanges: of a round: one with data, the others without.
        """
        self._links, self._exchanges = links, exchanges
        self._clocks, self._begins = np.zeros(clients), np.zeros(clients)
        self._lost = np.zeros(len(links), dtype=bool)  # in the last exchange: what the next one goes without
        self._history: dict[int, np.ndarray] = {}
        self._first, self._absent = True, np.empty(0, dtype=np.int64)

    @property
    def clocks(self) -> np.ndarray:
        """T_i ``[N]``, seconds."""
        return self._clocks.copy()

    def lost_before(self, step: int) -> np.ndarray | None:
        """Which messages of the exchange before ``step`` were lost, bool ``[2|E|]``; None where none ever is."""
        if self.keeper.settings.policy.kind != "lossy":
            return None
        return self._history.get(step - 1, np.zeros(len(self._links), dtype=bool))

    def present(self, clients: np.ndarray, t: int) -> np.ndarray:
        """Who of ``clients`` is there when its round ``t`` begins. With nobody there, all put it off until the first is back."""
        self._begins = self._ready()
        self._absent = clients[:0]
        presence = self.keeper.delays.presence
        if presence.always or not len(clients):
            return clients
        returns = presence.next_online(clients, self._begins[clients])
        there = returns <= self._begins[clients]
        if not there.any():
            first = float(returns.min())
            if not np.isfinite(first):
                raise RunBroken(f"round {t}: no client ever comes back online; look at time.churn_trace")
            self._begins = np.maximum(self._begins, first)
            there = presence.next_online(clients, self._begins[clients]) <= self._begins[clients]
        self._absent = clients[~there]
        return np.asarray(clients[there])

    def schedule(self, t: int, granted: Grants | None, counters: dict[str, Any]) -> Grants | None:
        """Run all clocks through round ``t``, its exchanges without data included; the grants of those who release."""
        keeper, model = self.keeper, self.keeper.delays
        clients = np.empty(0, dtype=np.int64) if granted is None else granted.clients
        begins = self._begins
        busy = np.zeros(len(self._clocks))
        busy[clients], dropped = model.work(clients, t, begins[clients])
        done = begins + busy
        back = model.presence.next_online(clients, done[clients])
        vanished = ~np.isfinite(back)
        dropped |= vanished
        done[clients] = np.where(vanished, done[clients], back)
        waited = begins - self._clocks
        outcomes = np.where(dropped, "dropped", "used")
        keeper.span(clients, t, begins[clients], done[clients], outcomes)
        self._clocks, self._first = done, False
        for exchange in range(self._exchanges):
            if exchange:
                ready = self._ready()
                waited = waited + ready - self._clocks
                self._clocks = ready
            self._lose((t - 1) * self._exchanges + exchange + 1)
        keeper.spend(np.arange(len(busy)), busy, waited)
        keeper.count("offline", self._absent)
        keeper.count("dropped", clients[dropped])
        self._set_off(keeper.now)
        keeper.now = float(self._clocks.max())
        counters["simulated_s"] = keeper.now
        self.tell("offline", t, self._absent, keeper.now)
        self.tell("dropped", t, clients[dropped], keeper.now)
        self.keep_spans(t)
        self._wakes = dict(enumerate(self._clocks.tolist()))
        return None if granted is None else part_of(granted, ~dropped)

    def _lose(self, exchange: int) -> None:
        if self.keeper.settings.policy.kind != "lossy":
            return
        self._lost = self.keeper.delays.lost_messages(len(self._links), exchange)
        if len(self._absent):
            self._lost = self._lost | np.isin(self._links, self._absent).any(axis=1)
        self._history[exchange] = self._lost
        self._history.pop(exchange - 2 * self._exchanges, None)

    def _ready(self) -> np.ndarray:
        """S_i ``[N]``: when each client has the messages that it waits for."""
        if self._first:
            return self._clocks.copy()  # everyone starts from the same public state: nothing has been sent
        ready = self._clocks.copy()
        link = self.keeper.delays.message(self.keeper.settings.up_bytes)
        if self.keeper.settings.policy.kind in ("neighbour", "lossy"):
            awaited = self._links[~self._lost]
            np.maximum.at(ready, awaited[:, 0], self._clocks[awaited[:, 1]] + link)
        elif len(self._links):
            ready[:] = self._clocks.max() + link
        return ready

    def _kept_losses(self) -> list[Any]:
        return [[exchange, np.flatnonzero(lost).tolist()] for exchange, lost in sorted(self._history.items())]

    def save(self) -> dict[str, Any]:
        return {**super().save(), "clocks": self._clocks.tolist(), "lost": self._kept_losses()}

    def load(self, saved: dict[str, Any]) -> None:
        super().load(saved)
        self._clocks, self._first = np.array(saved["clocks"]), False
        for exchange, lost in saved["lost"]:
            self._lost = np.zeros(len(self._links), dtype=bool)
            self._lost[lost] = True
            self._history[exchange] = self._lost
