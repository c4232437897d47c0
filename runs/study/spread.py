"""Carries the runs of a study out as trials of Ray Tune, on a cluster of this machine or of many."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import InvalidValue
from .work import Reply, execute
from .workers import Task


def by_tune(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[int, Reply]]:
    """Carry tasks out as trials of Ray Tune. Raises InvalidValue where it cannot be imported."""
    from ...actors.trials import missing, trials

    if lacks := missing():
        cure = f"Ray Tune needs {', '.join(lacks)}: pip install 'dualfed[tune]', or take --engine inline"
        raise InvalidValue("--engine", "ray", cure)
    plain = [(dict(task.tables), str(task.folder.absolute())) for task in tasks]
    if plain:
        yield from trials(functools.partial(_trial, plain), len(plain), jobs)


@contextmanager
def place(engine: str, address: str | None, jobs: int | None) -> Iterator[tuple[str, int]]:
    """(engine, runs at a time) of a study that may go to the cluster at ``address``, connected to it meanwhile.

    Without an address the trials of ``ray`` start a cluster of their own. The study's folder must be seen from all nodes.
    Raises InvalidValue where the cluster cannot be joined.
    """
    if engine not in ("inline", "ray"):
        raise InvalidValue("--engine", engine, "take inline or ray")
    if address is None:
        yield engine, jobs or os.cpu_count() or 1
        return
    from ...actors.cluster import connected, cpus

    with connected(address):
        yield "ray", jobs or cpus()


def _trial(plain: Sequence[tuple[dict[str, Any], str]], index: int) -> Reply:
    tables, folder = plain[index]
    return execute(tables, Path(folder))
