"""The local stage (Z2–Z6) of clients with linear models, one compiled loop over clients, steps and queries.

A query makes the direction's bits, takes two products along the record (increment and direction) and evaluates the loss;
an update adds the bits back as ±1 times a number. A client at work holds its increment, the mean of its memory, for b > 1
a sum of d numbers, and per record the scores of the start and of the correction, whatever the number of queries. Since φ is
never formed, the increment has all the digits of its own type however small it is beside x, and (Z6) takes no subtraction.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compiled import FINGERPRINT, entry, kernel
from .directions import Direction, add, draw_direction, project, room
from .links import loss, residual
from .words import draw_component, normal_pair

ESTIMATORS = {"paper": 0, "baseline": 1, "two-point": 2, "gradient": 3}
BASELINE, TWO_POINT, GRADIENT = 1, 2, 3


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


@kernel
def query_noise(client: Client, h: int, visit: int) -> tuple[float, float]:
    """ζ of a component's query, and of its second one (two-point)."""
    if client.noise == 0:
        return 0.0, 0.0
    first, second = normal_pair(client.key, h, visit)
    return client.noise * first, client.noise * second


@kernel
def query(estimator: int, link: int, client: Client, work: Work, u: Direction, h: int, visit: int) -> float:
    """The number that multiplies u in (Z1), at φ: f(φ + μu) + ζ, or half the difference of the two ends."""
    above = below = 0.0
    scores, slopes, mu = work.scores, work.slopes, client.mu
    for j in range(h * client.chunk, min((h + 1) * client.chunk, len(client.labels))):
        label = client.labels[j]
        score(client, work, j, visit)
        project(u, client.features[j], slopes)
        for c in range(len(scores)):
            scores[c] += mu * slopes[c]
        above += loss(link, scores, label)
        if estimator == TWO_POINT:
            for c in range(len(scores)):
                scores[c] -= 2 * mu * slopes[c]
            below += loss(link, scores, label)
    zeta, other = query_noise(client, h, visit)
    if estimator == TWO_POINT:
        return 0.5 * (client.scale * (above - below) + zeta - other)
    return client.scale * above + zeta


@kernel
def first_value(link: int, client: Client, work: Work, h: int) -> float:
    """f_h at the released state, without noise."""
    total = 0.0
    for j in range(h * client.chunk, min((h + 1) * client.chunk, len(client.labels))):
        score(client, work, j, 0)
        total += loss(link, work.scores, client.labels[j])
    return client.scale * total


@kernel
def step_pair(work: Work, new: Direction, plus: float, old: Direction, minus: float, share: float, p: int, k: int) -> None:
    """(Z4, Z5) for b = 1 and bits in one pass: ``v = plus·u_new − minus·u_old``, ``delta −= v + mean``, ``mean += share·v``."""
    number = work.delta.dtype.type
    a, b, s = number(plus), number(minus), number(share)
    for row in range(k * new.parts):
        first = row % new.parts * new.length
        n = min(new.length, p - first)
        start, word = row // new.parts * p + first, (row >> 5) * new.length
        bit = np.uint32(1) << np.uint32(row & 31)
        x, y = work.delta[start : start + n], work.mean[start : start + n]
        w, o = new.words[word : word + n], old.words[word : word + n]
        for j in range(n):
            v = (a if w[j] & bit else -a) - (b if o[j] & bit else -b)
            x[j] -= y[j] + v
            y[j] += s * v


@kernel
def step_sum(work: Work, batch: int, share: float) -> None:
    """(Z4, Z5) for any batch: ``delta −= change/b + mean``, ``mean += share·change``, ``change = 0``."""
    number = work.delta.dtype.type
    inverse, s, zero = number(1.0 / batch), number(share), number(0)
    delta, mean, change = work.delta, work.mean, work.change
    for j in range(len(delta)):
        v = change[j]
        delta[j] -= inverse * v + mean[j]
        mean[j] += s * v
        change[j] = zero


