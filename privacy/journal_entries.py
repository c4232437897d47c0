"""What a journal holds: its entries, the chain of their digests, and what can be wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import DualfedError

Kind = Literal["reserve", "void", "note"]
Rows = NDArray[np.int64]


class JournalDamaged(DualfedError):
    """The file is not what was written. ``seq`` is the first transaction that is wrong, if it is known."""

    def __init__(self, path: Path | str, reason: str, seq: int | None = None) -> None:
        self.path, self.reason, self.seq = Path(path), reason, seq
        where = "" if seq is None else f" at transaction {seq}"
        super().__init__(f"the journal {path} is damaged{where}: {reason}; go on from a copy, or start a new run")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.reason, self.seq)


class JournalUnwritable(DualfedError):
    """The journal cannot be written, so nothing may be released."""

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path, self.reason = Path(path), reason
        super().__init__(f"the journal {path} cannot be written ({reason}): free the disk or choose another folder")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.reason)


@dataclass(frozen=True)
class Transaction:
    """One entry of the journal. ``rows``, shape [n, 3], has (client, grant number, event id) per charge or void."""

    seq: int
    kind: Kind
    round: int
    wall: float
    text: str
    rows: Rows


Replay = Callable[[Transaction], None]


def chain(previous: bytes, seq: int, kind: str, round: int, wall: float, text: str, rows: Rows) -> bytes:
    """An entry's digest: of the one before it and of all its own."""
    head = json.dumps([seq, kind, round, wall, text], separators=(",", ":"), default=repr).encode()
    digest = hashlib.blake2b(previous + len(head).to_bytes(8, "little") + head, digest_size=16)
    digest.update(np.ascontiguousarray(rows, dtype="<i8").tobytes())
    return digest.digest()


def genesis(meta: Mapping[str, str]) -> bytes:
    """The digest before the first entry: of the journal's facts."""
    return hashlib.blake2b(json.dumps(sorted(meta.items())).encode(), digest_size=16).digest()
