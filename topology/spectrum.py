"""The Laplacian ℒ, the extreme eigenvalues on which stability and speed rest, and gossip weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

from ..keys import generator, public_key

DENSE_LIMIT = 500
"""Up to this many nodes all eigenvalues are computed densely."""

DIAMETER_LIMIT = 2000
"""Up to this many nodes the diameter is computed."""

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Spectrum:
    """What the eigenvalues of a connected graph say.

    Args:
        n: number of nodes N.
        lambda_2: smallest non-zero eigenvalue of ℒ (algebraic connectivity); 0 for N = 1.
        lambda_max: largest eigenvalue of ℒ; 0 for N = 1.
        spectral_gap: 1 − max(|μ_2|, |μ_N|) of the Metropolis matrix W of `metropolis_weights` (not the lazy one): a
            step of gossip x ← W x multiplies the norm of the disagreement by 1 − gap at most; 1 for N = 1.
        diameter: the longest shortest path, in edges; None above `DIAMETER_LIMIT` nodes.
    """

    n: int
    lambda_2: float
    lambda_max: float
    spectral_gap: float
    diameter: int | None


def adjacency(g: nx.Graph) -> sparse.csr_array:
    """The 0/1 adjacency matrix ``[N, N]`` of a graph on 0..N−1, float64, indices sorted. Edge weights are not used."""
    n = g.number_of_nodes()
    edges = np.array(list(g.edges()), dtype=np.int32).reshape(-1, 2)
    rows, cols = np.concatenate([edges[:, 0], edges[:, 1]]), np.concatenate([edges[:, 1], edges[:, 0]])
    matrix = sparse.csr_array((np.ones(len(rows)), (rows, cols)), shape=(n, n))
    matrix.sort_indices()
    return matrix


def _weighted_laplacian(weights: sparse.csr_array) -> sparse.csr_array:
    degrees = np.asarray(weights.sum(axis=1)).ravel()
    matrix = sparse.csr_array(sparse.diags_array(degrees, format="csr") - weights)
    matrix.sort_indices()
    return matrix


def laplacian(g: nx.Graph) -> sparse.csr_array:
    """The Laplacian ℒ = D − A of (Z10), ``[N, N]``, float64: symmetric, positive semidefinite, rows that sum to 0."""
    return _weighted_laplacian(adjacency(g))


def _metropolis_links(g: nx.Graph) -> sparse.csr_array:
    links = adjacency(g)
    degrees = np.diff(links.indptr)
    rows = np.repeat(np.arange(links.shape[0]), degrees)
    links.data = 1.0 / (1.0 + np.maximum(degrees[rows], degrees[links.indices]))
    return links


def metropolis_weights(g: nx.Graph) -> sparse.csr_array:
    """Gossip weights W ``[N, N]``: w_ij = 1/(1 + max(d_i, d_j)) on edges, w_ii = 1 − Σ_j w_ij.

    Symmetric and doubly stochastic, so x ← W x keeps the average and contracts towards it (Xiao & Boyd 2004).
    """
    eye = sparse.eye_array(g.number_of_nodes(), format="csr")
    matrix = sparse.csr_array(eye - _weighted_laplacian(_metropolis_links(g)))
    matrix.sort_indices()
    return matrix


def _start(n: int) -> NDArray[np.float64]:
    """A fixed start vector, so that the iterative solvers take the same path every time (same digits to rounding)."""
    return generator(public_key(0), "spectrum").standard_normal(n)


def _lanczos(operator: sparse.csr_array | LinearOperator, which: Literal["LA", "SA"], tolerance: float) -> float:
    """One extreme eigenvalue where it stands apart. Raises ArpackError where a bounded effort does not find it."""
    n = operator.shape[0]
    found = eigsh(operator, 1, which=which, v0=_start(n), ncv=40, maxiter=30, tol=tolerance, return_eigenvectors=False)
    return float(found[0])


def _inverted(matrix: sparse.csr_array, shift: float, count: int) -> NDArray[np.float64]:
    """The ``count`` eigenvalues next to ``shift``, ascending, by a sparse factorisation of matrix − shift·I."""
    n = matrix.shape[0]
    factors = splu(
        sparse.csc_array(matrix - shift * sparse.eye_array(n)),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    inverse = LinearOperator((n, n), matvec=factors.solve, dtype=np.float64)
    found = eigsh(matrix, count, sigma=shift, OPinv=inverse, v0=_start(n), tol=_TOLERANCE, return_eigenvectors=False)
    return np.sort(np.asarray(found, dtype=np.float64))


def largest_eigenvalue(matrix: sparse.csr_array) -> float:
    """λ_max of a symmetric positive semidefinite matrix ``[N, N]``, to about nine digits.

    Where neither Lanczos nor shift-invert converges, Gershgorin's upper bound, so that a stability limit that rests on
    it stays safe.
    """
    if matrix.shape[0] <= DENSE_LIMIT:
        return max(0.0, float(np.linalg.eigvalsh(matrix.toarray())[-1]))
    bound = float(np.max(abs(matrix).sum(axis=1)))
    try:
        return _lanczos(matrix, "LA", _TOLERANCE)
    except ArpackError:
        pass
    try:
        return float(_inverted(matrix, bound * (1 + 1e-8), 1)[0])
    except (ArpackError, RuntimeError):
        return bound


def second_eigenvalue(matrix: sparse.csr_array) -> float:
    """λ_2 of the (weighted) Laplacian ``[N, N]`` of a connected graph, to about nine digits; 0 for N = 1.

    Lanczos on the complement of the ones where the gap is wide; shift-invert where it is narrow (rings, paths, grids,
    trees), whose factors are sparse.
    """
    n = matrix.shape[0]
    if n == 1:
        return 0.0
    if n <= DENSE_LIMIT:
        return float(np.linalg.eigvalsh(matrix.toarray())[1])
    lift = float(np.max(abs(matrix).sum(axis=1)))  # moves the eigenvalue 0 of the ones above all others
    lifted = LinearOperator((n, n), matvec=lambda v: matrix @ v + lift * np.mean(v), dtype=np.float64)
    try:
        return _lanczos(lifted, "SA", _TOLERANCE)
    except ArpackError:
        below = -lift / (10.0 * n * n)
        return float(_inverted(matrix, below, 2)[1])


def _gap(g: nx.Graph) -> float:
    n = g.number_of_nodes()
    if n == 1:
        return 1.0
    walk = _weighted_laplacian(_metropolis_links(g))  # I − W, so 1 − μ_2 = λ_2 and 1 + μ_N = 2 − λ_max
    if n <= DENSE_LIMIT:
        values = np.linalg.eigvalsh(walk.toarray())
        return float(min(values[1], 2 - values[-1]))
    slow = second_eigenvalue(walk)
    at_least = 2 * (1 - float(np.max(walk.diagonal())))  # of 2 − λ_max, by Gershgorin
    return slow if slow <= at_least else min(slow, 2 - largest_eigenvalue(walk))


def diameter(g: nx.Graph) -> int:
    """The longest shortest path of a connected graph, in edges."""
    return int(np.max(shortest_path(adjacency(g), method="D", directed=False, unweighted=True)))


def spectrum(g: nx.Graph) -> Spectrum:
    """Eigenvalues, mixing gap and diameter of a connected graph on 0..N−1; within seconds for 10,000 nodes."""
    matrix = laplacian(g)
    n = matrix.shape[0]
    return Spectrum(
        n=n,
        lambda_2=second_eigenvalue(matrix),
        lambda_max=largest_eigenvalue(matrix),
        spectral_gap=_gap(g),
        diameter=diameter(g) if n <= DIAMETER_LIMIT else None,
    )
