"""Where the clients of a run are drawn, worked out once."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DualfedError

_EDGES_SENT = 20_000
_SPRINGS = 1500
"""Above this many nodes the placement by springs takes too long."""

Drawing = dict[str, Any]


def drawing(folder: Path, clients: int, graph: bool) -> Drawing:
    """``kind``, ``server``, ``note``, ``positions`` and ``edges`` of the run in ``folder``.

    The graph is built anew from the run's own configuration, which names its seed; one that was given in Python is not
    there, and its clients are then drawn on a circle without edges.
    """
    if not graph:
        return _drawn("star", True, "", _rings(clients), [])
    try:
        web = _graph(folder, clients)
    except (DualfedError, OSError, KeyError, ValueError) as error:
        note = f"the graph cannot be drawn: {' '.join(str(error).split())}"
        return _drawn("graph", False, note, _rings(clients), [])
    if web is None:
        return _drawn(
            "graph", False, "the graph was given in Python, and only its clients are drawn", _rings(clients), []
        )
    from ...topology.draw import positions

    kind, edges = str(web.graph.get("kind", "graph")), [(int(u), int(v)) for u, v in web.edges()]
    springs = kind in ("erdos-renyi", "barabasi-albert", "random-regular", "edge-list", "graphml", "hypercube")
    where = _rings(clients) if springs and clients > _SPRINGS else positions(web) * [1, -1] + [0, 1]
    note = f"{len(edges)} edges, of which {_EDGES_SENT} are drawn" if len(edges) > _EDGES_SENT else ""
    return _drawn(kind, False, note, where, edges[:_EDGES_SENT])


def _graph(folder: Path, clients: int) -> Any:
    """The run's graph; None where it was given as an object."""
    import json

    from ...topology.config import parse_topology
    from ...topology.graphs import build_graph

    facts = json.loads((folder / "environment.json").read_text())
    if "graph" in facts.get("own", ()):
        return None
    tables = tomllib.loads((folder / "config.toml").read_text())
    return build_graph(parse_topology(tables.get("topology", {})), clients, int(tables.get("seed", 0)))


def _drawn(kind: str, server: bool, note: str, where: np.ndarray, edges: list[tuple[int, int]]) -> Drawing:
    points = [(round(float(x), 4), round(float(y), 4)) for x, y in where]
    return {"kind": kind, "server": server, "note": note, "positions": points, "edges": edges}


def _rings(n: int) -> np.ndarray:
    """Clients on rings around a free middle, in order, evenly apart; ``[N, 2]`` within the unit square."""
    if n <= 60:
        counts = [n]
    else:
        counts, inner = [], max(2, round(math.sqrt(n / (3 * math.pi))))
        outer = inner
        while math.pi * (outer + inner) * (outer - inner + 1) < n:
            outer += 1
        weights = np.arange(inner, outer + 1, dtype=float)
        counts = np.floor(n * weights / weights.sum()).astype(int).tolist()
        counts[-1] += n - sum(counts)
    rings = len(counts)
    radii = [0.5] if rings == 1 else np.linspace(0.5 * inner / outer, 0.5, rings).tolist()
    points = []
    for count, radius in zip(counts, radii):
        angle = 2 * np.pi * np.arange(count) / max(count, 1) - np.pi / 2
        points.append(np.stack([0.5 + radius * np.cos(angle), 0.5 + radius * np.sin(angle)], axis=1))
    return np.concatenate(points) if points else np.zeros((0, 2))
