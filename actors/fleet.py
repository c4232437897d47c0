"""The boundary between a coordinator and its hosts: calls go out, an outcome a host comes back."""

from __future__ import annotations

import asyncio
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .messages import Answer, Failed, HostShard, Outcome

if TYPE_CHECKING:
    from .host import HostSpec


class Fleet(ABC):
    """The hosts of a run, by number. Calls to one host run in the order in which they were made."""

    hosts: int

    @abstractmethod
    def call(self, host: int, name: str, *arguments: Any) -> Any:
        """Start a call of a host's method; a ticket for ``gather``."""

    @abstractmethod
    def gather(self, tickets: Mapping[int, Any]) -> dict[int, Outcome]:
        """Wait for one call a host; its outcome, by host, in the order of the tickets."""

    @abstractmethod
    def rebuild(self, host: int) -> None:
        """Start a lost host anew, from its records and the states that it last wrote."""

    @abstractmethod
    def close(self) -> None:
        """End all hosts."""

    def linger(self, due: Mapping[int, np.ndarray]) -> None:
        """Wait, on every host for all its clients at the same time, until the given times (of ``time.time``) have passed."""
        self.gather({host: self.call(host, "linger", times) for host, times in due.items()})

    def processes(self) -> list[int]:
        """The process id of every host that has a process of its own, by host; 0 for one that does not answer."""
        return []

    def everyone(self, name: str, *arguments: Any) -> dict[int, Outcome]:
        """Call all hosts and wait."""
        return self.gather({host: self.call(host, name, *arguments) for host in range(self.hosts)})


class InlineFleet(Fleet):
    """Hosts in this process, without Ray. A call runs when it is made."""

    def __init__(self, specs: Sequence[HostSpec], shards: Sequence[HostShard], test: HostShard) -> None:
        from .hosts import make_host

        self.hosts = len(specs)
        self._make: Callable[[int], Any] = lambda host: make_host(specs[host], shards[host], test)
        self._members = [self._make(host) for host in range(self.hosts)]

    def call(self, host: int, name: str, *arguments: Any) -> Outcome:
        try:
            return Answer(host, getattr(self._members[host], name)(*arguments))
        except Exception as error:
            return Failed(host, error, traceback.format_exc())

    def gather(self, tickets: Mapping[int, Outcome]) -> dict[int, Outcome]:
        return dict(tickets)

    def linger(self, due: Mapping[int, np.ndarray]) -> None:
        if due:
            asyncio.run(sleep_until(np.concatenate(list(due.values()))))

    def rebuild(self, host: int) -> None:
        self._members[host] = self._make(host)

    def close(self) -> None:
        self._members.clear()


async def sleep_until(due: np.ndarray) -> None:
    """One sleeper a client, all at the same time, each until its own time (of ``time.time``) has passed."""
    now = time.time()
    await asyncio.gather(*(asyncio.sleep(max(0.0, at - now)) for at in due.tolist()))
