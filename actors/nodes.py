"""The nodes of a Ray cluster: which there are, where a run's own actors belong, and how hosts are spread."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_HEAD = "node:__internal_head__"
_ANSWER_S = 30.0


@dataclass(frozen=True)
class Node:
    """A node that is alive. ``cpus``, ``gpus``: what Ray may give out there; ``memory``: bytes, as Ray counts them."""

    id: str
    address: str
    name: str
    head: bool
    cpus: float
    gpus: float
    memory: float


def nodes() -> list[Node]:
    """The cluster's nodes that are alive, the head first."""
    found = [
        Node(
            id=each["NodeID"],
            address=each["NodeManagerAddress"],
            name=each["NodeManagerHostname"],
            head=_HEAD in each["Resources"],
            cpus=each["Resources"].get("CPU", 0.0),
            gpus=each["Resources"].get("GPU", 0.0),
            memory=each["Resources"].get("memory", 0.0),
        )
        for each in _listed()
        if each["Alive"]
    ]
    return sorted(found, key=lambda node: (not node.head, node.address, node.id))


def _listed() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def nodes_lost() -> list[str]:
    """Names of nodes that the cluster had and has no more."""
    return [f"{each['NodeManagerHostname']} ({each['NodeID'][:8]})" for each in _listed() if not each["Alive"]]


def head_node() -> Node:
    """The node on which the cluster's head runs."""
    return nodes()[0]


def on_node(node: str, soft: bool = False) -> Any:
    """The strategy that puts an actor on a node; ``soft`` lets it go elsewhere if the node is gone."""
    return NodeAffinitySchedulingStrategy(node_id=node, soft=soft)


class Spread:
    """Deals hosts out over nodes in proportion to their CPUs, or their GPUs where hosts ask for some.

    Ray's own SPREAD strategy picks nodes at random for actors that reserve no CPUs, which hosts do not.

    Args:
        only: a node that all hosts must be on; None spreads them over all nodes.
    """

    def __init__(self, gpus_per_host: float, only: str | None) -> None:
        self._gpus, self._only = gpus_per_host, only
        self._node_of: dict[int, str] = {}

    def place(self, host: int) -> Any:
        """The strategy for one host, now; nodes that are gone are not considered."""
        if self._only is not None:
            return on_node(self._only)
        alive = {node.id: self._capacity(node) for node in nodes()}
        open_to = {node: size for node, size in alive.items() if size > 0} or dict.fromkeys(alive, 1.0)
        self._node_of.pop(host, None)
        held = list(self._node_of.values())
        chosen = min(open_to, key=lambda node: (held.count(node) + 1) / open_to[node])
        self._node_of[host] = chosen
        return on_node(chosen, soft=True)

    def _capacity(self, node: Node) -> float:
        return node.gpus if self._gpus else node.cpus


def free_memory(found: list[Node]) -> list[float]:
    """Bytes of main memory that are free now on each node; where a node does not answer, what Ray may give out there."""
    asked = [_available.options(scheduling_strategy=on_node(node.id)).remote() for node in found]
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S)
    known = {}
    for ticket in answered:
        with contextlib.suppress(ray.exceptions.RayError):
            known[ticket] = float(ray.get(ticket))
    return [known.get(ticket, node.memory) for ticket, node in zip(asked, found)]


@ray.remote(num_cpus=0, max_retries=0)
def _available() -> int:
    import psutil

    return int(psutil.virtual_memory().available)
