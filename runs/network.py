"""A graph made ready for a run: checked, measured, and cut up for the hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import numpy as np

from ..actors.host import Neighbourhood
from ..algorithms.method import Network
from ..topology.checks import check_graph
from ..topology.graphs import build_graph
from ..topology.placement import boundary, host_rows, place
from ..topology.spectrum import laplacian, largest_eigenvalue, metropolis_weights
from ..topology.stability import check_stability, curvature_warning
from .config import RunConfig


@dataclass(frozen=True)
class Web:
    """A graph with what a method and the hosts need of it.

    Attributes:
        place: hosts → (clients of each host, each host's neighbourhood).
    """

    graph: nx.Graph
    network: Network
    place: Callable[[int], tuple[list[np.ndarray], list[Neighbourhood]]]


def build_web(config: RunConfig, clients: int, graph: nx.Graph | None) -> Web:
    """The graph that a configuration names, or the one given, ready for ``clients`` clients.

    Raises:
        InvalidValue, DisconnectedGraph: a graph on which no run is possible.
    """
    web = build_graph(config.topology if graph is None else graph, clients, config.seed)
    check_graph(web, clients)
    matrix, mixing = laplacian(web), metropolis_weights(web)
    degrees = np.array([degree for _, degree in sorted(web.degree())])
    network = Network(
        clients=clients,
        degrees=degrees,
        lambda_max=largest_eigenvalue(matrix) if clients > 1 else 0.0,
        check_stability=lambda rho, gains: check_stability(matrix, rho, gains).largest,
        curvature_warning=curvature_warning,
    )

    def placed(hosts: int) -> tuple[list[np.ndarray], list[Neighbourhood]]:
        placement = place(web, hosts)
        crossing = boundary(web, placement)
        parts = []
        for host, (rows, mixed) in enumerate(zip(host_rows(matrix, placement), host_rows(mixing, placement))):
            parts.append(
                Neighbourhood(
                    laplacian=rows.laplacian,
                    mixing=mixed.laplacian,
                    ghosts=rows.ghosts,
                    ghosts_of={
                        source: np.searchsorted(rows.ghosts, nodes)
                        for (source, target), nodes in crossing.items()
                        if target == host
                    },
                    rows_for={
                        target: np.searchsorted(rows.own, nodes)
                        for (source, target), nodes in crossing.items()
                        if source == host
                    },
                    degree=int(degrees.max(initial=0)),
                )
            )
        return placement, parts

    return Web(web, network, placed)
