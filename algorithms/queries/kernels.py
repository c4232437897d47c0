"""The local stage (Z2–Z6) of clients with linear models, one compiled loop over clients, steps and queries.

A query makes the direction's bits, takes two products along the record (increment and direction) and evaluates the loss;
an update adds the bits back as ±1 times a number. A client at work holds its increment, the mean of its memory, for b > 1
a sum of d numbers, and per record the scores of the start and of the correction, whatever the number of queries. Since φ is
never formed, the increment has all the digits of its own type however small it is beside x, and (Z6) takes no subtraction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .clients import Client, Host, Work, desk, fetch, finish, score, seat, shift
from .compiled import FINGERPRINT, entry, kernel
from .directions import Direction, add, draw_direction, project, project_both, room, row_bit
from .links import loss, residual
from .words import draw_component, normal_pair


@kernel
def query_noise(client: Client, h: int, visit: int) -> tuple[float, float]:
    """ζ of a component's query, and of its second one (two-point)."""
    if client.noise == 0:
        return 0.0, 0.0
    first, second = normal_pair(client.key, h, visit)
    return client.noise * first, client.noise * second


@kernel
def query(two_point: bool, link: int, client: Client, work: Work, u: Direction, h: int, visit: int) -> float:
    """The number that multiplies u in (Z1), at φ: f(φ + μu) + ζ, or half the difference of the two ends."""
    above = below = 0.0
    scores, slopes, mu = work.scores, work.slopes, client.mu
    for j in range(h * client.chunk, min((h + 1) * client.chunk, len(client.labels))):
        label = client.labels[j]
        fetch(client, work, j)
        if visit == 0:
            score(client, work, j, 0)
            project(u, work.record, slopes)
        else:
            project_both(u, work.delta, work.record, scores, slopes)
            shift(work, j, visit)
        for c in range(len(scores)):
            scores[c] += mu * slopes[c]
        above += loss(link, scores, label)
        if two_point:
            for c in range(len(scores)):
                scores[c] -= 2 * mu * slopes[c]
            below += loss(link, scores, label)
    zeta, other = query_noise(client, h, visit)
    if two_point:
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
def step_pair(work: Work, new: Direction, plus: float, old: Direction, minus: float, share: float) -> None:
    """(Z4, Z5) for b = 1 and bits in one pass: ``v = plus·u_new − minus·u_old``, ``delta −= v + mean``, ``mean += share·v``."""
    number, n = work.delta.dtype.type, new.length
    a, b, s = number(plus), number(minus), number(share)
    for row in range(new.k * new.parts):
        bit, word = row_bit(row), (row >> 5) * n
        x, y = work.delta[row * n : row * n + n], work.mean[row * n : row * n + n]
        w, o = new.words[word : word + n], old.words[word : word + n]
        for j in range(n):
            v = (a if np.uint32(w[j] & bit) else -a) - (b if np.uint32(o[j] & bit) else -b)
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
def walk(
    two_point: bool,
    link: int,
    client: Client,
    work: Work,
    new: Direction,
    old: Direction,
    memory: NDArray[np.float64],
    visits: NDArray[np.int32],
) -> tuple[int, float]:
    """(Z3), then τ steps (Z4, Z5), for ``paper`` and ``two-point``. Returns the queries and the mean of the first ones.

    ``memory[h]`` is the number that multiplies the direction in r_h; the direction comes back from ``visits[h]``.
    """
    count = client.components
    single = client.batch == 1 and len(new.values) == 0
    level = 0.0
    for t in range(-1, client.steps):
        for place in range(count if t < 0 else client.batch):
            h = place if t < 0 else draw_component(client.key, work.order, place, t)
            draw_direction(new, client.key, h, t + 1)
            seen = query(two_point, link, client, work, new, h, t + 1)
            if t < 0:
                level += seen / count
                add(work.mean, client.eta * seen / count, new)
            else:
                draw_direction(old, client.key, h, visits[h])
                if single:
                    step_pair(work, new, client.eta * seen, old, client.eta * memory[h], 1.0 / count)
                else:
                    add(work.change, client.eta * seen, new)
                    add(work.change, -client.eta * memory[h], old)
            memory[h], visits[h] = seen, t + 1
        if t >= 0 and not single:
            step_sum(work, client.batch, 1.0 / count)
    return (count + client.steps * client.batch) * (2 if two_point else 1), level


