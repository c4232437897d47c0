"""When each client is on: a two-state Markov chain, or recorded absences. All clients at once. Light: no torch."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..keys import uniforms

_BLOCK = 4  # turns that are drawn at once; even, so that every block begins in the state that the first began in


class Presence(Protocol):
    """When clients are on.

    Attributes:
        always: whether all of them are, all the time.
    """

    always: bool

    def next_online(self, clients: np.ndarray, at: np.ndarray | float) -> np.ndarray:
        """The first times ``[k]``, not before ``at``, at which distinct ``clients`` ``[k]`` are on; ``inf`` for never."""
        ...


class Always:
    """Nobody is ever away."""

    always = True

    def next_online(self, clients: np.ndarray, at: np.ndarray | float) -> np.ndarray:
        return np.array(np.broadcast_to(np.asarray(at, dtype=np.float64), clients.shape))


class Churn:
    """Clients that stay on and off for exponential times, each stay a draw keyed by the client and its number.

    Of each client the block of turns around the time that it was last asked for is kept; one that is asked for an
    earlier time begins anew from zero, and comes to the same times.
    """

    always = False

    def __init__(self, key: bytes, n_clients: int, online_s: float, offline_s: float) -> None:
        self._key, self._means = key, np.array([offline_s, online_s])
        share = online_s / (online_s + offline_s)
        self._first = uniforms(key, "time/present", np.arange(n_clients), 0) < share  # on at time 0
        self._block = np.full(n_clients, -1)
        self._since = np.full(n_clients, np.inf)  # the time at which the block begins
        self._turns = np.zeros((n_clients, _BLOCK))  # and those of the turns in it
        # The stay in which each client was last asked for: most questions are about the same one again.
        self._low, self._high, self._on = np.full(n_clients, np.inf), np.zeros(n_clients), self._first.copy()

    def next_online(self, clients: np.ndarray, at: np.ndarray | float) -> np.ndarray:
        times = np.broadcast_to(np.asarray(at, dtype=np.float64), clients.shape)
        elsewhere = np.flatnonzero((times < self._low[clients]) | (times >= self._high[clients]))
        if len(elsewhere):
            self._look_up(clients[elsewhere], times[elsewhere])
        return np.where(self._on[clients], times, self._high[clients])

    def _look_up(self, clients: np.ndarray, times: np.ndarray) -> None:
        """Find the stay of each client that holds its time."""
        early = clients[times < self._since[clients]]
        if len(early):
            self._block[early], self._since[early], self._turns[early] = -1, 0.0, 0.0
        while len(late := np.flatnonzero(times >= self._turns[clients, -1])):
            self._draw(clients[late])
        turns = np.column_stack([self._since[clients], self._turns[clients]])
        passed = (turns[:, 1:] <= times[:, None]).sum(axis=1)
        rows = np.arange(len(clients))
        self._low[clients], self._high[clients] = turns[rows, passed], turns[rows, passed + 1]
        self._on[clients] = self._first[clients] ^ (passed % 2 == 1)

    def _draw(self, clients: np.ndarray) -> None:
        """The next block of turns of each client."""
        self._block[clients] += 1
        numbers = self._block[clients, None] * _BLOCK + np.arange(1, _BLOCK + 1)
        u = uniforms(self._key, "time/turn", np.repeat(clients, _BLOCK), numbers.ravel()).reshape(numbers.shape)
        on = self._first[clients, None] ^ (np.arange(_BLOCK) % 2 == 1)
        since = self._turns[clients, -1]
        self._since[clients] = since
        self._turns[clients] = since[:, None] + np.cumsum(-np.log1p(-u) * self._means[on.astype(np.int64)], axis=1)


class Absences:
    """Recorded turns.

    Args:
        rows: ``[rows, 3]`` client, time, 1 or 0: from then on it is there, or not; before its first row it is there.
    """

    always = False

    def __init__(self, rows: np.ndarray, n_clients: int) -> None:
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        clients = rows[:, 0].astype(np.int64)
        before = np.concatenate([[1.0], rows[:-1, 2]])
        before[np.flatnonzero(np.diff(clients, prepend=-1))] = 1.0
        turns = before != rows[:, 2]  # a row that says what is so already is none
        clients, self._at = clients[turns], rows[turns, 1]
        self._first = np.searchsorted(clients, np.arange(n_clients + 1))
        # One sorted table of (client, rank of the time) finds everybody's place at once.
        self._times = np.unique(self._at)
        self._names = clients * (len(self._times) + 1) + np.searchsorted(self._times, self._at, side="right")

    def next_online(self, clients: np.ndarray, at: np.ndarray | float) -> np.ndarray:
        times = np.broadcast_to(np.asarray(at, dtype=np.float64), clients.shape)
        ranks = np.searchsorted(self._times, times, side="right")
        places = np.searchsorted(self._names, clients * (len(self._times) + 1) + ranks, side="right")
        on = (places - self._first[clients]) % 2 == 0
        returns = np.append(self._at, np.inf)[np.where(places < self._first[clients + 1], places, len(self._at))]
        return np.where(on, times, returns)
