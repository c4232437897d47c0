"""What the compiled stage knows of a client, and what the client has at work during its round."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compiled import kernel


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
    """What a client has at work at local step t, where ``φ = x − t·correction + delta``.

    Attributes:
        delta: ``[k·p]`` −η Σ ĝ so far.
        mean: ``[k·p]`` (η/H) Σ_h r_h, which every step subtracts.
        change: ``[k·p]`` η Σ_{h∈B} (g_h − r_h); 0 between steps.
        base: ``[m, k]`` Xa of every record at the released state.
        slide: ``[m, k]`` the same of the correction.
        scores: ``[k]`` scratch.
        slopes: ``[k]`` scratch.
        order: ``[H]`` the permutation that batches are drawn from.
    """

    delta: NDArray[Any]
    mean: NDArray[Any]
    change: NDArray[Any]
    base: NDArray[np.float64]
    slide: NDArray[np.float64]
    scores: NDArray[np.float64]
    slopes: NDArray[np.float64]
    order: NDArray[np.int32]


@kernel
def desk(host: Host, k: int) -> Work:
    """Room for the work of any of the host's clients."""
    d, largest = host.x0.shape[1], (host.last - host.first).max()
    most = (largest + host.chunk - 1) // host.chunk
    like = host.x0.dtype
    return Work(
        np.empty(d, like),
        np.empty(d, like),
        np.zeros(d, like),
        np.empty((largest, k), np.float64),
        np.empty((largest, k), np.float64),
        np.empty(k, np.float64),
        np.empty(k, np.float64),
        np.empty(most, np.int32),
    )


@kernel
def seat(host: Host, work: Work, delta: NDArray[Any], i: int) -> tuple[Client, Work]:
    """Client i at the start of its round, its increment being row i of ``delta`` ``[C, k·p]``."""
    first, last = host.first[i], host.last[i]
    m = last - first
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
    mine = Work(delta[i], work.mean, work.change, work.base, work.slide, work.scores, work.slopes, order)
    mine.delta[:] = 0
    mine.mean[:] = 0
    for h in range(count):
        order[h] = h
    for j in range(m):
        product(host.x0[i], client.features[j], mine.base[j])
        product(host.correction[i], client.features[j], mine.slide[j])
    return client, mine


@kernel
def product(x: NDArray[Any], record: NDArray[Any], scores: NDArray[np.float64]) -> None:
    """``Xa``, ``[k]``, for X ``[k·p]`` and a record ``[p]``."""
    p = len(record)
    for c in range(len(scores)):
        row = x[c * p : (c + 1) * p]
        total = x.dtype.type(0)
        for j in range(p):
            total += row[j] * record[j]
        scores[c] = total


@kernel
def score(client: Client, work: Work, j: int, visit: int) -> None:
    """Scores of record j at φ, ``[k]``. Visit 0 is the start, visit t + 1 the local step t."""
    scores = work.scores
    if visit == 0:
        for c in range(len(scores)):
            scores[c] = work.base[j, c]
        return
    product(work.delta, client.features[j], scores)
    for c in range(len(scores)):
        scores[c] += work.base[j, c] - (visit - 1) * work.slide[j, c]
