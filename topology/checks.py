"""What a graph must be before a method may run on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx

from ..errors import DualfedError, InvalidValue

_SHOWN = 6


class DisconnectedGraph(DualfedError):
    """The graph falls into parts that never hear of each other, so no consensus is possible.

    Args:
        components: the nodes of each part, largest part first.
        cure: what to do about it, as the end of a sentence.
    """

    def __init__(self, components: Sequence[Sequence[Any]], cure: str = "join its parts or leave some out") -> None:
        self.components = tuple(tuple(part) for part in components)
        self.cure = cure
        super().__init__(self._sentence())

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes each part has."""
        return tuple(len(part) for part in self.components)

    @property
    def isolated(self) -> tuple[Any, ...]:
        """The nodes without a neighbour."""
        return tuple(part[0] for part in self.components if len(part) == 1)

    def _sentence(self) -> str:
        larger = [part for part in self.components if len(part) > 1]
        parts = [f"{len(part)} nodes ({_some(part)})" for part in larger[:_SHOWN]]
        if len(larger) > _SHOWN:
            parts.append(f"{len(larger) - _SHOWN} smaller ones")
        if self.isolated:
            plural = "s" if len(self.isolated) > 1 else ""
            parts.append(f"{len(self.isolated)} isolated node{plural} ({_some(self.isolated)})")
        return f"the graph is not connected: it has {len(self.components)} parts: {', '.join(parts)}: {self.cure}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.components, self.cure)


def _some(nodes: Sequence[Any]) -> str:
    shown = ", ".join(str(node) for node in nodes[:_SHOWN])
    return f"{shown}, …" if len(nodes) > _SHOWN else shown


def undirected(g: nx.Graph) -> nx.Graph:
    """The simple undirected graph that ``g`` stands for, nodes in the same order, without edge attributes.

    A directed graph is accepted where every link has its return. Raises InvalidValue (``topology.graph``) for a link
    without its return, a self-loop, or two edges between the same nodes.
    """
    if g.is_multigraph():
        for u, v, key in g.edges(keys=True):
            if g.number_of_edges(u, v) > 1:
                raise InvalidValue("topology.graph", f"{u}–{v} ({key})", "give each pair of nodes one edge at most")
    if g.is_directed():
        for u, v in g.edges():
            if not g.has_edge(v, u):
                raise InvalidValue(
                    "topology.graph", f"{u}→{v}", f"links go both ways: add {v}→{u}, or give an undirected graph"
                )
    for u, v in g.edges():
        if u == v:
            raise InvalidValue("topology.graph", f"{u}–{v}", "a node is no neighbour of its own: remove the self-loop")
    simple = nx.Graph()
    simple.add_nodes_from(g.nodes(data=True))
    simple.add_edges_from(g.edges())
    return simple


def check_connected(g: nx.Graph, cure: str = "join its parts or leave some out") -> None:
    """Raises DisconnectedGraph, with the nodes' original names, unless every node can reach every other."""
    if len(g) == 0 or nx.is_connected(g):
        return
    names = dict(g.nodes(data="name"))
    parts = [sorted(part, key=str) if not _integers(part) else sorted(part) for part in nx.connected_components(g)]
    parts.sort(key=lambda part: (-len(part), str(part[0])))
    raise DisconnectedGraph([[node if names[node] is None else names[node] for node in part] for part in parts], cure)


def _integers(nodes: Any) -> bool:
    return all(isinstance(node, int) for node in nodes)


def check_graph(g: nx.Graph, n_clients: int) -> None:
    """Refuse a graph on which the clients 0..N−1 cannot reach consensus.

    Args:
        g: undirected, nodes 0..N−1.
        n_clients: N.

    Raises:
        InvalidValue: wrong number or names of nodes, a directed graph that is not symmetric, a self-loop.
        DisconnectedGraph: more than one component. N = 1 without edges is connected.
    """
    if len(g) != n_clients:
        cure = f"there are {n_clients} clients: give one node for each"
        raise InvalidValue("topology.graph", f"{len(g)} nodes", cure)
    if set(g.nodes()) != set(range(n_clients)):
        raise InvalidValue("topology.graph", _some(list(g.nodes())), "number the nodes 0 to N−1 (build_graph does)")
    check_connected(undirected(g))
