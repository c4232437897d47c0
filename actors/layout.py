"""How many hosts, who lives where, and whether it fits this machine."""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np
import psutil

from ..errors import InvalidValue

# Measured: an actor that imports torch holds about this much of its own.
ACTOR_MEMORY = 180 * 2**20
_CLIENTS_PER_CPU = 4


def host_count(clients: int, clients_per_actor: int | Literal["auto"], cpus: int) -> int:
    """How many hosts: ``auto`` gives every client its own up to four a CPU, and beyond that one host a CPU."""
    if clients_per_actor == "auto":
        return clients if clients <= _CLIENTS_PER_CPU * cpus else min(cpus, clients)
    return -(-clients // clients_per_actor)


def place_clients(clients: int, hosts: int) -> list[np.ndarray]:
    """The clients of each host, contiguous and balanced."""
    return [np.asarray(block) for block in np.array_split(np.arange(clients), hosts)]


def check_memory(hosts: int, data_bytes: int, state_bytes: int) -> None:
    """Refuse a layout of actors that cannot fit into the machine's available memory.

    Raises InvalidValue naming actors.clients_per_actor and a layout that fits.
    """
    needed = hosts * ACTOR_MEMORY + 2 * data_bytes + state_bytes
    available = psutil.virtual_memory().available
    if needed > 0.9 * available:
        fitting = int(max(0, 0.9 * available - 2 * data_bytes - state_bytes) // ACTOR_MEMORY)
        cure = (
            f"{hosts} actors and the data need about {needed / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are free: "
            + (f'take at most {fitting} actors, or "auto"' if fitting else "take fewer records or a larger machine")
        )
        raise InvalidValue("actors.clients_per_actor", f"{hosts} actors", cure)


def check_room(hosts: int, gpus_per_host: float, data_bytes: int, state_bytes: int) -> None:
    """Refuse a layout of actors that the cluster of this process, or this machine, has no room for.

    Raises InvalidValue naming the field and what would fit.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        if gpus_per_host:
            import torch

            _check_gpus(hosts, gpus_per_host, [float(torch.cuda.device_count())])
        check_memory(hosts, data_bytes, state_bytes)
        return
    from .nodes import free_memory, nodes

    found = nodes()
    if gpus_per_host:
        _check_gpus(hosts, gpus_per_host, [node.gpus for node in found])
    if len(found) == 1:
        check_memory(hosts, data_bytes, state_bytes)
        return
    free = free_memory(found)
    share = (2 * data_bytes + state_bytes) / len(free)
    fitting = [int(max(0.0, 0.9 * bytes - share) // ACTOR_MEMORY) for bytes in free]
    if hosts > sum(fitting):
        cure = (
            f"{hosts} actors and the data do not fit into the memory that is free on {len(free)} nodes "
            f"({', '.join(f'{bytes / 2**30:.1f} GiB' for bytes in free)}): "
            + (
                f'take at most {sum(fitting)} actors, or "auto"'
                if sum(fitting)
                else "take fewer records or larger nodes"
            )
        )
        raise InvalidValue("actors.clients_per_actor", f"{hosts} actors", cure)


def _check_gpus(hosts: int, gpus_per_host: float, gpus: list[float]) -> None:
    """GPUs of each node; a host's are all on one node."""
    there = sum(gpus)
    fitting = sum(int(each // gpus_per_host) for each in gpus)
    if hosts > fitting:
        cure = (
            f"the cluster's nodes have {', '.join(f'{each:g}' for each in gpus)} GPUs, room for {fitting} of {hosts} actors; "
            f"give at most {there / hosts:.3g}, or more clients to an actor"
            if there
            else "no node has a GPU; leave it out"
        )
        raise InvalidValue("actors.gpus_per_actor", gpus_per_host, cure)