@kernel
def remember(
    estimator: int, link: int, client: Client, work: Work, u: Direction, memory: NDArray[np.float64]
) -> tuple[int, float]:
    """(Z3): asks every component once at the start. Returns the number of queries and the mean of what was seen."""
    p, k, count = client.features.shape[1], len(work.scores), client.components
    level = 0.0
    for h in range(count):
        if estimator == BASELINE:
            memory[h] = first_value(link, client, work, h) + query_noise(client, h, 0)[0]
        else:
            draw_direction(u, p, k, client.key, h, 0)
            memory[h] = query(estimator, link, client, work, u, h, 0)
            add(work.mean, client.eta * memory[h] / count, u, p, k)
        level += memory[h] / count
    return count, level


@kernel
def walk(
    link: int,
    estimator: int,
    client: Client,
    work: Work,
    new: Direction,
    old: Direction,
    memory: NDArray[np.float64],
    visits: NDArray[np.int32],
) -> int:
    """τ steps (Z4, Z5) of ``paper`` and ``two-point``. Returns the number of queries.

    ``memory[h]`` is the number that multiplies the direction in r_h; the direction comes back from ``visits[h]``.
    """
    p, k = client.features.shape[1], len(work.scores)
    share, single = 1.0 / client.components, client.batch == 1 and len(new.values) == 0
    visits[: client.components] = 0
    for t in range(client.steps):
        for place in range(client.batch):
            h = draw_component(client.key, work.order, place, t)
            draw_direction(new, p, k, client.key, h, t + 1)
            draw_direction(old, p, k, client.key, h, visits[h])
            seen = query(estimator, link, client, work, new, h, t + 1)
            if single:
                step_pair(work, new, client.eta * seen, old, client.eta * memory[h], share, p, k)
            else:
                add(work.change, client.eta * seen, new, p, k)
                add(work.change, -client.eta * memory[h], old, p, k)
            memory[h], visits[h] = seen, t + 1
        if not single:
            step_sum(work, client.batch, share)
    return client.steps * client.batch


@kernel
def walk_values(link: int, client: Client, work: Work, u: Direction, memory: NDArray[np.float64]) -> int:
    """τ steps of ``baseline``, where ``memory[h]`` is the value last seen. Returns the number of queries."""
    p, k = client.features.shape[1], len(work.scores)
    for t in range(client.steps):
        for place in range(client.batch):
            h = draw_component(client.key, work.order, place, t)
            draw_direction(u, p, k, client.key, h, t + 1)
            seen = query(BASELINE, link, client, work, u, h, t + 1)
            gain = client.eta * (seen - memory[h]) / client.batch
            # The step's queries are all at φᵗ: with more than one the increment has to wait for the last.
            add(work.delta if client.batch == 1 else work.change, -gain, u, p, k)
            memory[h] = seen
        if client.batch > 1:
            for j in range(p * k):
                work.delta[j] += work.change[j]
                work.change[j] = 0
    return client.steps * client.batch


@kernel
def shorten(slopes: NDArray[np.float64], record: NDArray[Any], clip: float) -> None:
    """Scales ∂ℓ/∂s ``[k]`` so that the record's gradient, of norm ‖∂ℓ/∂s‖·‖a‖, is no longer than ``clip``."""
    squares = lengths = 0.0
    for c in range(len(slopes)):
        squares += slopes[c] * slopes[c]
    for j in range(len(record)):
        lengths += np.float64(record[j]) * np.float64(record[j])
    norm = math.sqrt(squares * lengths)
    if norm > clip:
        for c in range(len(slopes)):
            slopes[c] *= clip / norm


