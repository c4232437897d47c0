"""Families of graphs on the nodes 0..N−1. Each takes N, the [topology] table and an integer seed."""

from __future__ import annotations

import math
from collections.abc import Callable

import networkx as nx

from ..errors import InvalidValue
from .config import TopologyConfig

Family = Callable[[int, TopologyConfig, int], nx.Graph]


def _line(n: int, closed: bool) -> nx.Graph:
    g = nx.path_graph(n)
    if closed and n > 2:
        g.add_edge(0, n - 1)
    return g


def ring(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """A cycle; N = 2 is one edge."""
    return _line(n, closed=True)


def path(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """A line."""
    return _line(n, closed=False)


def star(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """Node 0 linked to every other."""
    return nx.star_graph(n - 1)


def complete(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """Every pair linked."""
    return nx.complete_graph(n)


def _shape(n: int, config: TopologyConfig) -> tuple[int, int]:
    rows, cols = config.rows, config.cols
    if rows is None and cols is None:
        rows = _rows(n)
        if rows == 1 and n > 3:
            cure = f"{n} nodes fit in one row only: take {n - 1} or {n + 1} clients, or say topology.rows = 1"
            raise InvalidValue("topology.kind", config.kind, cure)
        return rows, n // rows
    field, given = ("rows", rows) if rows is not None else ("cols", cols)
    assert given is not None
    if rows is None or cols is None:
        if n % given:
            below = n // given * given
            sizes = f"{below} or {below + given}" if below else f"{given}"
            cure = f"{n} clients do not fill the last one: take {sizes} clients, or leave topology.{field} out"
            raise InvalidValue(f"topology.{field}", given, cure)
        return (given, n // given) if field == "rows" else (n // given, given)
    if rows * cols != n:
        cure = f"{rows} × {cols} is {rows * cols} nodes, but there are {n} clients: leave rows or cols out"
        raise InvalidValue("topology.rows", rows, cure)
    return rows, cols


def _rows(n: int) -> int:
    return next(rows for rows in range(math.isqrt(n), 0, -1) if n % rows == 0)


def _product(n: int, config: TopologyConfig, closed: bool) -> nx.Graph:
    rows, cols = _shape(n, config)
    down, across = _line(rows, closed), _line(cols, closed)
    g = nx.Graph(rows=rows, cols=cols)
    g.add_nodes_from(range(n))
    g.add_edges_from((r * cols + u, r * cols + v) for r in range(rows) for u, v in across.edges())
    g.add_edges_from((u * cols + c, v * cols + c) for c in range(cols) for u, v in down.edges())
    return g


def grid(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """A rectangle, row by row; each node linked to those above, below, left and right."""
    return _product(n, config, closed=False)


def torus(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """A grid whose rows and columns are closed."""
    return _product(n, config, closed=True)


def hypercube(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """N = 2^k nodes; those linked differ in one bit of their number."""
    bits = n.bit_length() - 1
    if n != 1 << bits:
        cure = f"a hypercube has a power of two of nodes: take {1 << bits} or {2 << bits} clients, not {n}"
        raise InvalidValue("topology.kind", config.kind, cure)
    g = nx.empty_graph(n)
    g.add_edges_from((i, i ^ (1 << k)) for i in range(n) for k in range(bits))
    return g


def exponential(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """Node i linked to i ± 2^k mod N for every 2^k < N."""
    g = nx.empty_graph(n)
    g.add_edges_from((i, (i + (1 << k)) % n) for i in range(n) for k in range((n - 1).bit_length()))
    return g


def erdos_renyi(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """Every pair linked with probability p, independently."""
    p = min(1.0, 2 * math.log(n) / n) if config.p is None else config.p
    return nx.fast_gnp_random_graph(n, p, seed=seed)


def random_geometric(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """Uniform points of the unit square (kept as the node attribute ``pos``), linked when nearer than the radius."""
    radius = config.radius
    if radius is None:
        radius = min(math.sqrt(2.0), math.sqrt(2 * math.log(n) / (math.pi * n)))
    return nx.random_geometric_graph(n, radius, seed=seed)


def watts_strogatz(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """A ring of ``degree`` nearest neighbours, each edge moved with probability ``rewire``."""
    degree = config.degree
    if degree is None:
        degree = min(4, (n - 1) // 2 * 2)
        if degree == 0:
            return _line(n, closed=False)
    if degree % 2 or degree >= n:
        cure = f"give an even number below the {n} clients (degree/2 neighbours on either side)"
        raise InvalidValue("topology.degree", degree, cure)
    return nx.watts_strogatz_graph(n, degree, 0.1 if config.rewire is None else config.rewire, seed=seed)


def barabasi_albert(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """Nodes join one by one and link to ``attach`` others, the well-linked ones more often."""
    if config.attach is None and n == 1:
        return nx.empty_graph(1)
    attach = min(2, n - 1) if config.attach is None else config.attach
    if attach >= n:
        raise InvalidValue("topology.attach", attach, f"give a number from 1 to {max(1, n - 1)}: there are {n} clients")
    return nx.barabasi_albert_graph(n, attach, seed=seed)


def random_regular(n: int, config: TopologyConfig, seed: int) -> nx.Graph:
    """Uniform among the graphs in which every node has ``degree`` neighbours."""
    degree = min(4, n - 1) if config.degree is None else config.degree
    if degree >= n:
        raise InvalidValue("topology.degree", degree, f"a node has at most {n - 1} neighbours among {n} clients")
    if n * degree % 2:
        cure = f"{n} clients × {degree} neighbours is odd: take degree {degree - 1} or {degree + 1}, or {n + 1} clients"
        raise InvalidValue("topology.degree", degree, cure)
    if degree == 1 and n > 2:
        raise InvalidValue("topology.degree", degree, f"pairs of {n} clients are never connected: give 2 or more")
    return nx.random_regular_graph(degree, n, seed=seed)


FIXED: dict[str, Family] = {
    "ring": ring,
    "path": path,
    "star": star,
    "complete": complete,
    "grid": grid,
    "torus": torus,
    "hypercube": hypercube,
    "exponential": exponential,
}

RANDOM: dict[str, Family] = {
    "erdos-renyi": erdos_renyi,
    "random-geometric": random_geometric,
    "watts-strogatz": watts_strogatz,
    "barabasi-albert": barabasi_albert,
    "random-regular": random_regular,
}
