"""Keyed randomness: every draw is a function of what it is for, never of when it happens.

A draw is named by (key, purpose, client, round, grant). The name is hashed to the 128-bit key of a Philox counter-based
generator (Salmon et al. 2011), so the same name gives the same numbers in any process, order and layout, and two
different names give independent streams.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_NAME = struct.Struct("<qqq")
_LOW = (1 << 64) - 1


def noise_key(seed: int | None) -> bytes:
    """The 32-byte key of a run's noise and record draws.

    ``seed`` is an integer for a repeatable simulation; ``None`` draws a fresh secret from the operating system, which the
    caller must keep in memory only.
    """
    if seed is None:
        return secrets.token_bytes(32)
    return hashlib.blake2b(struct.pack("<q", seed), digest_size=32, person=b"dualfed-noise").digest()


def public_key(seed: int) -> bytes:
    """The 32-byte key of draws that anyone may know: partitions, participants, start points, graphs, directions."""
    return hashlib.blake2b(struct.pack("<q", seed), digest_size=32, person=b"dualfed-public").digest()


def stream_key(key: bytes, purpose: str, client: int = 0, round: int = 0, grant: int = 0) -> int:
    """The 128-bit key of the stream with this name."""
    digest = hashlib.blake2b(_NAME.pack(client, round, grant) + purpose.encode(), digest_size=16, key=key).digest()
    return int.from_bytes(digest, "little")


def generator(key: bytes, purpose: str, client: int = 0, round: int = 0, grant: int = 0) -> np.random.Generator:
    """A numpy generator for the stream with this name. Asking twice gives the same numbers twice."""
    return np.random.Generator(np.random.Philox(key=stream_key(key, purpose, client, round, grant)))


def words(streams: Sequence[int], count: int) -> np.ndarray:
    """The first ``count`` 64-bit words of each stream, uint64 ``[len(streams), count]``; a stream is its 128-bit key.

    One generator is set to each key in turn, which costs a sixth of making a generator for each.
    """
    found = np.empty((len(streams), count), dtype=np.uint64)
    philox = np.random.Philox(key=0)
    state: Any = philox.state
    for row, stream in enumerate(streams):
        state["state"]["key"] = np.array([stream & _LOW, stream >> 64], dtype=np.uint64)
        philox.state = state
        found[row] = philox.random_raw(count)
    return found
