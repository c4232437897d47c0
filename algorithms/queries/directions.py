"""Directions u of (Z1) with E u = 0 and E[uuᵀ] = I, made from their names and added without being stored.

Parameters are X ``[k, p]``, one row an output, and loops run along p. A Rademacher direction is kept as bits: the signs of 32
rows share one array of words, one bit a row, so a loop over p tests the same bit of successive words. Long rows are cut
into parts, each a row of its own, so that few bits are left unused. Gaussian and sphere directions fill one vector of
numbers, used again by the next query.

Inside, rows are padded to ``width``, a whole number of vector registers, and begin on cache lines; what stands in the
padding never meets anything but the zeros that pad a record.
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
# The shortest piece of a row: shorter ones save random words and cost loop starts.
PIECE = 256

_MANTISSA = (1 << 52) - 1
_ONE = 1023 << 52
_LN2 = math.log(2.0)
_ROOT2 = math.sqrt(2.0)
_TURN = 2.0 * math.pi * 2.0**-32
_EIGHTH = 1 << 29


class Direction(NamedTuple):
    """Room for one direction of X ``[k, p]``.

    Attributes:
        kind: one of ``KINDS``.
        p: features of a record.
        k: outputs.
        parts: pieces that a row is cut into.
        length: numbers of a piece and words of its bits, a multiple of 16; ``width = parts·length ≥ p``.
        words: uint32, sign bits, or what the normals are made of.
        values: ``[k·width]`` the numbers themselves; empty for Rademacher.
        normals: ``[≥ k·p]`` the same before they are padded.
    """

    kind: int
    p: int
    k: int
    parts: int
    length: int
    words: NDArray[np.uint32]
    values: NDArray[Any]
    normals: NDArray[Any]


@kernel
def zeros(n: int, like: NDArray[Any]) -> NDArray[Any]:
    """``[n]`` zeros of the type of ``like``, beginning on a cache line: loads that straddle two lines cost double."""
    block = np.zeros(n + 64 // like.itemsize, like.dtype)
    start = (-block.ctypes.data % 64) // like.itemsize
    return block[start : start + n]


@kernel
def room(kind: int, p: int, k: int, like: NDArray[Any]) -> Direction:
    """Room for a direction of X ``[k, p]``; numbers have the type of ``like``."""
    bits = kind == _RADEMACHER
    parts = max(1, min(32 // k, p // PIECE)) if bits else 1
    length = ((p + parts - 1) // parts + 15) // 16 * 16
    padded = (p * k + 3) // 4 * 4
    words = (k * parts + 31) // 32 * length if bits else padded
    values = zeros(0 if bits else k * length, like)
    return Direction(
        kind, p, k, parts, length, zeros(words, np.empty(0, np.uint32)), values, np.empty(padded, like.dtype)
    )


@kernel
def draw_direction(u: Direction, key: NDArray[np.uint64], component: int, visit: int) -> None:
    """Makes the direction with this name, the same one every time."""
    fill_words(u.words, named(key, DIRECTION, component, visit))
    if u.kind == _RADEMACHER:
        return
    _normals(u.words, u.normals)
    scale = 1.0
    if u.kind == _SPHERE:
        total = 0.0
        for j in range(u.p * u.k):
            total += np.float64(u.normals[j]) * np.float64(u.normals[j])
        scale = math.sqrt(u.p * u.k / total)
    factor = u.values.dtype.type(scale)
    for c in range(u.k):
        row, numbers = u.values[c * u.length : c * u.length + u.p], u.normals[c * u.p : (c + 1) * u.p]
        for j in range(u.p):
            row[j] = factor * numbers[j]


@kernel
def _normals(words: NDArray[np.uint32], out: NDArray[Any]) -> None:
    """Box and Muller: ``√(−2 ln v)·(cos θ, sin θ)``, v and θ with 32 bits each, so |z| ≤ 6.8.

    Logarithm, sine and cosine are series good to a few 1e−16, and choices are made by arithmetic: calls and branches would
    keep the loops from being vectorised.
    """
    half = len(words) // 2
    radius = _radii(words[:half])
    first, second, angles = out[:half], out[half:], words[half:]
    for i in range(half):
        word = np.int64(angles[i])
        quarter = (word + _EIGHTH) >> 30
        angle = np.float64(word - (quarter << 30)) * _TURN  # from the nearest quarter turn, |·| ≤ π/4
        q = angle * angle
        tail = -1 / 39916800 + q * (1 / 6227020800 + q * (-1 / 1307674368000))
        sine = angle * (1.0 + q * (-1 / 6 + q * (1 / 120 + q * (-1 / 5040 + q * (1 / 362880 + q * tail)))))
        tail = 1 / 479001600 + q * (-1 / 87178291200 + q * (1 / 20922789888000))
        cosine = 1.0 + q * (-1 / 2 + q * (1 / 24 + q * (-1 / 720 + q * (1 / 40320 + q * (-1 / 3628800 + q * tail)))))
        odd = np.float64(quarter & 1)
        x, y = cosine + odd * (sine - cosine), sine + odd * (cosine - sine)
        first[i] = radius[i] * np.float64(1 - ((quarter + 1) & 2)) * x
        second[i] = radius[i] * np.float64(1 - (quarter & 2)) * y


@kernel
def _radii(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """``√(−2 ln v)`` of v = (word + ½)/2³²."""
    number = np.empty(len(words), np.float64)
    bits = number.view(np.int64)
    exponent = np.empty(len(words), np.float64)
    for i in range(len(words)):
        number[i] = 2.0 * np.float64(words[i]) + 1.0  # v·2³³
    for i in range(len(words)):
        exponent[i] = np.float64((bits[i] >> 52) - (1023 + 33))
        bits[i] = (bits[i] & _MANTISSA) | _ONE
    for i in range(len(words)):
        large = 1.0 if number[i] > _ROOT2 else 0.0
        m = number[i] - 0.5 * number[i] * large
        s = (m - 1.0) / (m + 1.0)  # ln m = 2 artanh s, |s| < 0.172
        q = s * s
        tail = 1 / 11 + q * (1 / 13 + q * (1 / 15 + q * (1 / 17 + q * (1 / 19 + q * (1 / 21)))))
        series = 1.0 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * tail))))
        number[i] = math.sqrt(-2.0 * (2.0 * s * series + (exponent[i] + large) * _LN2))
    return number


@kernel
def row_bit(row: int) -> Any:
    """The bit of a row. Numba widens 32-bit operands to 64; the casts here and in the loops let the compiler undo that."""
    return np.uint32(np.uint32(1) << np.uint32(row & 31))


@kernel
def project(u: Direction, record: NDArray[Any], scores: NDArray[np.float64]) -> None:
    """``scores[c] = ⟨u_c, a⟩``, ``[k]``, for a record a ``[width]`` padded with zeros."""
    n = u.length
    for c in range(u.k):
        total = record.dtype.type(0)
        if u.kind == _RADEMACHER:
            for part in range(u.parts):
                row = c * u.parts + part
                bit = row_bit(row)
                words, a = u.words[(row >> 5) * n : (row >> 5) * n + n], record[part * n : part * n + n]
                for j in range(n):
                    total += a[j] if np.uint32(words[j] & bit) else -a[j]
        else:
            values = u.values[c * n : (c + 1) * n]
            for j in range(n):
                total += values[j] * record[j]
        scores[c] = total


@kernel
def project_both(
    u: Direction,
    x: NDArray[Any],
    record: NDArray[Any],
    scores: NDArray[np.float64],
    slopes: NDArray[np.float64],
) -> None:
    """``scores = Xa`` for X ``[k·width]`` beside ``slopes[c] = ⟨u_c, a⟩``, with the record loaded once for both."""
    n = u.length
    for c in range(u.k):
        total = record.dtype.type(0)
        slope = total
        for part in range(u.parts):
            row = c * u.parts + part
            a, y = record[part * n : part * n + n], x[row * n : row * n + n]
            if u.kind == _RADEMACHER:
                bit, words = row_bit(row), u.words[(row >> 5) * n : (row >> 5) * n + n]
                for j in range(n):
                    total += y[j] * a[j]
                    slope += a[j] if np.uint32(words[j] & bit) else -a[j]
            else:
                values = u.values[row * n : row * n + n]
                for j in range(n):
                    total += y[j] * a[j]
                    slope += values[j] * a[j]
        scores[c] = total
        slopes[c] = slope


@kernel
def add(target: NDArray[Any], scale: float, u: Direction) -> None:
    """``target += scale·u``, ``[k·width]``."""
    plus, n = target.dtype.type(scale), u.length
    if u.kind != _RADEMACHER:
        for j in range(len(target)):
            target[j] += plus * u.values[j]
        return
    for row in range(u.k * u.parts):
        bit = row_bit(row)
        words, x = u.words[(row >> 5) * n : (row >> 5) * n + n], target[row * n : row * n + n]
        for j in range(n):
            x[j] += plus if np.uint32(words[j] & bit) else -plus


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
        width = u.parts * u.length
        padded = zeros(k * width, out)
        for i in range(len(out)):
            draw_direction(u, keys[i], components[i], visits[i])
            padded[:] = 0
            add(padded, 1.0, u)
            for c in range(k):
                out[i, c * p : (c + 1) * p] = padded[c * width : c * width + p]

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
