"""Which client lives on which host: few edges cut, work balanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ..errors import InvalidValue
from .spectrum import adjacency

_HAS_METIS = find_spec("pymetis") is not None  # it has no wheel for some platforms

Nodes = NDArray[np.int64]

SLACK = 1.05
"""A host may carry this share of the mean work, and one client more."""


def _check_hosts(n: int, n_hosts: int) -> None:
    if not 1 <= n_hosts <= n:
        raise InvalidValue("n_hosts", n_hosts, f"give from 1 to {n} hosts, the number of clients")


def server_placement(n_clients: int, n_hosts: int) -> list[Nodes]:
    """Contiguous blocks of clients that differ by one at most, for the star. Raises InvalidValue for an empty host."""
    _check_hosts(n_clients, n_hosts)
    return [block.astype(np.int64) for block in np.array_split(np.arange(n_clients), n_hosts)]


def place(g: nx.Graph, n_hosts: int, work: ArrayLike | None = None) -> list[Nodes]:
    """Clients on hosts, deterministic.

    Takes the better of METIS's partition and of blocks along a bandwidth-reducing order: the one that cuts fewer edges
    among those in which no host is empty or carries more than ``SLACK`` times the mean work and one client. Where METIS
    has no wheel, the blocks.

    Args:
        g: graph on 0..N−1.
        n_hosts: from 1 to N.
        work: ``[N]``, what a client's round costs, in any unit; equal where left out.

    Returns:
        For each host its clients, sorted; no host is empty; hosts in the order of their first client.

    Raises:
        InvalidValue: more hosts than clients, or work that is negative, not finite or of the wrong length.
    """
    n = g.number_of_nodes()
    _check_hosts(n, n_hosts)
    load = np.ones(n) if work is None else np.asarray(work, dtype=np.float64)
    if load.shape != (n,) or not np.all(np.isfinite(load)) or np.any(load < 0):
        raise InvalidValue("work", load.shape, f"give {n} numbers ≥ 0, one for each client")
    if not load.sum() > 0:
        load = np.ones(n)
    if n_hosts == 1:
        return [np.arange(n, dtype=np.int64)]
    links = adjacency(g)
    owner = _blocks(links, n_hosts, load)
    if _HAS_METIS and links.nnz:
        other = _metis(links, n_hosts, load)
        loads = np.bincount(other, load, minlength=n_hosts)
        fair = loads.max() <= SLACK * load.sum() / n_hosts + load.max()
        full = np.bincount(other, minlength=n_hosts).min() > 0
        if fair and full and cut_edges(links, other) <= cut_edges(links, owner):
            owner = other
    hosts = [np.flatnonzero(owner == host).astype(np.int64) for host in range(n_hosts)]
    return sorted(hosts, key=lambda nodes: int(nodes[0]))


def _blocks(links: sparse.csr_array, n_hosts: int, load: NDArray[np.float64]) -> NDArray[np.int64]:
    """Host of each node ``[N]``: consecutive pieces of equal work along the reverse Cuthill–McKee order, none empty."""
    n = len(load)
    order = reverse_cuthill_mckee(sparse.csr_matrix(links), symmetric_mode=True)
    middle = np.cumsum(load[order]) - load[order] / 2
    piece = np.minimum((middle * n_hosts / load.sum()).astype(np.int64), n_hosts - 1)
    # No host is left empty: hosts rise by one at most along the order, and enough nodes are kept for the last ones.
    position = np.arange(n)
    piece[0] = 0
    piece = np.minimum.accumulate(piece - position) + position
    piece = np.maximum(piece, position - n + n_hosts)
    owner = np.empty(n, dtype=np.int64)
    owner[order] = piece
    return owner


def _metis(links: sparse.csr_array, n_hosts: int, load: NDArray[np.float64]) -> NDArray[np.int64]:
    """Host of each node ``[N]`` by METIS's multilevel partitioner."""
    import pymetis

    graph = pymetis.CSRAdjacency(links.indptr.astype(np.int32), links.indices.astype(np.int32))
    weights = None
    if np.ptp(load) > 0:
        weights = np.maximum(1, np.rint(load * (1e6 / load.sum()))).astype(np.int64).tolist()
    _, owner = pymetis.part_graph(n_hosts, adjacency=graph, vweights=weights)
    return np.asarray(owner, dtype=np.int64)


def cut_edges(links: sparse.csr_array, owner: NDArray[np.int64]) -> int:
    """How many edges of the symmetric adjacency matrix join two hosts, given each node's host ``[N]``."""
    rows = np.repeat(owner, np.diff(links.indptr))
    return int(np.count_nonzero(rows != owner[links.indices])) // 2


def owners(placement: Sequence[Nodes]) -> NDArray[np.int64]:
    """Host of each node ``[N]``, from the hosts' clients."""
    owner = np.empty(sum(len(nodes) for nodes in placement), dtype=np.int64)
    for host, nodes in enumerate(placement):
        owner[nodes] = host
    return owner


def boundary(g: nx.Graph, placement: Sequence[Nodes]) -> dict[tuple[int, int], Nodes]:
    """What hosts send each other in a round: for (source, target), the source's nodes with a neighbour on the target.

    One vector for each node and neighbouring host, however many edges join them. Nodes are sorted; pairs in ascending
    order; pairs with nothing to send are left out.
    """
    links = adjacency(g)
    owner = owners(placement)
    node = np.repeat(np.arange(len(owner)), np.diff(links.indptr))
    target = owner[links.indices]
    crossing = owner[node] != target
    rows = np.unique(np.stack([owner[node[crossing]], target[crossing], node[crossing]], axis=1), axis=0)
    pairs, starts = np.unique(rows[:, :2], axis=0, return_index=True)
    pieces = np.split(rows[:, 2].astype(np.int64), starts[1:]) if len(pairs) else []
    return {(int(source), int(to)): nodes for (source, to), nodes in zip(pairs, pieces)}


@dataclass(frozen=True)
class HostRows:
    """A host's part of (Z10).

    Args:
        own: its clients, sorted.
        ghosts: clients of other hosts that neighbour one of its own, sorted.
        laplacian: ℒ's rows ``own`` by columns ``own`` then ``ghosts``.
    """

    own: Nodes
    ghosts: Nodes
    laplacian: sparse.csr_array


def host_rows(laplacian: sparse.csr_array, placement: Sequence[Nodes]) -> list[HostRows]:
    """ℒ ``[N, N]`` cut up for the hosts of a placement, each part fit for a `LaplacianExchange` of its own."""
    parts = []
    for own in placement:
        rows = laplacian[own]
        ghosts = np.setdiff1d(rows.indices, own).astype(np.int64)
        local = sparse.csr_array(rows[:, np.concatenate([own, ghosts])])
        local.sort_indices()
        parts.append(HostRows(np.asarray(own, dtype=np.int64), ghosts, local))
    return parts
