"""How long clients take, which of them are there, and which messages arrive: drawn, keyed by the seed, never waited for here.

Every draw is a function of (seed, purpose, client, round) and is made for all participants of a round in one block. What
a client's *round* is: the round of the run where a server waits for its participants, and the number of the client's own
start where it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import InvalidValue
from ..keys import public_key, uniform_pairs, uniforms
from .presence import Absences, Always, Churn, Presence

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
        self.presence = self._presence()

    def _presence(self) -> Presence:
        model = self.model
        if model.absences is not None:
            return Absences(model.absences, model.clients)
        if model.online_s is None or model.offline_s is None:
            return Always()
        return Churn(self._key, model.clients, model.online_s, model.offline_s)

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

    def work(
        self, clients: np.ndarray, rounds: np.ndarray | int, now: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of ``clients`` ``[k]`` in their rounds, begun at ``now``: seconds of work ``[k]``, and who never answers, bool
        ``[k]``."""
        model = self.model
        if model.compute in ("exponential", "lognormal", "pareto") or model.dropout:
            u, other = uniform_pairs(self._key, "time/compute", clients, rounds)
        else:
            u = other = np.ones(len(clients))
        return self._seconds(u, clients, rounds, now), other < model.dropout

    def _seconds(
        self, u: np.ndarray, clients: np.ndarray, rounds: np.ndarray | int, now: np.ndarray | float
    ) -> np.ndarray:
        model, drawn = self.model, np.ones(1)
        if model.compute == "none":
            return np.zeros(len(clients))
        if model.trace is not None:
            own, begun = np.broadcast_to(rounds, clients.shape), np.broadcast_to(now, clients.shape)
            return np.asarray(model.trace.at(clients, own, begun) * self._factors[clients])
        if model.compute == "exponential":
            drawn = -np.log1p(-u)
        elif model.compute == "lognormal":
            drawn = np.exp(model.sigma * _normal(u) - model.sigma**2 / 2)
        elif model.compute == "pareto":  # of mean 1
            drawn = (model.shape - 1) / model.shape * np.power(1 - u, -1 / model.shape)
        return np.asarray(model.mean_s * drawn * self._factors[clients])

    def message(self, size_bytes: float) -> float:
        """Seconds from the start to the end of one message."""
        return self.model.latency_s + size_bytes / self.model.bandwidth

    def lost_messages(self, messages: int, exchange: int) -> np.ndarray:
        """Which of the graph's messages are lost in an exchange, bool ``[messages]``, by the message's number."""
        if not self.model.message_drop:
            return np.zeros(messages, dtype=bool)
        return np.asarray(uniforms(self._key, "time/message", np.arange(messages), exchange) < self.model.message_drop)


def _normal(u: np.ndarray) -> np.ndarray:
    """Standard normal numbers from uniform ones."""
    from scipy.special import ndtri

    return np.asarray(ndtri(u))
