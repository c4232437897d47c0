"""What happens in a run, as lines of JSON that other processes can follow: ``events.jsonl`` in the run's folder.

One object a line, in order, each with ``seq`` (its number from 0, going on after a resume), ``wall`` (Unix time in
seconds), ``kind`` and ``round``. A line reaches the system in one write before the run goes on, so a killed process
loses none; a line without its end is not an event yet. JSON has no infinities: they are the texts ``"Infinity"`` and
``"-Infinity"``, which ``FeedReader`` turns back, and NaN is null.

After a kill the rounds since the last checkpoint are run again: an event ``resumed`` with round r says that rounds after
r that came before it do not count any more (their charges do).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FEED = "events.jsonl"
_NOT_FED = ("states", "spans", "client-times")  # large, and kept in files of their own
_PRIVATE = ("diagnosed",)
# What a client's own code said may quote its records; it is on the driver's screen and in events.parquet.
_CLIENTS_WORDS = {"failed": ("error", "trace"), "error": ("error", "trace")}
_CHUNK = 1 << 20
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


class FeedWriter:
    """Appends events to the feed of a run's folder. Opened with the first event, by the process that writes it.

    What depends on private data without being a release carries ``"private": true``; clients' states are left out.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FEED
        self._descriptor: int | None = None
        self._next = 0

    def take(self, event: dict[str, Any]) -> None:
        """Write one event. Raises OSError where the disk takes no more."""
        kind = event["kind"]
        if kind in _NOT_FED:
            return
        if self._descriptor is None:
            self._open()
        left_out = _CLIENTS_WORDS.get(kind, ())
        line = {"seq": self._next, "wall": time.time(), **{k: v for k, v in event.items() if k not in left_out}}
        if kind in _PRIVATE:
            line["private"] = True
        _write(self._descriptor, _text(line) + "\n")
        self._next += 1

    def _open(self) -> None:
        reader = FeedReader(self._path)
        for event in reader.fresh():
            self._next = event["seq"] + 1
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._descriptor).st_size > reader.offset:
            _write(self._descriptor, "\n")  # end what a full disk cut off, so that the next line is whole

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _write(descriptor: int | None, text: str) -> None:
    assert descriptor is not None
    left = text.encode()
    while left:
        left = left[os.write(descriptor, left) :]


def _text(line: dict[str, Any]) -> str:
    try:  # nearly every event is plain already, and to walk through its lists of clients costs more than to write them
        return json.dumps(line, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):
        return json.dumps(plain(line), allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """The value in JSON's own types: infinities as texts, NaN as null, anything else that is strange as its text."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


class FeedReader:
    """Follows a feed, also one that is being written or does not exist yet. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        """Bytes read so far, always up to the end of a line."""
        self._starts: list[int] = []

    def fresh(self) -> Iterator[dict[str, Any]]:
        """The events that have come since the last call."""
        yield from self._read(self.offset, follow=True)

    def catch_up(self) -> None:
        """Pass over what has come, so that ``count`` is up to date."""
        for _ in self.fresh():
            pass

    def since(self, seq: int) -> list[dict[str, Any]]:
        """All events from number ``seq`` on."""
        self.catch_up()
        if seq >= len(self._starts):
            return []
        return [event for event in self._read(self._starts[max(seq, 0)], follow=False) if event["seq"] >= seq]

    @property
    def count(self) -> int:
        """How many events were seen: the number of the next."""
        return len(self._starts)

    def _read(self, start: int, follow: bool) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        end = None if follow else self.offset
        with open(self.path, "rb") as file:
            file.seek(start)
            at, rest = start, b""
            while chunk := file.read(_CHUNK if end is None else min(_CHUNK, end - at - len(rest))):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    begun, at = at, at + len(line) + 1
                    event = _parsed(line)
                    if follow:
                        self.offset = at
                        if event is not None:
                            self._starts += [begun] * (event["seq"] + 1 - len(self._starts))
                    if event is not None:
                        yield event


def _parsed(line: bytes) -> dict[str, Any] | None:
    """An event, or None for what a kill or a full disk left of one."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("seq"), int):
        return None
    return {name: _infinite(value) for name, value in event.items()}


def _infinite(value: Any) -> Any:
    return _INFINITE.get(value, value) if isinstance(value, str) else value
