"""Directions u of (Z1) with E u = 0 and E[uuᵀ] = I, made from their names and added without being stored.

Parameters are X ``[k, p]``, one row an output: loops run along p. A Rademacher direction is kept as bits:
the signs of 32 rows share one array of words, one bit a row, so a loop over p tests the same bit of successive words.
Rows much longer than 512 are cut into parts, each a row of its own, so that few bits are left unused. Gaussian and sphere
directions fill one vector of d numbers, used again by the next query.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compiled import FINGERPRINT, entry, kernel
from .words import DIRECTION, fill_words, named

KINDS = {"rademacher": 0, "gaussian": 1, "sphere": 2}
_RADEMACHER, _SPHERE = 0, 2

_MANTISSA = (1 << 52) - 1
_ONE = 1023 << 52
_LN2 = math.log(2.0)
_ROOT2 = math.sqrt(2.0)
_TURN = 2.0 * math.pi * 2.0**-32
_EIGHTH, _QUARTER_SHIFT, _QUARTERS = np.uint32(1 << 29), np.uint32(30), np.uint32(3)


class Direction(NamedTuple):
    """Room for one direction of X ``[k, p]``.

    Attributes:
        kind: one of ``KINDS``.
        words: ``[W]`` uint32, sign bits (or what the normals are made of).
        values: ``[≥ d]`` the numbers themselves; empty for Rademacher.
        parts: pieces that a row of p is cut into.
        length: words a row of bits takes; a piece is that long, the last one shorter.
    """

    kind: int
    words: NDArray[np.uint32]
    values: NDArray[Any]
    parts: int
    length: int


@kernel
def room(kind: int, p: int, k: int, like: NDArray[Any]) -> Direction:
    """Room for a direction of X ``[k, p]``; numbers have the type of ``like``."""
    if kind == _RADEMACHER:
        parts = max(1, min(32 // k, p // 512))
        length = ((p + parts - 1) // parts + 15) // 16 * 16
        groups = (k * parts + 31) // 32
        return Direction(kind, np.empty(groups * length, np.uint32), np.empty(0, like.dtype), parts, length)
    padded = (p * k + 3) // 4 * 4
    return Direction(kind, np.empty(padded, np.uint32), np.empty(padded, like.dtype), 1, p)


@kernel
def draw_direction(u: Direction, p: int, k: int, key: NDArray[np.uint64], component: int, visit: int) -> None:
    """Makes the direction with this name, the same one every time."""
    fill_words(u.words, named(key, DIRECTION, component, visit))
    if u.kind != _RADEMACHER:
        _normals(u.words, u.values)
    if u.kind == _SPHERE:
        total = 0.0
        for j in range(p * k):
            total += np.float64(u.values[j]) * np.float64(u.values[j])
        scale = u.values.dtype.type(math.sqrt(p * k / total))
        for j in range(p * k):
            u.values[j] *= scale


@kernel
def _normals(words: NDArray[np.uint32], out: NDArray[Any]) -> None:
    """Box and Muller: ``√(−2 ln v)·(cos θ, sin θ)``, v and θ with 32 bits each, so |z| ≤ 6.8.

    Logarithm, sine and cosine are series good to a few 1e−16, since calls of the mathematics library would keep the
    loops from being vectorised.
    """
    half = len(words) // 2
    number = np.empty(half, np.float64)
    bits = number.view(np.int64)
    exponent = np.empty(half, np.float64)
    for i in range(half):
        number[i] = 2.0 * np.float64(words[i]) + 1.0  # v·2³³: odd, so v is never 0 nor 1
    for i in range(half):
        exponent[i] = np.float64((bits[i] >> 52) - (1023 + 33))
        bits[i] = (bits[i] & _MANTISSA) | _ONE
    for i in range(half):
        m, e = number[i], exponent[i]
        large = m > _ROOT2
        m = 0.5 * m if large else m
        e = e + 1.0 if large else e
        s = (m - 1.0) / (m + 1.0)  # ln m = 2 artanh s, |s| < 0.172
        q = s * s
        tail = 1 / 11 + q * (1 / 13 + q * (1 / 15 + q * (1 / 17 + q * (1 / 19 + q * (1 / 21)))))
        series = 1.0 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * tail))))
        radius = math.sqrt(-2.0 * (2.0 * s * series + e * _LN2))
        word = words[half + i]
        quarter = np.uint32((word + _EIGHTH) >> _QUARTER_SHIFT) & _QUARTERS
        angle = np.float64(np.int32(np.uint32(word - np.uint32(quarter << _QUARTER_SHIFT)))) * _TURN  # |·| ≤ π/4
        q = angle * angle
        tail = -1 / 39916800 + q * (1 / 6227020800 + q * (-1 / 1307674368000))
        sine = angle * (1.0 + q * (-1 / 6 + q * (1 / 120 + q * (-1 / 5040 + q * (1 / 362880 + q * tail)))))
        tail = 1 / 479001600 + q * (-1 / 87178291200 + q * (1 / 20922789888000))
        cosine = 1.0 + q * (-1 / 2 + q * (1 / 24 + q * (-1 / 720 + q * (1 / 40320 + q * (-1 / 3628800 + q * tail)))))
        odd = (quarter & np.uint32(1)) != 0
        x = sine if odd else cosine
        y = cosine if odd else sine
        x = -x if (quarter == np.uint32(1)) | (quarter == np.uint32(2)) else x
        y = -y if quarter >= np.uint32(2) else y
        out[i] = radius * x
        out[half + i] = radius * y


@kernel
def project(u: Direction, record: NDArray[Any], scores: NDArray[np.float64]) -> None:
    """``scores[c] = ⟨u_c, a⟩``, ``[k]``, for a record a ``[p]``."""
    p, k = len(record), len(scores)
    zero = record.dtype.type(0)
    for c in range(k):
        total = zero
        if u.kind == _RADEMACHER:
            for part in range(u.parts):
                row = c * u.parts + part
                first = part * u.length
                n = min(u.length, p - first)
                bit = np.uint32(1) << np.uint32(row & 31)
                words = u.words[(row >> 5) * u.length : (row >> 5) * u.length + n]
                a = record[first : first + n]
                for j in range(n):
                    total += a[j] if words[j] & bit else -a[j]
        else:
            values = u.values[c * p : (c + 1) * p]
            for j in range(p):
                total += values[j] * record[j]
        scores[c] = total


@kernel
def add(target: NDArray[Any], scale: float, u: Direction, p: int, k: int) -> None:
    """``target += scale·u``, ``[k·p]``."""
    plus = target.dtype.type(scale)
    if u.kind != _RADEMACHER:
        for j in range(p * k):
            target[j] += plus * u.values[j]
        return
    for row in range(k * u.parts):
        first = row % u.parts * u.length
        n = min(u.length, p - first)
        bit = np.uint32(1) << np.uint32(row & 31)
        words = u.words[(row >> 5) * u.length : (row >> 5) * u.length + n]
        start = row // u.parts * p + first
        x = target[start : start + n]
        for j in range(n):
            x[j] += plus if words[j] & bit else -plus


def _make(fingerprint: int) -> Any:
    @entry
    def fill(
        out: NDArray[Any],
        kind: int,
        p: int,
        k: int,
        keys: NDArray[np.uint64],
        components: NDArray[np.int64],
        visits: NDArray[np.int64],
    ) -> None:
        if fingerprint < 0:  # never: names it, so that it is part of the cache's key
            return
        u = room(kind, p, k, out)
        for i in range(len(out)):
            draw_direction(u, p, k, keys[i], components[i], visits[i])
            row = out[i]
            row[:] = 0
            add(row, 1.0, u, p, k)

    return fill


_fill = _make(FINGERPRINT)


def draw_directions(
    kind: str,
    p: int,
    k: int,
    keys: NDArray[np.uint64],
    components: NDArray[np.int64],
    visits: NDArray[np.int64],
    dtype: Any = np.float64,
) -> NDArray[Any]:
    """The directions that queries use, as numbers, X ``[k, p]`` row by row.

    Args:
        kind: ``"rademacher"``, ``"gaussian"`` or ``"sphere"`` (radius √d).
        p: features of a record; d for a model that is not linear.
        k: outputs; 1 for a model that is not linear.
        keys: uint64 ``[q, 2]``, low half first, the key of the client and round of each.
        components: ``[q]`` h.
        visits: ``[q]`` 0 for (Z3), t + 1 for the local step t of (Z4).
        dtype: float32 or float64.

    Returns:
        ``[q, k·p]``.
    """
    out = np.empty((len(keys), p * k), dtype)
    _fill(out, KINDS[kind], p, k, np.ascontiguousarray(keys), components.astype(np.int64), visits.astype(np.int64))
    return out
