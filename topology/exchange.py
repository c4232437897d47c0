"""The correction c_k over the graph, twice: by edges as published (Z2, Z9), and by the Laplacian, faster (Z10).

A round of either: ``c = exchange.correction(x)``, release the next states, ``exchange.advance(x_next)``. A client that
was lost in a round has released Δ̃_i = 0 (Z8); to the exchange its next state is like any other.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .spectrum import adjacency

Array = NDArray[np.floating[Any]]


class EdgeExchange:
    """The reference: one variable z_ij and one message m_ij for each edge and direction (Z2, Z9).

    Args:
        g: connected graph on 0..N−1.
        rho: the penalty ρ.
        x: common or individual start states ``[N, d]``; z_{ij,0} = ρ x_{j,0}.

    Attributes:
        owner, neighbour: ``[2|E|]``, the ends i and j of each directed edge, sorted.
        z: edge variables ``[2|E|, d]``, z_ij held by client i.
    """

    def __init__(self, g: nx.Graph, rho: float, x: Array) -> None:
        links = adjacency(g)
        degrees = np.diff(links.indptr)
        self.rho = rho
        self.owner = np.repeat(np.arange(len(degrees)), degrees)
        self.neighbour = links.indices.astype(np.int64)
        self._reverse = np.lexsort((self.owner, self.neighbour))  # position of (j, i) for each (i, j)
        self._degrees = degrees.astype(x.dtype)[:, None]
        held = np.arange(len(self.owner))
        self._sum = sparse.csr_array((np.ones(len(held), x.dtype), held, links.indptr), shape=(len(degrees), len(held)))
        self.z: Array = rho * x[self.neighbour]

    def correction(self, x: Array) -> Array:
        """c_i = ρ d_i x_i − Σ_{j∈𝒩_i} z_ij (Z2), ``[N, d]`` from the released states ``x`` ``[N, d]``."""
        return self.rho * self._degrees * x - self._sum @ self.z

    def messages(self, x_next: Array) -> Array:
        """m_ij = 2ρ x_{i,k+1} − z_{ij,k}, ``[2|E|, d]``: what client ``owner`` sends to ``neighbour``."""
        return 2 * self.rho * x_next[self.owner] - self.z

    def advance(self, x_next: Array) -> None:
        """z_{ij,k+1} = ½ (z_{ij,k} + m_{ji,k}) (Z9), after the release of ``x_next`` ``[N, d]``."""
        self.z = 0.5 * (self.z + self.messages(x_next)[self._reverse])


class LaplacianExchange:
    """The fast form: one sparse product a round and one vector y_i a client (Z10).

    Equal to `EdgeExchange` from any start. A host may hold some rows of ℒ only: then ``laplacian`` is
    ``[n, n + ghosts]``, the states that are passed have ``n + ghosts`` rows, own first, and corrections have ``n``.

    Args:
        laplacian: ℒ ``[N, N]``, or a host's rows of it.
        rho: the penalty ρ.
        dimension: d.
        dtype: of the states; the product runs in it.

    Attributes:
        y: Σ of the pulls of earlier rounds, halved, ``[n, d]``; y_{−1} = 0. With the last states it is all that a
            checkpoint needs, and a function of released states.
    """

    def __init__(
        self, laplacian: sparse.csr_array, rho: float, dimension: int, dtype: np.dtype[Any] | type = np.float64
    ) -> None:
        self.rho = rho
        self._pull_matrix = sparse.csr_array((laplacian * rho).astype(dtype))
        self.y: Array = np.zeros((laplacian.shape[0], dimension), dtype=dtype)
        self._pull: Array | None = None

    def correction(self, x: Array) -> Array:
        """c_k = ρ ℒ x_k + y_{k−1} (Z10), ``[n, d]`` from the released states ``x`` ``[n + ghosts, d]``."""
        self._pull = np.asarray(self._pull_matrix @ x)
        return self._pull + self.y

    def advance(self, x_next: Array | None = None) -> None:
        """y_k = y_{k−1} + (ρ/2) ℒ x_k (Z10), from the states of the last `correction`; ``x_next`` is not needed.

        Raises RuntimeError where no correction was asked for since the last advance.
        """
        if self._pull is None:
            raise RuntimeError("advance() follows correction(), once a round")
        self.y = self.y + 0.5 * self._pull
        self._pull = None
