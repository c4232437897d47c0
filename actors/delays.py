"""How long clients take, which of them are there, and which messages arrive: drawn, keyed by the seed, never waited for here.

Every draw is a function of (seed, purpose, client, round) and is made for all participants of a round in one block. What
a client's *round* is: the round of the run where a server waits for its participants, and the number of the client's own
start where it does not.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import InvalidValue
from ..keys import public_key, uniforms

Compute = Literal["none", "constant", "exponential", "lognormal", "pareto", "trace"]
Clock = Literal["virtual", "real"]


class Trace:
    """Seconds that were observed: a table of (client, round or time, seconds).

    Args:
        by: ``round``: a row holds for that round alone; ``time``: from that time in seconds on, until the client's next row.
        clients, at, seconds: ``[rows]``; ``at`` is the round or the time.
        n_clients: clients are 0 … n_clients − 1.

    Raises:
        InvalidValue: a client or a number that cannot be, two rows for the same place, or, by time, a client without a row
            that holds from the start.
    """

    def __init__(
        self, by: Literal["round", "time"], clients: np.ndarray, at: np.ndarray, seconds: np.ndarray, n_clients: int
    ) -> None:
        self.by: Literal["round", "time"] = by
        strange = np.flatnonzero((clients < 0) | (clients >= n_clients))
        if len(strange):
            raise InvalidValue("time.trace", int(clients[strange[0]]), f"is no client: they are 0 to {n_clients - 1}")
        wrong = np.flatnonzero(~(np.isfinite(seconds) & (seconds >= 0) & np.isfinite(at)))
        if len(wrong):
            row = int(wrong[0])
            raise InvalidValue(
                "time.trace", float(seconds[row]), f"client {int(clients[row])} needs finite seconds ≥ 0 there"
            )
        self._places = np.unique(at)
        self._span = len(self._places) + 1
        names = clients * self._span + np.searchsorted(self._places, at) + 1
        order = np.argsort(names, kind="stable")
        self._names, self._seconds = names[order], seconds[order]
        twice = np.flatnonzero(np.diff(self._names) == 0)
        if len(twice):
            client = int(self._names[twice[0]] // self._span)
            raise InvalidValue("time.trace", client, f"this client has two rows for the same {by}; keep one")
        if by == "time":
            self.check(np.arange(n_clients), np.zeros(n_clients))

    def check(self, clients: np.ndarray, at: np.ndarray) -> None:
        """Refuse, with one sentence, if any of the pairs has no time."""
        _, found = self._rows(clients, at)
        if not found.all():
            row = int(np.flatnonzero(~found)[0])
            place = f"round {int(at[row])}" if self.by == "round" else "the start (time 0)"
            raise InvalidValue(
                "time.trace",
                f"no row for client {int(clients[row])}",
                f"it has no seconds for {place}; add a row, a missing time is not zero",
            )

    def at(self, clients: np.ndarray, rounds: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Seconds ``[k]`` of clients ``[k]`` in their rounds, started at ``now`` ``[k]``; InvalidValue if one is missing."""
        places = rounds if self.by == "round" else now
        rows, found = self._rows(clients, places)
        if not found.all():
            self.check(clients, places)
        return np.asarray(self._seconds[rows])

    def _rows(self, clients: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rank = np.searchsorted(self._places, at, side="right")  # the last place that is not after it, counted from 1
        wanted = clients * self._span + rank
        rows = np.searchsorted(self._names, wanted, side="right") - 1
        held = self._names[np.maximum(rows, 0)]
        found = (rows >= 0) & (held // self._span == clients)
        if self.by == "round":
            found &= (held == wanted) & (self._places[np.maximum(rank, 1) - 1] == at)
        return np.maximum(rows, 0), found


@dataclass(frozen=True)
class DelayModel:
    """What takes time and what fails, for the clients of a run.

    Attributes:
        seed, clients: the run's seed and N.
        compute: distribution of the seconds of a client's work in a round, with mean ``mean_s``; ``none`` takes no time.
        sigma: of the logarithm, for ``lognormal``; shape: the exponent of ``pareto``, above 1.
        slow_fraction: this share of the clients, drawn once, takes ``slow_factor`` times as long.
        speed_spread: standard deviation of the logarithm of a factor that is each client's own for the whole run.
        speeds: ``[N]`` relative speeds that are known; 2 halves the time.
        trace: the seconds, for ``trace``.
        latency_s, bandwidth: of every message; bytes per second, ``inf`` for no limit.
        dropout: probability that a client that began a round does not answer.
        online_s, offline_s: mean seconds for which a client stays on and off, each exponential: a two-state Markov chain.
        absences: ``[rows, 3]`` client, time, 1 or 0: from then on it is there, or not; in place of the chain.
        message_drop: probability that a message between neighbours is lost.
    """

    seed: int
    clients: int
    compute: Compute = "none"
    mean_s: float = 1.0
    sigma: float = 1.0
    shape: float = 2.0
    slow_fraction: float = 0.0
    slow_factor: float = 10.0
    speed_spread: float = 0.0
    speeds: np.ndarray | None = None
    trace: Trace | None = None
    latency_s: float = 0.0
    bandwidth: float = np.inf
    dropout: float = 0.0
    online_s: float | None = None
    offline_s: float | None = None
    absences: np.ndarray | None = None
    message_drop: float = 0.0


class Delays:
    """Draws what a ``DelayModel`` says."""

    def __init__(self, model: DelayModel) -> None:
        self.model, self._key = model, public_key(model.seed)
        self._factors = self._own_factors()
        self.presence = Presence(model, self._key)

    def _own_factors(self) -> np.ndarray:
        model, everyone = self.model, np.arange(self.model.clients)
        factors = np.ones(model.clients) if model.speeds is None else 1 / model.speeds
        if model.speed_spread:
            factors = factors * np.exp(model.speed_spread * _normal(uniforms(self._key, "time/speed", everyone, 0)))
        slow = round(model.slow_fraction * model.clients)
        if slow:
            chosen = np.argsort(uniforms(self._key, "time/slow", everyone, 0), kind="stable")[:slow]
            factors[chosen] *= model.slow_factor
        return np.asarray(factors)

    @property
    def factors(self) -> np.ndarray:
        """``[N]`` how many times longer than the model's mean each client takes."""
        return self._factors.copy()

    def compute(self, clients: np.ndarray, rounds: np.ndarray | int, now: np.ndarray | float) -> np.ndarray:
        """Seconds of work ``[k]`` of ``clients`` ``[k]`` in their rounds, begun at ``now``."""
        model = self.model
        if model.compute == "none":
            return np.zeros(len(clients))
        if model.compute == "constant":
            return np.asarray(model.mean_s * self._factors[clients])
        if model.trace is not None:
            own, begun = np.broadcast_to(rounds, clients.shape), np.broadcast_to(now, clients.shape)
            return np.asarray(model.trace.at(clients, own, begun) * self._factors[clients])
        u = uniforms(self._key, "time/compute", clients, rounds)
        if model.compute == "exponential":
            drawn = -np.log1p(-u)
        elif model.compute == "lognormal":
            drawn = np.exp(model.sigma * _normal(u) - model.sigma**2 / 2)
        else:  # a Pareto variable of mean 1
            drawn = (model.shape - 1) / model.shape * np.power(1 - u, -1 / model.shape)
        return np.asarray(model.mean_s * drawn * self._factors[clients])

    def message(self, size_bytes: float) -> float:
        """Seconds from the start to the end of one message."""
        return self.model.latency_s + size_bytes / self.model.bandwidth

    def dropped(self, clients: np.ndarray, rounds: np.ndarray | int) -> np.ndarray:
        """Which of the clients begin their round and never answer, bool ``[k]``."""
        if not self.model.dropout:
            return np.zeros(len(clients), dtype=bool)
        return np.asarray(uniforms(self._key, "time/dropout", clients, rounds) < self.model.dropout)

    def lost_messages(self, messages: int, exchange: int) -> np.ndarray:
        """Which of the graph's messages are lost in an exchange, bool ``[messages]``, by the message's number."""
        if not self.model.message_drop:
            return np.zeros(messages, dtype=bool)
        return np.asarray(uniforms(self._key, "time/message", np.arange(messages), exchange) < self.model.message_drop)


def _normal(u: np.ndarray) -> np.ndarray:
    """Standard normal numbers from uniform ones."""
    from scipy.special import ndtri

    return np.asarray(ndtri(u))


class Presence:
    """When each client is on. Times to come are drawn when they are first asked for and remembered."""

    _AHEAD = 4

    def __init__(self, model: DelayModel, key: bytes) -> None:
        self._model, self._key = model, key
        self.always = model.absences is None and (model.online_s is None or model.offline_s is None)
        self._changes: dict[int, list[float]] = {}  # the times at which a client turns on or off, in order
        self._first: dict[int, bool] = {}  # whether it is on before the first of them
        # The stretch in which each client was last asked for: most questions are about the same one again.
        self._low, self._high = np.zeros(model.clients), np.zeros(model.clients)
        self._on = np.ones(model.clients, dtype=bool)
        if model.absences is not None:
            self._read(model.absences)

    def _read(self, rows: np.ndarray) -> None:
        for client, at, on in rows[np.lexsort((rows[:, 1], rows[:, 0]))].tolist():
            changes = self._changes.setdefault(int(client), [])
            before = self._first.setdefault(int(client), True) ^ bool(len(changes) % 2)
            if before != bool(on):
                changes.append(at)

    def next_online(self, clients: np.ndarray, at: np.ndarray | float) -> np.ndarray:
        """The first times ``[k]``, not before ``at``, at which distinct ``clients`` ``[k]`` are on; ``inf`` for never."""
        times = np.array(np.broadcast_to(np.asarray(at, dtype=np.float64), clients.shape))
        if self.always:
            return times
        elsewhere = np.flatnonzero((times < self._low[clients]) | (times >= self._high[clients]))
        if len(elsewhere):
            self._look_up(clients[elsewhere], times[elsewhere])
        return np.asarray(np.where(self._on[clients], times, self._high[clients]))

    def _look_up(self, clients: np.ndarray, times: np.ndarray) -> None:
        """Find the stretch without a change that holds each client's time, and remember it."""
        if self._model.absences is None:
            self._draw(clients, times)
        for client, time in zip(clients.tolist(), times.tolist()):
            changes = self._changes.get(client, [])
            passed = bisect_right(changes, time)
            self._on[client] = self._first.get(client, True) ^ bool(passed % 2)
            self._low[client] = changes[passed - 1] if passed else 0.0
            self._high[client] = changes[passed] if passed < len(changes) else np.inf

    def _draw(self, clients: np.ndarray, until: np.ndarray) -> None:
        """Draw changes until each client's next one after ``until`` is known."""
        online, offline = self._model.online_s, self._model.offline_s
        assert online is not None
        assert offline is not None
        new = np.array([client for client in clients.tolist() if client not in self._changes], dtype=np.int64)
        if len(new):
            starts_on = uniforms(self._key, "time/present", new, 0) < online / (online + offline)
            for client, on in zip(new.tolist(), starts_on.tolist()):
                self._changes[client], self._first[client] = [], bool(on)
        short = [
            client
            for client, time in zip(clients.tolist(), until.tolist())
            if not self._changes[client] or self._changes[client][-1] <= time
        ]
        while short:
            held = np.array([len(self._changes[client]) for client in short])
            numbers = held[:, None] + np.arange(self._AHEAD)
            owners = np.repeat(np.asarray(short), self._AHEAD)
            u = uniforms(self._key, "time/turn", owners, numbers.ravel() + 1).reshape(numbers.shape)
            starts = np.array([self._first[client] for client in short])[:, None]
            stays = -np.log1p(-u) * np.where(starts ^ (numbers % 2 == 1), online, offline)
            for client, row in zip(short, stays):
                changes = self._changes[client]
                changes += (np.cumsum(row) + (changes[-1] if changes else 0.0)).tolist()
            limit = dict(zip(clients.tolist(), until.tolist()))
            short = [client for client in short if self._changes[client][-1] <= limit[client]]