@kernel
def walk_values(link: int, client: Client, work: Work, u: Direction, memory: NDArray[np.float64]) -> tuple[int, float]:
    """The same for ``baseline``, where ``memory[h]`` is the value last seen and (Z3) needs no directions."""
    count = client.components
    level = 0.0
    for h in range(count):
        memory[h] = first_value(link, client, work, h) + query_noise(client, h, 0)[0]
        level += memory[h] / count
    for t in range(client.steps):
        for place in range(client.batch):
            h = draw_component(client.key, work.order, place, t)
            draw_direction(u, client.key, h, t + 1)
            seen = query(False, link, client, work, u, h, t + 1)
            gain = client.eta * (seen - memory[h]) / client.batch
            # The step's queries are all at φᵗ: with more than one the increment has to wait for the last.
            add(work.delta if client.batch == 1 else work.change, -gain, u)
            memory[h] = seen
        if client.batch > 1:
            for j in range(len(work.delta)):
                work.delta[j] += work.change[j]
                work.change[j] = 0
    return count + client.steps * client.batch, level


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
    width = len(work.record)
    total = 0.0
    for j in range(h * client.chunk, min((h + 1) * client.chunk, len(client.labels))):
        record = work.record
        fetch(client, work, j)
        score(client, work, j, visit)
        total += loss(link, work.scores, client.labels[j])
        residual(link, work.scores, client.labels[j])
        if client.clip < np.inf:
            shorten(work.scores, record, client.clip)
        for c in range(len(work.scores)):
            factor = target.dtype.type(scale * (work.scores[c] - table[j, c]))
            table[j, c] = work.scores[c]
            x = target[c * width : (c + 1) * width]
            for i in range(width):
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
    # Three entries rather than one with a switch: each run compiles what it uses.
    @entry
    def by_values(
        host: Host,
        link: int,
        kind: int,
        k: int,
        delta: NDArray[Any],
        queries: NDArray[np.int64],
        level: NDArray[np.float64],
    ) -> None:
        if fingerprint < 0:  # never: names it, so that it is part of the cache's key
            return
        u = room(kind, host.features.shape[1], k, host.x0)
        work = desk(host, k, u.parts * u.length)
        memory = np.empty(len(work.order), np.float64)
        for i in range(len(host.x0)):
            client, mine = seat(host, work, i)
            queries[i], level[i] = walk_values(link, client, mine, u, memory)
            finish(work, delta[i])

    @entry
    def by_memory(
        host: Host,
        two_point: bool,
        link: int,
        kind: int,
        k: int,
        delta: NDArray[Any],
        queries: NDArray[np.int64],
        level: NDArray[np.float64],
    ) -> None:
        if fingerprint < 0:
            return
        p = host.features.shape[1]
        new, old = room(kind, p, k, host.x0), room(kind, p, k, host.x0)
        work = desk(host, k, new.parts * new.length)
        memory, visits = np.empty(len(work.order), np.float64), np.empty(len(work.order), np.int32)
        for i in range(len(host.x0)):
            client, mine = seat(host, work, i)
            queries[i], level[i] = walk(two_point, link, client, mine, new, old, memory, visits)
            finish(work, delta[i])

    @entry
    def by_gradients(
        host: Host,
        link: int,
        k: int,
        delta: NDArray[Any],
        queries: NDArray[np.int64],
        level: NDArray[np.float64],
    ) -> None:
        if fingerprint < 0:
            return
        work = desk(host, k, (host.features.shape[1] + 15) // 16 * 16)
        table = np.empty(work.base.shape, np.float64)
        for i in range(len(host.x0)):
            client, mine = seat(host, work, i)
            queries[i], level[i] = descend(link, client, mine, table)
            finish(work, delta[i])

    return by_values, by_memory, by_gradients


by_values, by_memory, by_gradients = _make(FINGERPRINT)
