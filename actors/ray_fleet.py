"""Hosts as Ray actors."""

from __future__ import annotations

import contextlib
import ctypes
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayError, RayTaskError

from .fleet import Fleet
from .messages import Answer, Failed, HostShard, Lost, Missing, Outcome, Parcel, Sent
from .mirror import Mirrored
from .nodes import Spread

if TYPE_CHECKING:
    from .host import HostSpec


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT_BYTES = 1 << 28


class _HostActor:
    """Wraps a host; torch is imported where the clients live, and only there.

    Parcels are put into the object store by the host that made them and fetched by the host that opens them.
    """

    def __init__(self, spec: HostSpec, shard: HostShard, test: HostShard, home: str, mirror: Any) -> None:
        from .hosts import make_host

        _keep_freed_memory()
        path = spec.state_path
        if mirror is None or path is None or ray.get_runtime_context().get_node_id() == home:
            self._call = _plainly(make_host(spec, shard, test))
        else:
            self._call = Mirrored(make_host(replace(spec, state_path=None), shard, test), path, mirror).call

    def call(self, name: str, *arguments: Any) -> Any:
        opened = []
        for argument in arguments:
            if isinstance(argument, Mapping):
                contents, missing = _fetch(argument)
                if missing:
                    return Missing(missing)
                argument = contents
            opened.append(argument)
        answer = self._call(name, *opened)
        if isinstance(answer, Sent):
            return Sent(
                answer.value, {host: Parcel(ray.put(parcel.content)) for host, parcel in answer.parcels.items()}
            )
        return answer


def _plainly(host: Any) -> Callable[..., Any]:
    return lambda name, *arguments: getattr(host, name)(*arguments)


def _keep_freed_memory() -> None:
    """Let glibc reuse the megabytes that a round's tensors free instead of returning them to the system each time.

    A host's rounds all need the same memory again; without this a large part of a round is page faults.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        mallopt(option, _KEPT_BYTES)


def _fetch(parcels: Mapping[int, Parcel]) -> tuple[dict[int, Parcel], list[int]]:
    """Parcels with their contents, and the hosts whose contents are lost with their process."""
    try:
        contents = ray.get([parcel.content for parcel in parcels.values()])
        return {host: Parcel(content) for host, content in zip(parcels, contents)}, []
    except ObjectLostError:
        missing = []
        for host, parcel in parcels.items():
            try:
                ray.get(parcel.content)
            except ObjectLostError:
                missing.append(host)
        return {}, missing


class RayFleet(Fleet):
    """One actor a host, spread over the cluster's nodes.

    Args:
        specs: references to what each host is (``HostSpec``), never opened here: the coordinator needs no torch.
        shards, test: references to their records in the object store, one copy a node.
        home: the node with the run's folder; mirror: keeps the states of hosts on other nodes. Without one all hosts are
            on the home node.
    """

    def __init__(
        self,
        specs: Sequence[Any],
        shards: Sequence[Any],
        test: Any,
        home: str,
        gpus_per_host: float = 0.0,
        mirror: Any = None,
    ) -> None:
        self.hosts = len(specs)
        self._specs, self._shards, self._test = specs, shards, test
        self._home, self._mirror = home, mirror
        self._spread = Spread(gpus_per_host, home if mirror is None else None)
        # num_cpus=0: clients share the machine's cores; a reservation of cores would limit how many fit.
        self._options = {"num_cpus": 0, "num_gpus": gpus_per_host, "max_restarts": 0}
        self._members = [self._start(host) for host in range(self.hosts)]

    def _start(self, host: int) -> Any:
        placed = ray.remote(_HostActor).options(**self._options, scheduling_strategy=self._spread.place(host))
        return placed.remote(self._specs[host], self._shards[host], self._test, self._home, self._mirror)

    def call(self, host: int, name: str, *arguments: Any) -> Any:
        return self._members[host].call.remote(name, *arguments)

    def gather(self, tickets: Mapping[int, Any]) -> dict[int, Outcome]:
        try:
            return {host: Answer(host, value) for host, value in zip(tickets, ray.get(list(tickets.values())))}
        except (RayActorError, RayTaskError, ObjectLostError):
            return {host: self._outcome(host, ticket) for host, ticket in tickets.items()}

    @staticmethod
    def _outcome(host: int, ticket: Any) -> Outcome:
        try:
            return Answer(host, ray.get(ticket))
        except (RayActorError, ObjectLostError) as error:  # the process, or its node with the answer
            return Lost(host, str(error).strip().splitlines()[0])
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            return Failed(
                host, cause, error.traceback_str if hasattr(error, "traceback_str") else traceback.format_exc()
            )

    def rebuild(self, host: int) -> None:
        with contextlib.suppress(RayError):
            ray.kill(self._members[host])  # it may only have been out of reach
        self._members[host] = self._start(host)

    def processes(self) -> list[int]:
        pings = {host: self.call(host, "ping") for host in range(self.hosts)}
        outcomes = self.gather(pings).values()
        return [int(outcome.value) if isinstance(outcome, Answer) else 0 for outcome in outcomes]

    def close(self) -> None:
        for member in self._members:
            ray.kill(member)
        self._members = []
