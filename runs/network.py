"""A graph made ready for a run: checked, measured, and cut up for the hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse

from ..actors.host import Neighbourhood
from ..algorithms.method import Network
from ..errors import InvalidValue
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
        place: (hosts, the matrix of an exchange) → (clients of each host, each host's neighbourhood).
    """

    graph: nx.Graph
    network: Network
    place: Callable[[int, Any], tuple[list[np.ndarray], list[Neighbourhood]]]


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
        laplacian=matrix,
        metropolis=mixing,
    )

    def placed(hosts: int, wanted: Any) -> tuple[list[np.ndarray], list[Neighbourhood]]:
        placement, exchange = place(web, hosts), matrix if wanted is matrix else _on_edges(wanted, mixing)
        crossing = boundary(web, placement)
        parts = []
        for host, (rows, mixed) in enumerate(zip(host_rows(exchange, placement), host_rows(mixing, placement))):
            parts.append(
                Neighbourhood(
                    exchange=rows.laplacian,
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


def _on_edges(wanted: Any, mixing: sparse.csr_array) -> sparse.csr_array:
    """A method's own matrix with the pattern of ``mixing``, which has an entry for every edge and on the diagonal.

    Raises InvalidValue where it joins clients that are no neighbours.
    """
    given = sparse.csr_array(wanted, dtype=np.float64)
    if given.shape != mixing.shape:
        raise InvalidValue("method.mixing_matrix", given.shape, f"an exchange needs a matrix of shape {mixing.shape}")
    rows, columns = given.nonzero()
    pattern = sparse.csr_array((np.ones(mixing.nnz), mixing.indices, mixing.indptr), shape=mixing.shape)
    if len(rows) and (stray := np.flatnonzero(np.asarray(pattern[rows, columns]) == 0)).size:
        pair = int(rows[stray[0]]), int(columns[stray[0]])
        raise InvalidValue("method.mixing_matrix", pair, "these clients are no neighbours; their entry must be 0")
    owner = np.repeat(np.arange(mixing.shape[0]), np.diff(mixing.indptr))
    values = np.asarray(given[owner, mixing.indices], dtype=np.float64).reshape(-1)
    return sparse.csr_array((values, mixing.indices.copy(), mixing.indptr.copy()), shape=mixing.shape)
