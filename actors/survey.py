"""What a machine has that a run needs: asked here, or of every node of a cluster. Imports neither torch nor Ray."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("ray", "torch", "numpy", "scipy", "numba", "pandas", "pyarrow", "safetensors", "dp-accounting", "networkx")
_ANSWER_S = 45.0


@dataclass(frozen=True)
class Machine:
    """Bytes where not said otherwise; ``versions``: None for a package that is not installed."""

    host: str
    python: str
    versions: dict[str, str | None]
    cores: int
    memory: int
    memory_free: int
    shared_memory: int
    temporary: str
    temporary_free: int
    temporary_writable: bool
    thread_limit: str | None


def machine() -> Machine:
    """The machine of this process."""
    temporary, shared = tempfile.gettempdir(), Path("/dev/shm")
    memory = psutil.virtual_memory()
    return Machine(
        host=socket.gethostname(),
        python=platform.python_version(),
        versions={name: _version(name) for name in PACKAGES},
        cores=len(os.sched_getaffinity(0)),
        memory=memory.total,
        memory_free=memory.available,
        shared_memory=shutil.disk_usage(shared).free if shared.is_dir() else 0,
        temporary=temporary,
        temporary_free=shutil.disk_usage(temporary).free,
        temporary_writable=os.access(temporary, os.W_OK | os.X_OK),
        thread_limit=os.environ.get("OMP_NUM_THREADS"),
    )


def survey(nodes: list[Any]) -> list[Machine | str]:
    """What each node (``nodes.Node``) has; the reason, as text, for one that does not answer."""
    import ray

    from .nodes import on_node

    ask = ray.remote(num_cpus=0, max_retries=0)(machine)
    tickets = [ask.options(scheduling_strategy=on_node(node.id)).remote() for node in nodes]
    ray.wait(tickets, num_returns=len(tickets), timeout=_ANSWER_S)
    found: list[Machine | str] = []
    for ticket in tickets:
        try:
            found.append(ray.get(ticket, timeout=0.1))
        except ray.exceptions.GetTimeoutError:
            found.append(f"did not answer within {_ANSWER_S:.0f} s")
        except ray.exceptions.RayError as error:
            found.append((str(error).strip().splitlines() or [type(error).__name__])[-1])
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
