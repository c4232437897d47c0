"""Who holds which record."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidValue
from ..keys import generator, public_key
from .config import PartitionConfig

Rows = NDArray[np.int64]


def partition(labels: NDArray[Any], config: PartitionConfig, seed: int) -> list[Rows]:
    """Deals the training records out to clients.

    ``iid`` deals a shuffled pack, so sizes differ by at most one. ``dirichlet`` draws for every class the shares of all
    clients from a symmetric Dirichlet distribution with parameter ``alpha`` (Hsu, Qi & Brown 2019): small for
    clients of few classes, large for clients that look alike. Clients left with fewer than ``min_size`` records are
    then given some of the largest clients', one at a time.

    Args:
        labels: ``[M]``, integers for ``dirichlet``.
        config: the ``partition`` table.
        seed: draws are public and keyed by it.

    Returns:
        for each client the rows that it holds, sorted; together they are every row once.

    Raises:
        InvalidValue: too few records for so many clients of that size, or ``dirichlet`` on real targets.
    """
    records = len(labels)
    if config.clients * config.min_size > records:
        raise _too_many(records, config)
    rng = generator(public_key(seed), "partition")
    if config.scheme == "iid":
        return [np.sort(rows) for rows in np.array_split(rng.permutation(records), config.clients)]
    if not np.issubdtype(labels.dtype, np.integer):
        raise InvalidValue("partition.scheme", config.scheme, "these data have real targets, not classes; take iid")
    owners = _dirichlet_owners(labels, config.clients, config.alpha, rng)
    _fill_up(owners, config.clients, config.min_size, rng)
    # A stable sort by owner keeps each client's rows sorted.
    ends = np.cumsum(np.bincount(owners, minlength=config.clients))[:-1]
    return np.split(np.argsort(owners, kind="stable"), ends)


def _too_many(records: int, config: PartitionConfig) -> InvalidValue:
    if config.min_size == 1:
        return InvalidValue("partition.clients", config.clients, f"there are {records} records; give at most {records}")
    most, largest = records // config.min_size, records // config.clients
    cure = f"{records} records give at most {most} clients of partition.min_size = {config.min_size}"
    if largest:
        cure += f"; or lower partition.min_size to {largest}"
    return InvalidValue("partition.clients", config.clients, cure)


def _dirichlet_owners(labels: NDArray[Any], clients: int, alpha: float, rng: np.random.Generator) -> Rows:
    """The client of each record ``[M]``, class by class."""
    owners = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        # In random order, else rounding would favour the same clients in every class.
        order = rng.permutation(clients)
        cuts = np.rint(np.cumsum(_dirichlet(clients, alpha, rng)) * len(rows)).astype(np.int64)
        cuts[-1] = len(rows)
        owners[rows] = np.repeat(order, np.diff(cuts, prepend=0))
    return owners


def _dirichlet(size: int, alpha: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """One draw of the symmetric Dirichlet distribution, which no ``alpha`` > 0 can turn into NaN.

    For small ``alpha`` every gamma variable underflows, so they stay logarithms: Gamma(α) is Gamma(α + 1)·U^(1/α) in
    distribution (Marsaglia & Tsang 2000), and only differences to the one with the largest U are formed.
    """
    alpha = min(alpha, 1e12)  # beyond, shares are equal in floating point
    gammas = np.log(rng.standard_gamma(alpha + 1, size))
    uniforms = np.log1p(-rng.random(size))
    first = uniforms.argmax()
    with np.errstate(over="ignore"):  # −inf is a share of zero
        logs = (uniforms - uniforms[first]) / alpha + gammas - gammas[first]
    shares: NDArray[np.float64] = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def _fill_up(owners: Rows, clients: int, min_size: int, rng: np.random.Generator) -> None:
    """Moves records from the largest clients to those below ``min_size``, in place; ties go to the lower number."""
    sizes = np.bincount(owners, minlength=clients)
    poor = np.flatnonzero(sizes < min_size)
    if not poor.size:
        return
    # All records in one random order: what a client gives is a random choice of what it holds.
    order = rng.permutation(len(owners))
    by_owner = np.split(order[np.argsort(owners[order], kind="stable")], np.cumsum(sizes)[:-1])
    left = sizes.tolist()
    richest = [(-size, client) for client, size in enumerate(left) if size > min_size]
    heapq.heapify(richest)
    for client in poor.tolist():
        for _ in range(min_size - left[client]):
            size, giver = richest[0]
            owners[by_owner[giver][-size - 1]] = client
            # With clients·min_size records or more the largest has one to spare as long as another lacks one.
            heapq.heapreplace(richest, (size + 1, giver))
