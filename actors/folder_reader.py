"""Reads a run's folder on the cluster's head node for someone who is elsewhere."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import ray

from ..errors import InvalidValue
from .ledger_actor import result
from .nodes import head_node, on_node

_CHUNK = 8 << 20
# Private states and the states of a run in progress stay where they are.
_LEFT = ("private", "state", ".lock")


class FolderReader:
    """Lists a run's folder and reads its files, piece by piece."""

    def __init__(self, folder: str) -> None:
        self._given, self._folder = folder, Path(folder).expanduser()

    def listing(self) -> list[tuple[str, int]]:
        """(path below the folder, bytes) of every file that may be copied."""
        if not (self._folder / "config.toml").is_file():
            cure = "holds no run on the cluster's head node; give the path that it printed"
            raise InvalidValue("RUN", self._given, cure)
        if _in_use(self._folder / ".lock"):
            raise InvalidValue("RUN", self._given, "still goes on; wait for its end, or end it with `dualfed stop`")
        found = []
        for path in sorted(self._folder.rglob("*")):
            below = path.relative_to(self._folder)
            if path.is_file() and not path.is_symlink() and not any(part in _LEFT for part in below.parts):
                found.append((str(below), path.stat().st_size))
        return found

    def piece(self, name: str, start: int) -> bytes:
        """Up to 8 MiB of one file of the listing."""
        with open(self._folder / name, "rb") as file:
            file.seek(start)
            return file.read(_CHUNK)


def copy_folder(folder: str, to: Path) -> int:
    """Copy a run's folder on the head node into ``to``, which is made; bytes copied.

    Raises InvalidValue: there is no run, it still goes on, or ``to`` holds files.
    """
    if to.exists() and any(to.iterdir()):
        raise InvalidValue("--to", str(to), "holds files already; give a new folder")
    reader: Any = (
        ray.remote(FolderReader).options(num_cpus=0, scheduling_strategy=on_node(head_node().id)).remote(folder)
    )
    try:
        listing = result(reader.listing.remote())
        to.mkdir(parents=True, exist_ok=True)
        for name, size in listing:
            path = to / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                for start in range(0, size, _CHUNK):
                    file.write(result(reader.piece.remote(name, start)))
        return sum(size for _, size in listing)
    finally:
        ray.kill(reader)


def _in_use(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
