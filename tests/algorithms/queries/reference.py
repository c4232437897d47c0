"""(Z1)–(Z6) as they are written, one client, with the whole table of r_h, in plain numpy: slow and readable."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

DIRECTION, NOISE, BATCH = 0, 1 << 30, 2 << 30


def philox(counter, key):
    """Philox4x32-10 on arrays of counters ``[4, n]`` (uint64 holding 32 bits) with a key of two."""
    mask = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in counter)
    k0, k1 = (int(k) for k in key)
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (b >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            b & mask,
            (a >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            a & mask,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3])


def named(key, purpose, index, visit):
    low, high = (int(k) for k in key)
    words = philox((index, purpose | visit, high % 2**32, high >> 32), (low % 2**32, low >> 32))
    return [int(w) for w in words]


def words(key, component, visit, count):
    s = named(key, DIRECTION, component, visit)
    n = count // 4
    return philox((np.arange(n), np.zeros(n), np.full(n, s[2]), np.full(n, s[3])), s[:2]).ravel()


def normals(radius_words, angle_words):
    radius = np.sqrt(-2 * np.log((np.asarray(radius_words, dtype=float) + 0.5) / 2**32))
    angle = 2 * np.pi * np.asarray(angle_words, dtype=float) / 2**32
    return radius * np.cos(angle), radius * np.sin(angle)


def direction(kind, p, k, key, component, visit):
    """u as X ``[k, p]`` flattened."""
    if kind == "rademacher":
        parts = max(1, min(32 // k, p // 256))
        length = math.ceil(math.ceil(p / parts) / 16) * 16
        bits = words(key, component, visit, math.ceil(k * parts / 32) * length).reshape(-1, length).astype(np.int64)
        u = np.empty((k, p))
        for c in range(k):
            for j in range(p):
                row = c * parts + j // length
                u[c, j] = 1 if bits[row // 32, j % length] >> (row % 32) & 1 else -1
    else:
        half = np.split(words(key, component, visit, math.ceil(p * k / 4) * 4), 2)
        u = np.concatenate(normals(*half))[: p * k].reshape(k, p)
        if kind == "sphere":
            u *= math.sqrt(p * k) / np.linalg.norm(u)
    return u.ravel()


def batches(key, components, steps, batch):
    order, out = list(range(components)), []
    for t in range(steps):
        for place in range(batch):
            w = named(key, BATCH, place // 2, t)[2 * (place % 2) :][:2]
            other = place + (((w[0] << 32) + w[1]) * (components - place) >> 64)
            order[place], order[other] = order[other], order[place]
        out.append(order[:batch])
    return out


def losses(kind: str) -> Callable:
    """ℓ and its gradient, of X ``[k·p]``, one record ``[p]`` and its label."""

    def softmax(x, a, label):
        s = x.reshape(-1, len(a)) @ a
        top = s.max()
        probabilities = np.exp(s - top) / np.exp(s - top).sum()
        value = np.log(np.exp(s - top).sum()) + top - s[label]
        probabilities[label] -= 1
        return value, np.outer(probabilities, a).ravel()

    def logistic(x, a, label):
        y = 2 * label - 1
        return np.log1p(np.exp(-y * (a @ x))), -y / (1 + np.exp(y * (a @ x))) * a

    def squares(x, a, label):
        return 0.5 * (a @ x - label) ** 2, (a @ x - label) * a

    return {"softmax": softmax, "logistic": logistic, "least-squares": squares}[kind]


def local_stage(
    loss, features, labels, k, x0, drift, *, estimator, direction_kind, eta, mu, steps, batch, chunk, noise, key, weight
):
    """Δ_i of one client and its number of queries."""
    m, p = features.shape
    count = math.ceil(m / chunk)
    queries = 0

    def component(h, x):
        parts = [loss(x, features[j], labels[j]) for j in range(h * chunk, min(m, (h + 1) * chunk))]
        scale = weight * count / m
        return scale * sum(v for v, _ in parts), scale * sum(g for _, g in parts)

    def zeta(h, visit):
        w = named(key, NOISE, h, visit)
        return [noise * float(z) for z in normals(w[0], w[1])]

    def g(h, x, visit):  # (Z1)
        nonlocal queries
        queries += 2 if estimator == "two-point" else 1
        if estimator == "gradient":
            return mu * component(h, x)[1]
        u = direction(direction_kind, p, k, key, h, visit)
        z = zeta(h, visit)
        above = component(h, x + mu * u)[0] + z[0]
        if estimator == "two-point":
            return u * (above - component(h, x - mu * u)[0] - z[1]) / 2
        return u * above

    phi, total = x0.copy(), np.zeros_like(x0)
    drawn = batches(key, count, steps, batch)
    if estimator == "baseline":
        v = np.array([component(h, x0)[0] + zeta(h, 0)[0] for h in range(count)])
        queries += count
    else:
        r = np.array([g(h, x0, 0) for h in range(count)])  # (Z3)
    for t in range(steps):
        if estimator == "baseline":
            estimate = 0
            for h in drawn[t]:
                u = direction(direction_kind, p, k, key, h, t + 1)
                value = component(h, phi + mu * u)[0] + zeta(h, t + 1)[0]
                queries += 1
                estimate = estimate + u * (value - v[h]) / batch
                v[h] = value
        else:  # (Z4)
            fresh = np.array([g(h, phi, t + 1) for h in drawn[t]])
            estimate = (fresh - r[drawn[t]]).sum(0) / batch + r.sum(0) / count
            r[drawn[t]] = fresh
        phi = phi - eta * estimate - drift  # (Z5)
        total = total - eta * estimate  # (Z6)
    return total, queries
