"""What travels between coordinator and hosts. Light: no torch, so that the coordinator need not import it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class HostShard:
    """Records of a host's clients: features ``[M, p]``, labels ``[M]``, offsets ``[n + 1]`` int64 (client i holds rows
    offsets[i] to offsets[i + 1])."""

    features: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True)
class ClientError:
    """A client's own code raised: what, and its traceback as text."""

    client: int
    error: str
    trace: str


@dataclass(frozen=True)
class RoundTask:
    """One round's work for one host.

    Attributes:
        round: t, from 1.
        total: float64, what the method makes its broadcast of: the sum of uploads ``[U]``, or the server's state ``[S]``.
        clients: ``[k]`` granted clients of this host, ascending; numbers, events: their grants.
        isolate: leave out clients that raise, and answer with their errors.
    """

    round: int
    total: np.ndarray
    clients: np.ndarray
    numbers: np.ndarray
    events: np.ndarray
    isolate: bool = False


@dataclass(frozen=True)
class RoundResult:
    """A host's answer: the sum of its clients' uploads ``[U]``, released values only.

    Attributes:
        released: clients that used a grant; uploads: clients that uploaded, also in a round that was not charged.
        clipped: a diagnostic of the simulation.
    """

    host: int
    round: int
    total: np.ndarray
    released: int
    clipped: int
    seconds: float
    uploads: int
    errors: tuple[ClientError, ...] = ()


@dataclass(frozen=True)
class Worked:
    """A host's answer where results are kept aside until it is known whether they count."""

    host: int
    clipped: int
    seconds: float
    errors: tuple[ClientError, ...] = ()


@dataclass(frozen=True)
class Parcel:
    """Released vectors on their way from host to host. ``content`` is the array itself within a process, or a reference
    to it in the object store: whoever carries a parcel never opens it."""

    content: Any


@dataclass(frozen=True)
class Sent:
    """A host's answer, and the parcels that it has made up for other hosts."""

    value: Any
    parcels: dict[int, Parcel]


@dataclass(frozen=True)
class Missing:
    """A host could not open the parcels of these hosts, whose process is gone; it has done nothing."""

    sources: list[int]


@dataclass(frozen=True)
class StepTask:
    """One exchange over the graph for one host.

    Attributes:
        step: the number of the exchange, from 1; rows are stamped with it.
        round: the release round t, or 0 for an exchange without data.
        clients, numbers, events: the grants of this host's clients that release; empty where none do.
        heard: by edge of this host's clients, sorted by client and neighbour, whether the neighbour's last message came
            through; None: all of them.
        isolate: let clients that raise add nothing (Δ̃ = 0), and answer with their errors.
    """

    step: int
    round: int
    clients: np.ndarray
    numbers: np.ndarray
    events: np.ndarray
    heard: np.ndarray | None = None
    isolate: bool = False


@dataclass(frozen=True)
class StepResult:
    """What the coordinator sees of a host's exchange. ``total`` ``[d]`` float64 is the sum of its released states."""

    host: int
    total: np.ndarray
    released: int
    clipped: int
    counts: dict[str, int]
    seconds: float
    errors: tuple[ClientError, ...] = ()


@dataclass(frozen=True)
class Heading:
    """Where a host's last release went before clip and noise: ``total`` ``[d]`` is the sum of its clients' increments,
    each at norm 1."""

    clients: int
    total: np.ndarray


@dataclass(frozen=True)
class GraphDiagnosis:
    """Sums and extremes over a host's clients. What follows from released states comes first; ``objective``, ``gradient``
    ``[d]`` and ``heading`` depend on private data and are never part of a release."""

    clients: int
    scores: dict[str, np.ndarray]
    deviation: float
    objective: float
    gradient: np.ndarray
    heading: Heading


@dataclass(frozen=True)
class Diagnosis:
    """Sums over a host's clients that depend on private data; they are never part of a release."""

    clients: int
    objective: float
    local_loss: float
    consensus: float


@dataclass(frozen=True)
class Answer:
    """A call's result."""

    host: int
    value: Any


@dataclass(frozen=True)
class Lost:
    """The host's process ended before it answered."""

    host: int
    reason: str


@dataclass(frozen=True)
class Failed:
    """The call raised. ``error`` is the exception, ``trace`` its traceback as text."""

    host: int
    error: Exception
    trace: str


Outcome = Answer | Lost | Failed
