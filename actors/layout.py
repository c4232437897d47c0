"""How many hosts, who lives where, and whether it fits this machine."""

from __future__ import annotations

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