@kernel
def revisit(
    link: int,
    client: Client,
    work: Work,
    table: NDArray[np.float64],
    target: NDArray[Any],
    h: int,
    visit: int,
    scale: float,
) -> float:
    """Replaces the remembered ∂ℓ/∂s ``[m, k]`` of a component's records by those at φ; ``target += scale·(new − old)``.

    One record's gradient is ∂ℓ/∂s ⊗ a, so the memory of a gradient is k numbers. Returns f_h(φ).
    """
    p, k = client.features.shape[1], len(work.scores)
    total = 0.0
    for j in range(h * client.chunk, min((h + 1) * client.chunk, len(client.labels))):
        record = client.features[j]
        score(client, work, j, visit)
        total += loss(link, work.scores, client.labels[j])
        residual(link, work.scores, client.labels[j])
        if client.clip < np.inf:
            shorten(work.scores, record, client.clip)
        for c in range(k):
            factor = target.dtype.type(scale * (work.scores[c] - table[j, c]))
            table[j, c] = work.scores[c]
            x = target[c * p : (c + 1) * p]
            for i in range(p):
                x[i] += factor * record[i]
    return client.scale * total


@kernel
def descend(link: int, client: Client, work: Work, table: NDArray[np.float64]) -> tuple[int, float]:
    """Exact gradients times μ in place of (Z1), with the same memory. Returns evaluations and f_i at the start."""
    count = client.components
    scale = client.eta * client.mu * client.scale
    level = 0.0
    table[: len(client.labels)] = 0
    for h in range(count):
        level += revisit(link, client, work, table, work.mean, h, 0, scale / count) / count
    for t in range(client.steps):
        for place in range(client.batch):
            h = draw_component(client.key, work.order, place, t)
            revisit(link, client, work, table, work.change, h, t + 1, scale)
        step_sum(work, client.batch, 1.0 / count)
    return count + client.steps * client.batch, level


def _make(fingerprint: int) -> Any:
    @entry
    def stage(
        x0: NDArray[Any],
        correction: NDArray[Any],
        features: NDArray[Any],
        labels: NDArray[np.float64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        keys: NDArray[np.uint64],
        steps: NDArray[np.int64],
        batch: NDArray[np.int64],
        weights: NDArray[np.float64],
        codes: tuple[int, int, int, int, int],
        sizes: tuple[float, float, float, float],
        delta: NDArray[Any],
        queries: NDArray[np.int64],
        level: NDArray[np.float64],
    ) -> None:
        if fingerprint < 0:  # never: names it, so that it is part of the cache's key
            return
        estimator, kind, link, k, chunk = codes
        eta, mu, noise, clip = sizes
        d, p, largest = x0.shape[1], features.shape[1], (last - first).max()
        new, old = room(kind, p, k, x0), room(kind, p, k, x0)
        mean, change = np.empty(d, x0.dtype), np.zeros(d, x0.dtype)
        base, slide = np.empty((largest, k), np.float64), np.empty((largest, k), np.float64)
        scores, slopes = np.empty(k, np.float64), np.empty(k, np.float64)
        most = (largest + chunk - 1) // chunk
        order, visits, memory = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.float64)
        table = np.empty((largest if estimator == GRADIENT else 0, k), np.float64)
        for i in range(len(x0)):
            records, m = features[first[i] : last[i]], last[i] - first[i]
            count = (m + chunk - 1) // chunk
            numbers = labels[first[i] : last[i]]
            scale = weights[i] * count / m
            client = Client(records, numbers, keys[i], count, chunk, scale, batch[i], steps[i], eta, mu, noise, clip)
            work = Work(delta[i], mean, change, base, slide, scores, slopes, order[:count])
            work.delta[:] = 0
            mean[:] = 0
            for h in range(count):
                order[h] = h
            for j in range(m):
                product(x0[i], records[j], base[j])
                product(correction[i], records[j], slide[j])
            if estimator == GRADIENT:
                queries[i], level[i] = descend(link, client, work, table)
                continue
            queries[i], level[i] = remember(estimator, link, client, work, new, memory)
            if estimator == BASELINE:
                queries[i] += walk_values(link, client, work, new, memory)
            else:
                queries[i] += walk(link, estimator, client, work, new, old, memory, visits)
            if estimator == TWO_POINT:
                queries[i] *= 2

    return stage


stage = _make(FINGERPRINT)
