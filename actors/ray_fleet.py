"""Hosts as Ray actors."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from .fleet import Fleet
from .messages import Answer, Failed, HostShard, Lost, Outcome

if TYPE_CHECKING:
    from .host import HostSpec


class _HostActor:
    """Wraps ``ClientHost``; torch is imported where the clients live, and only there."""

    def __init__(self, spec: HostSpec, shard: HostShard, test: HostShard) -> None:
        from .client_host import ClientHost

        self._host = ClientHost(spec, shard, test)

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._host, name)(*arguments)


class RayFleet(Fleet):
    """One actor a host, spread over the cluster's nodes.

    Args:
        specs: references to what each host is (``HostSpec``), never opened here: the coordinator needs no torch.
        shards, test: references to their records in the object store, one copy a node.
    """

    def __init__(self, specs: Sequence[Any], shards: Sequence[Any], test: Any) -> None:
        self.hosts = len(specs)
        self._specs, self._shards, self._test = specs, shards, test
        actor = ray.remote(_HostActor)
        # num_cpus=0: clients share the machine's cores; a reservation of cores would limit how many fit.
        self._actor = actor.options(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")
        self._members = [self._start(host) for host in range(self.hosts)]

    def _start(self, host: int) -> Any:
        return self._actor.remote(self._specs[host], self._shards[host], self._test)

    def call(self, host: int, name: str, *arguments: Any) -> Any:
        return self._members[host].call.remote(name, *arguments)

    def gather(self, tickets: Mapping[int, Any]) -> dict[int, Outcome]:
        try:
            return {host: Answer(host, value) for host, value in zip(tickets, ray.get(list(tickets.values())))}
        except (RayActorError, RayTaskError):
            return {host: self._outcome(host, ticket) for host, ticket in tickets.items()}

    @staticmethod
    def _outcome(host: int, ticket: Any) -> Outcome:
        try:
            return Answer(host, ray.get(ticket))
        except RayActorError as error:
            return Lost(host, str(error).strip().splitlines()[0])
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            return Failed(
                host, cause, error.traceback_str if hasattr(error, "traceback_str") else traceback.format_exc()
            )

    def rebuild(self, host: int) -> None:
        self._members[host] = self._start(host)

    def close(self) -> None:
        for member in self._members:
            ray.kill(member)
        self._members = []
