"""Records and noise from keyed words, for all clients of a host together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..keys import words

_BLOCK = 1 << 15  # pairs of normals at a time: the temporaries then stay in the cache, which halves the time


def as_uniform(drawn: np.ndarray) -> np.ndarray:
    """Words uint64 as float64 in [0, 1), from their upper 53 bits."""
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53)


def distinct_records(streams: Sequence[int], sizes: np.ndarray, count: int) -> np.ndarray:
    """``count`` distinct records of each client in uniformly random order, int64 ``[C, count]``.

    The first ``count`` different values of a stream of uniform draws: by symmetry every ordered sample is as likely as
    every other. A client whose stretch of the stream has too few different values, as with ``count`` near its size, gets
    Floyd's sampling (Bentley & Floyd 1987) from the words behind it instead.

    ``sizes``: ``[C]``, each ≥ ``count``.
    """
    stretch = count + count // 4 + 8
    values = (as_uniform(words(streams, stretch)) * sizes[:, None]).astype(np.int64)
    # One sort of (value, position) pairs finds what was drawn before; positions then keep the order of the draws.
    bits = stretch.bit_length()
    ranked = (values << bits) + np.arange(stretch)
    ranked.sort(axis=1)
    sorted_values = ranked >> bits
    rows, places = np.nonzero(sorted_values[:, 1:] == sorted_values[:, :-1])
    first = np.ones(values.shape, dtype=bool)
    first[rows, ranked[rows, places + 1] & ((1 << bits) - 1)] = False
    seen = first.cumsum(axis=1)
    first &= seen <= count
    enough = seen[:, -1] >= count
    if enough.all():
        return np.asarray(values[first].reshape(len(streams), count))
    chosen = np.empty((len(streams), count), dtype=np.int64)
    chosen[enough] = values[enough][first[enough]].reshape(-1, count)
    few = np.flatnonzero(~enough)
    behind = words([streams[row] for row in few.tolist()], stretch + 2 * count)[:, stretch:]
    chosen[few] = _floyd(behind, sizes[few], count)
    return chosen


def _floyd(drawn: np.ndarray, sizes: np.ndarray, count: int) -> np.ndarray:
    """The same from ``2·count`` words a client, in ``count`` steps whatever the sizes; sorting by fresh words orders it."""
    uniform, order = as_uniform(drawn[:, :count]), drawn[:, count:].argsort(axis=1)
    chosen = np.full((len(drawn), count), -1, dtype=np.int64)
    for step in range(count):
        newest = sizes - count + step
        candidate = (uniform[:, step] * (newest + 1)).astype(np.int64)
        taken = (chosen[:, :step] == candidate[:, None]).any(axis=1)
        chosen[:, step] = np.where(taken, newest, candidate)
    return np.asarray(np.take_along_axis(chosen, order, axis=1))


def normal_single(streams: Sequence[int], d: int) -> Tensor:
    """Standard normal float32 ``[C, d]`` by Box & Muller (1958) from one word a pair: half of it the radius, half the angle.

    The radius has 31 bits before the logarithm, so that tails reach 6.7 standard deviations; the vectorised
    logarithm and cosine make this twice as fast as numpy's ziggurat.
    """
    half = -(-d // 2)
    noise = torch.empty(len(streams), 2 * half)
    rows = max(1, _BLOCK // half)
    for first in range(0, len(streams), rows):
        block = noise[first : first + rows]
        bits = torch.from_numpy(words(streams[first : first + rows], half).view(np.int32).reshape(len(block), half, 2))
        radius = bits[..., 0].bitwise_and(0x7FFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-31).log_().mul_(-2).sqrt_()
        angle = bits[..., 1].to(torch.float32).mul_(math.pi * 2.0**-31)
        torch.mul(radius, angle.cos(), out=block[:, :half])
        torch.mul(radius, angle.sin_(), out=block[:, half:])
    return noise[:, :d]
