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
    keys = np.frombuffer(b"".join(stream.to_bytes(16, "little") for stream in streams), dtype="<u8").reshape(-1, 2)
    for row, key in enumerate(keys):
        state["state"]["key"] = key
        philox.state = state
        found[row] = philox.random_raw(count)
    return found


_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_WORD = 0xFFFFFFFF


def philox_words(
    counter: Sequence[np.ndarray | int], key: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Philox4x32-10 (Salmon et al. 2011) on arrays: the block's four 32-bit words (as uint64), one an entry of the counter.

    Args:
        counter: four words below 2³², arrays ``[k]`` or single numbers.
        key: two words below 2³².
    """
    half, word = np.uint64(32), np.uint64(_WORD)
    c0, c1, c2, c3 = (np.asarray(part, dtype=np.uint64) for part in counter)
    k0, k1 = key
    for _ in range(10):
        low, high = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (high >> half) ^ c1 ^ np.uint64(k0),
            high & word,
            (low >> half) ^ c3 ^ np.uint64(k1),
            low & word,
        )
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def uniforms(key: bytes, purpose: str, clients: np.ndarray, rounds: np.ndarray | int) -> np.ndarray:
    """One number in (0, 1), float64 ``[k]``, for each client ``[k]`` and its round; a block of all of them in one go.

    The same (key, purpose, client, round) gives the same number in any company.
    """
    return _in_unit(*_block(key, purpose, clients, rounds)[:2])


def uniform_pairs(
    key: bytes, purpose: str, clients: np.ndarray, rounds: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Two independent numbers a client at the price of one; the first is what ``uniforms`` gives."""
    first, second, third, fourth = _block(key, purpose, clients, rounds)
    return _in_unit(first, second), _in_unit(third, fourth)


def _block(key: bytes, purpose: str, clients: np.ndarray, rounds: np.ndarray | int) -> tuple[np.ndarray, ...]:
    stream = stream_key(key, purpose)
    parts = [stream >> shift & _WORD for shift in (0, 32, 64, 96)]
    where = np.broadcast_to(np.asarray(rounds, dtype=np.int64), np.shape(clients)).astype(np.uint64)
    counter = (np.asarray(clients).astype(np.uint64), where & np.uint64(_WORD), parts[2], parts[3])
    return philox_words(counter, (parts[0], parts[1]))


def _in_unit(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return np.asarray(((high << np.uint64(21)) + (low >> np.uint64(11)) + 0.5) * 2.0**-53)
