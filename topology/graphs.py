"""One way to every graph: a family by name, a file, or a graph of the caller's own."""

from __future__ import annotations

import math
import re
from typing import Any

import networkx as nx

from ..errors import InvalidValue
from ..keys import public_key, stream_key
from .checks import DisconnectedGraph, check_connected, check_graph, undirected
from .config import TopologyConfig, parse_topology
from .families import FIXED, RANDOM
from .files import read_edge_list, read_graphml

__all__ = ["ATTEMPTS", "DisconnectedGraph", "build_graph", "check_graph"]

ATTEMPTS = 50
"""How many draws of a random family may turn out disconnected before the run is refused."""


def build_graph(source: TopologyConfig | str | nx.Graph, n: int | None, seed: int = 0, **params: Any) -> nx.Graph:
    """A connected, undirected, simple graph on the nodes 0..N−1.

    Args:
        source: the ``[topology]`` table, the name of a kind (its fields then follow as ``params``, such as ``p=0.2``),
            or any networkx graph. Edge weights are not used: every edge counts alike, as in (Z2).
        n: the number of clients N; ``None`` takes as many as a file or a given graph has.
        seed: the run's seed. A random family draws from the public stream ``"graph"`` of it, attempt by attempt until
            a draw is connected, at most ``ATTEMPTS`` times; no global generator is touched.

    Returns:
        A new graph. The node attribute ``name`` keeps the original name: text from a file, anything from a given graph.
        Where all names of a given graph or file are whole numbers, nodes are numbered in their order, else in the order
        in which the graph lists them. ``graph["kind"]`` is the kind, ``"given"`` for a given graph.

    Raises:
        InvalidValue: an impossible size or a wrong field (``topology.…``), a directed graph that is not symmetric, a
            self-loop, parallel edges, a number of nodes other than N.
        DisconnectedGraph: naming the parts and the isolated nodes.
    """
    if n is not None and n < 1:
        raise InvalidValue("partition.clients", n, "give at least one client")
    if isinstance(source, nx.Graph):
        if params:
            raise InvalidValue("topology.graph", ", ".join(sorted(params)), "a given graph takes no further fields")
        return _numbered(source, n, "given")
    config = parse_topology({"kind": source, **params}) if isinstance(source, str) else source
    if config.kind in ("edge-list", "graphml"):
        assert config.path is not None
        read = read_edge_list if config.kind == "edge-list" else read_graphml
        return _numbered(read(config.path.expanduser()), n, config.kind)
    if n is None:
        raise InvalidValue("partition.clients", None, f"topology.kind = {config.kind!r} needs the number of clients")
    g = FIXED[config.kind](n, config, 0) if config.kind in FIXED else _drawn(config, n, seed)
    g.graph["kind"] = config.kind
    nx.set_node_attributes(g, {node: node for node in g}, "name")
    check_graph(g, n)
    return g


def _drawn(config: TopologyConfig, n: int, seed: int) -> nx.Graph:
    """The first connected draw of a random family."""
    key = public_key(seed)
    for attempt in range(ATTEMPTS):
        g = RANDOM[config.kind](n, config, stream_key(key, "graph", round=attempt))
        if nx.is_connected(g):
            return g
    cure = f"that was the last of {ATTEMPTS} draws of topology.kind = {config.kind!r}: {_denser(config, n)}"
    check_connected(g, cure)
    return g


def _denser(config: TopologyConfig, n: int) -> str:
    if config.kind == "erdos-renyi":
        return f"raise topology.p, {config.p} (connected from about ln N / N = {math.log(n) / n:.2g} up)"
    if config.kind == "random-geometric":
        threshold = math.sqrt(math.log(n) / (math.pi * n))
        return f"raise topology.radius, {config.radius} (connected from about √(ln N / (πN)) = {threshold:.2g} up)"
    return "raise topology.degree"


def _numbered(given: nx.Graph, n: int | None, kind: str) -> nx.Graph:
    """The given graph on 0..N−1, checked."""
    if len(given) == 0:
        raise InvalidValue("topology.graph", "0 nodes", "give a graph with one node for each client")
    if n is not None and len(given) != n:
        raise InvalidValue("topology.graph", f"{len(given)} nodes", f"there are {n} clients: give one node for each")
    simple = undirected(given)
    names = list(simple.nodes())
    numbers = [_whole(name) for name in names]
    if None not in numbers and len(set(numbers)) == len(numbers):
        names = [name for _, name in sorted(zip(numbers, names), key=lambda pair: pair[0] or 0)]
    index = {name: i for i, name in enumerate(names)}
    g = nx.Graph(kind=kind)
    for i, name in enumerate(names):
        g.add_node(i, name=name)
        if "pos" in simple.nodes[name]:
            g.nodes[i]["pos"] = simple.nodes[name]["pos"]
    g.add_edges_from((index[u], index[v]) for u, v in simple.edges())
    check_graph(g, len(names))
    return g


def _whole(name: Any) -> int | None:
    if isinstance(name, int):
        return name
    if isinstance(name, str) and re.fullmatch(r"-?[0-9]{1,18}", name):
        return int(name)
    return None
