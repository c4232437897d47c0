"""What the compiled stage knows of a client, and what the client has at work during its round."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compiled import kernel
from .directions import zeros


class Host(NamedTuple):
    """The clients of one call, row by row; see ``local_stage``. Client i holds the records first[i] up to last[i]."""

    x0: NDArray[Any]
    correction: NDArray[Any]
    features: NDArray[Any]
    labels: NDArray[np.float64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    keys: NDArray[np.uint64]
    steps: NDArray[np.int64]
    batch: NDArray[np.int64]
    weights: NDArray[np.float64]
    chunk: int
    eta: float
    mu: float
    noise: float
    clip: float


class Client(NamedTuple):
    """One client's records, key and constants; ``scale`` is w·H/m, so that the H component losses average to w·f_i."""

    features: NDArray[Any]
    labels: NDArray[np.float64]
    key: NDArray[np.uint64]
    components: int
    chunk: int
    scale: float
    batch: int
    steps: int
    eta: float
    mu: float
    noise: float
    clip: float


class Work(NamedTuple):
    """What a client has at work at local step t, where ``φ = x − t·correction + delta``. Rows of p are padded to width.

    Attributes:
        delta: ``[k·width]`` −η Σ ĝ so far.
        mean: ``[k·width]`` (η/H) Σ_h r_h, which every step subtracts.
        change: ``[k·width]`` η Σ_{h∈B} (g_h − r_h); 0 between steps.
        record: ``[width]`` the record being looked at, padded with zeros.
        base: ``[m, k]`` Xa of every record at the released state.
        slide: ``[m, k]`` the same of the correction.
        scores: ``[k]`` scratch.
        slopes: ``[k]`` scratch.
        order: ``[H]`` the permutation that batches are drawn from.
    """

    delta: NDArray[Any]
    mean: NDArray[Any]
    change: NDArray[Any]
    record: NDArray[Any]
    base: NDArray[np.float64]
    slide: NDArray[np.float64]
    scores: NDArray[np.float64]
    slopes: NDArray[np.float64]
    order: NDArray[np.int32]


@kernel
def product(x: NDArray[Any], record: NDArray[Any], scores: NDArray[np.float64]) -> None:
    """``Xa``, ``[k]``, for X ``[k·width]`` and a record ``[width]``."""
    n = len(record)
    for c in range(len(scores)):
        row = x[c * n : (c + 1) * n]
        total = x.dtype.type(0)
        for j in range(n):
            total += row[j] * record[j]
        scores[c] = total


@kernel
def products(
    x: NDArray[Any], y: NDArray[Any], record: NDArray[Any], first: NDArray[np.float64], second: NDArray[np.float64]
) -> None:
    """``Xa`` and ``Ya``, with the record loaded once for both."""
    n, zero = len(record), x.dtype.type(0)
    for c in range(len(first)):
        row, other = x[c * n : (c + 1) * n], y[c * n : (c + 1) * n]
        total, beside = zero, zero
        for j in range(n):
            total += row[j] * record[j]
            beside += other[j] * record[j]
        first[c], second[c] = total, beside


@kernel
def fetch(client: Client, work: Work, j: int) -> None:
    """Record j into the padded place: one copy for the many loops that then run without leftovers."""
    row = client.features[j]
    for i in range(len(row)):
        work.record[i] = row[i]


@kernel
def shift(work: Work, j: int, visit: int) -> None:
    """From the scores of ``delta`` to those of φ, for record j. Visit 0 is the start, visit t + 1 the local step t."""
    for c in range(len(work.scores)):
        work.scores[c] += work.base[j, c] - (visit - 1) * work.slide[j, c]


@kernel
def score(client: Client, work: Work, j: int, visit: int) -> None:
    """Scores of record j at φ, ``[k]``."""
    if visit == 0:
        work.scores[:] = work.base[j]
        return
    product(work.delta, work.record, work.scores)
    shift(work, j, visit)


@kernel
def desk(host: Host, k: int, width: int) -> Work:
    """Room for the work of any of the host's clients."""
    largest, like = (host.last - host.first).max(), host.x0
    most = (largest + host.chunk - 1) // host.chunk
    return Work(
        zeros(k * width, like),
        zeros(k * width, like),
        zeros(k * width, like),
        zeros(width, like),
        np.empty((largest, k), np.float64),
        np.empty((largest, k), np.float64),
        np.empty(k, np.float64),
        np.empty(k, np.float64),
        np.empty(most, np.int32),
    )


@kernel
def seat(host: Host, work: Work, i: int) -> tuple[Client, Work]:
    """Client i at the start of its round."""
    first, last = host.first[i], host.last[i]
    m, width = last - first, len(work.record)
    count = (m + host.chunk - 1) // host.chunk
    client = Client(
        host.features[first:last],
        host.labels[first:last],
        host.keys[i],
        count,
        host.chunk,
        host.weights[i] * count / m,
        host.batch[i],
        host.steps[i],
        host.eta,
        host.mu,
        host.noise,
        host.clip,
    )
    order = work.order[:count]
    mine = Work(work.delta, work.mean, work.change, work.record, work.base, work.slide, work.scores, work.slopes, order)
    for h in range(count):
        order[h] = h
    # Two vectors that are not in use yet hold the start and the correction while their scores are taken.
    pad(host.x0[i], work.delta, width, len(work.scores))
    pad(host.correction[i], work.mean, width, len(work.scores))
    for j in range(m):
        fetch(client, work, j)
        products(work.delta, work.mean, work.record, work.base[j], work.slide[j])
    work.delta[:] = 0
    work.mean[:] = 0
    return client, mine


@kernel
def pad(x: NDArray[Any], padded: NDArray[Any], width: int, k: int) -> None:
    """X ``[k·p]`` into ``[k·width]``."""
    p = len(x) // k
    padded[:] = 0  # the padding too: where a client before this one diverged, NaN stands there
    for c in range(k):
        padded[c * width : c * width + p] = x[c * p : (c + 1) * p]


@kernel
def finish(work: Work, delta: NDArray[Any]) -> None:
    """The client's increment (Z6) into its row ``[k·p]`` of the answer."""
    k, width = len(work.scores), len(work.record)
    p = len(delta) // k
    for c in range(k):
        delta[c * p : (c + 1) * p] = work.delta[c * width : c * width + p]
