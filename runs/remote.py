"""Runs on a cluster that others keep: started, watched, stopped and fetched from wherever the user is."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue
from .folder import held_by, new_folder

if TYPE_CHECKING:
    from .results import RunResult
    from .simulate import Listener


@dataclass(frozen=True)
class Request:
    """What a cluster is asked to do.

    Attributes:
        config: the tables of a new run; None to go on with an earlier one.
        folder: the folder to make, or that of the earlier run; relative to where the run is held.
        engine: for going on, where it is not that of the run's start.
    """

    config: dict[str, Any] | None
    folder: str | None
    engine: str | None = None


@dataclass(frozen=True)
class Remote:
    """A run that was started on a cluster. ``shared``: its folder is seen from here under the same path."""

    holder: Any
    shared: bool
    request: Request


def carry_out(request: Request, listen: Listener) -> str:
    """Do what is asked, on the cluster's head node; the run's folder there."""
    from ..actors.held_run import cluster_facts
    from .config import parse
    from .simulate import resume, simulate
    from .twin import run_twin, wants_twin

    held_by(cluster_facts())
    if request.config is None:
        assert request.folder is not None
        result = resume(Path(request.folder).expanduser(), engine=request.engine, listen=listen)
        config = parse(result.config)
    else:
        config = parse(fitted(request.config))
        out = None if request.folder is None else Path(request.folder).expanduser()
        result = simulate(config, out=out, listen=listen)
    if wants_twin(config, result):
        run_twin(config, result, _ignore)
    assert result.folder is not None
    return str(result.folder.resolve())


def fitted(tables: dict[str, Any]) -> dict[str, Any]:
    """A configuration for the cluster that this process is connected to: as many CPUs as it has, where none are asked for.

    Raises InvalidValue if more are asked for than there are.
    """
    from ..actors.nodes import nodes

    found = nodes()
    there = int(sum(node.cpus for node in found)) or 1
    actors = dict(tables.get("actors", {}))
    wanted = actors.get("cpus")
    if isinstance(wanted, int) and wanted > there:
        where = f"{len(found)} node{'s' if len(found) > 1 else ''}"
        raise InvalidValue("actors.cpus", wanted, f"the cluster has {there} CPUs on {where}; give at most {there}")
    return {**tables, "actors": {**actors, "cpus": there if wanted is None else wanted}}


@contextlib.contextmanager
def started(address: str, request: Request) -> Iterator[Remote]:
    """Connect to a cluster and start a run there. Left by an error of its start, nothing is left of it."""
    from ..actors.cluster import connected
    from ..actors.held_run import begin, start_holder

    with connected(address):
        holder = start_holder(secrets.token_hex(6))
        shared = begin(holder, carry_out, request)
        yield Remote(holder, shared, request)


def watched(remote: Remote, listen: Listener, name: str) -> RunResult:
    """Tell ``listen`` what happens until the run is over; its result. Ctrl-C asks it to stop with a checkpoint.

    Where the run's folder is on another machine, its results are copied here: into the folder of the request, or the next
    ``dualfed-out/NAME-k``.
    """
    from ..actors.folder_reader import copy_folder
    from ..actors.held_run import let_go, watch_holder
    from ..actors.job import on_interrupt
    from .results import load_result

    def stop() -> None:
        with contextlib.suppress(Exception):  # one that has ended meanwhile needs no stop
            remote.holder.request_stop.remote()

    with on_interrupt(stop):
        folder = watch_holder(remote.holder, listen)
    let_go(remote.holder)
    if remote.shared:
        return load_result(Path(folder))
    here = new_folder(name, None)
    copy_folder(folder, here)
    return load_result(here)


def _ignore(_event: dict[str, Any]) -> None:
    pass
