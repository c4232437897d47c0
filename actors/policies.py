"""When a round is over and whose work counts: pure functions of arrival times. Light: no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["wait", "over-select", "deadline", "async", "barrier", "neighbour", "lossy"]
OnError = Literal["stop", "skip", "retry"]

SERVER_KINDS = ("wait", "over-select", "deadline", "async")
GRAPH_KINDS = ("wait", "barrier", "neighbour", "lossy")


@dataclass(frozen=True)
class Policy:
    """How stragglers are met.

    Attributes:
        kind: for a server ``wait`` for all, ``over-select`` (the first ``take`` of those who began), ``deadline``, ``async``;
            over a graph ``barrier`` (also called ``wait``), ``neighbour`` (a client goes on when its neighbours' messages are
            there), ``lossy`` (nobody waits for a lost message: the receiver keeps what it has of that edge).
        take: K of ``over-select``.
        deadline_s: seconds after a round's start at which it is closed.
        working: clients at work at any time, for ``async``.
        buffer: arrivals after which an asynchronous server updates its model.
        staleness: the most updates between a client's start and the update that uses it.
    """

    kind: Kind = "wait"
    take: int | None = None
    deadline_s: float | None = None
    working: int | None = None
    buffer: int = 1
    staleness: int = 10


@dataclass(frozen=True)
class Closing:
    """How a round ends: ``used`` and ``late``, bool ``[k]``, and the time at which it is over."""

    used: np.ndarray
    late: np.ndarray
    at: float


def close_round(
    policy: Policy, began: float, clients: np.ndarray, arrivals: np.ndarray, dropped: np.ndarray
) -> Closing:
    """The end of a round that ``clients`` ``[k]`` began.

    Args:
        arrivals: ``[k]`` when each answer comes in; for a client that dropped out, when its silence is noticed.
        dropped: bool ``[k]``.
    """
    if not len(clients):
        return Closing(dropped, dropped, began)
    everything = max(began, float(arrivals.max()))
    if policy.kind == "deadline":
        assert policy.deadline_s is not None
        at = min(everything, began + policy.deadline_s)
        if not np.isfinite(at):  # nobody comes back, and the cut-off was never reached: the deadline itself
            at = began + policy.deadline_s
        used = ~dropped & (arrivals <= at)
    elif policy.kind == "over-select":
        assert policy.take is not None
        order = np.lexsort((clients, arrivals))  # ties go to the lower client id
        first = order[~dropped[order] & np.isfinite(arrivals[order])][: policy.take]
        used = np.zeros(len(clients), dtype=bool)
        used[first] = True
        at = float(arrivals[first].max()) if len(first) == policy.take else everything
    else:
        used, at = ~dropped, everything
    return Closing(used, ~used & ~dropped, at)
