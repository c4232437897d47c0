"""Random words from a counter: Philox4x32-10 (Salmon et al. 2011), the generator that numpy and CUDA ship too.

It passes TestU01's BigCrush, and any word of any stream is reached directly: so a direction is never stored but made again
from its name (key, purpose, component, visit). Its rounds are 32-bit multiplications without tables or branches, which
compilers turn into vector code: a word costs less than loading a stored float from memory.

A stream is named in two steps, since the generator takes a 64-bit key and a 128-bit counter and a client's key alone has
128 bits. One block maps (client key, purpose, component, visit) to 128 bits; these are half key, half counter of the
blocks with the stream's words. For a fixed client key the first map is one-to-one: no two streams share a name.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled import inlined, kernel

Block = tuple[Any, Any, Any, Any]

# What a draw is for, in the top two bits of the counter word that holds the visit.
DIRECTION = np.uint64(0)
NOISE = np.uint64(1 << 30)
BATCH = np.uint64(2 << 30)
VISITS = 1 << 30

_MULTIPLY_0 = np.uint64(0xD2511F53)
_MULTIPLY_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_HALF = np.uint64(32)
_WORD = np.uint64(0xFFFFFFFF)


@inlined
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Block:
    """The four words of one block, for a counter of four and a key of two; each a uint64 below 2³².

    Words stay in 64 bits throughout: there a vector unit multiplies them as they are, with nothing to pack and unpack.
    """
    for _ in range(10):
        low = c0 * _MULTIPLY_0
        high = c2 * _MULTIPLY_1
        c0 = (high >> _HALF) ^ c1 ^ k0
        c2 = (low >> _HALF) ^ c3 ^ k1
        c1 = high & _WORD
        c3 = low & _WORD
        k0 = (k0 + _WEYL_0) & _WORD
        k1 = (k1 + _WEYL_1) & _WORD
    return c0, c1, c2, c3


@kernel
def named(key: NDArray[np.uint64], purpose: Any, index: int, visit: int) -> Block:
    """Four words for a client key ``[2]`` (low half first), a purpose, an index and a visit below 2³⁰."""
    low, high = key[0], key[1]
    # Plain integers are signed to numba, and signed with unsigned makes a float.
    about = purpose | np.uint64(visit)
    return philox(np.uint64(index), about, high & _WORD, high >> _HALF, low & _WORD, low >> _HALF)


@kernel
def fill_words(words: NDArray[np.uint32], seed: Block) -> None:
    """The first words of a stream; ``len(words)`` is a multiple of 4.

    The four words of a block lie a quarter of the array apart, so that neighbouring blocks fill neighbouring places.
    """
    quarter = len(words) // 4
    for i in range(quarter):
        w0, w1, w2, w3 = philox(np.uint64(i), np.uint64(0), seed[2], seed[3], seed[0], seed[1])
        words[i] = np.uint32(w0)
        words[quarter + i] = np.uint32(w1)
        words[2 * quarter + i] = np.uint32(w2)
        words[3 * quarter + i] = np.uint32(w3)


@kernel
def normal_pair(key: NDArray[np.uint64], component: int, visit: int) -> tuple[float, float]:
    """Two independent standard normal numbers for the noise ζ of one query (Box and Muller)."""
    w0, w1, _, _ = named(key, NOISE, component, visit)
    radius = math.sqrt(-2.0 * math.log((np.float64(w0) + 0.5) * 2.0**-32))
    angle = 2.0 * math.pi * np.float64(w1) * 2.0**-32
    return radius * math.cos(angle), radius * math.sin(angle)


@kernel
def below(high: Any, low: Any, n: int) -> int:
    """A number uniform on 0..n−1, up to n/2⁶⁴, from two words: the top 32 bits of n times the 64-bit fraction."""
    wide = np.uint64(n)
    return int((np.uint64(high) * wide + ((np.uint64(low) * wide) >> _HALF)) >> _HALF)


@kernel
def draw_component(key: NDArray[np.uint64], order: NDArray[np.int32], place: int, step: int) -> int:
    """Component number ``place`` of the batch of local step ``step``, distinct from those at earlier places (Z4).

    ``order`` ``[H]`` is a permutation of the components, shuffled on from step to step (Fisher and Yates): places
    0..b−1 taken in turn are a uniform draw without replacement whatever permutation it starts from.
    """
    w0, w1, w2, w3 = named(key, BATCH, place >> 1, step)
    if place & 1:
        w0, w1 = w2, w3
    other = place + below(w0, w1, len(order) - place)
    chosen = order[other]
    order[other] = order[place]
    order[place] = chosen
    return int(chosen)
