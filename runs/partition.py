"""Who holds which record."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidValue
from ..keys import generator, public_key
from .config import PartitionConfig

Rows = NDArray[np.int64]


def partition(
    labels: NDArray[Any],
    config: PartitionConfig,
    seed: int,
    holders: NDArray[np.int64] | None = None,
    names: Sequence[str] = (),
) -> list[Rows]:
    """Deals the training records out to clients.

    ``iid`` deals a shuffled pack, so sizes differ by at most one. ``dirichlet`` draws for every class the shares of all
    clients from a symmetric Dirichlet distribution with parameter ``alpha`` (Hsu, Qi & Brown 2019): small for
    clients of few classes, large for clients that look alike. ``pathological`` gives each client records of
    ``classes_per_client`` classes and of no other (after McMahan et al. 2017), about equally many. ``quantity``
    draws the clients' sizes from a Dirichlet distribution and deals out a shuffled pack. ``column`` gives each record to
    the client that the data name. Clients that ``dirichlet`` and ``quantity`` leave with fewer than
    ``min_size`` records are given some of the largest clients', one at a time.

    Args:
        labels: ``[M]``, integers for ``dirichlet`` and ``pathological``.
        config: the ``partition`` table.
        seed: draws are public and keyed by it.
        holders: ``[M]``, position in ``names`` of who holds each record, for ``column``.
        names: the clients that the data name.

    Returns:
        for each client the rows that it holds, sorted; together they are every row once, but for the clients that
        ``drop_small`` leaves out.

    Raises:
        InvalidValue: too few records for so many clients of that size, classes wanted of real targets, more classes
            a client than there are or too few for all of them, or a client column that is missing or whose clients are
            smaller than ``min_size`` or not as many as ``clients``.
    """
    if config.scheme == "column":
        return _by_column(config, holders, names)
    clients, records = int(config.clients or 0), len(labels)
    if clients * config.min_size > records:
        raise _too_many(records, config)
    if config.scheme in ("dirichlet", "pathological") and not np.issubdtype(labels.dtype, np.integer):
        cure = "these data have real targets, not classes; take iid, quantity or column"
        raise InvalidValue("partition.scheme", config.scheme, cure)
    rng = generator(public_key(seed), "partition")
    if config.scheme == "iid":
        return [np.sort(rows) for rows in np.array_split(rng.permutation(records), clients)]
    if config.scheme == "pathological":
        return _members(_pathological_owners(labels, config, rng), clients)
    if config.scheme == "dirichlet":
        owners = _dirichlet_owners(labels, clients, config.alpha, rng)
    else:
        owners = _dirichlet_owners(np.zeros(records, dtype=np.int64), clients, config.alpha, rng)
    _fill_up(owners, clients, config.min_size, rng)
    return _members(owners, clients)


def _members(owners: Rows, clients: int) -> list[Rows]:
    """The rows of each client. A stable sort by owner keeps them sorted."""
    ends = np.cumsum(np.bincount(owners, minlength=clients))[:-1]
    return np.split(np.argsort(owners, kind="stable"), ends)


def _by_column(config: PartitionConfig, holders: NDArray[np.int64] | None, names: Sequence[str]) -> list[Rows]:
    if holders is None:
        cure = "the data name no clients; say which column does, in data.client (csv, parquet and hub have columns)"
        raise InvalidValue("partition.scheme", config.scheme, cure)
    members = _members(holders, len(names))
    small = [client for client, rows in enumerate(members) if len(rows) < config.min_size]
    if small and not config.drop_small:
        told = ", ".join(f"{names[client]} ({len(members[client])})" for client in small[:10])
        more = f" and {len(small) - 10} more" if len(small) > 10 else ""
        cure = (
            f"{told}{more} hold fewer training records; lower it to {min(len(rows) for rows in members)}, or leave these "
            "clients out with partition.drop_small = true"
        )
        raise InvalidValue("partition.min_size", config.min_size, cure)
    kept = [rows for rows in members if len(rows) >= config.min_size]
    if not kept:
        most = max(len(rows) for rows in members)
        raise InvalidValue(
            "partition.min_size", config.min_size, f"no client holds so many records; give at most {most}"
        )
    if config.clients is not None and config.clients != len(kept):
        cure = f"the client column gives {len(kept)} clients; leave it out, or give that number"
        raise InvalidValue("partition.clients", config.clients, cure)
    return kept


def _too_many(records: int, config: PartitionConfig) -> InvalidValue:
    clients = int(config.clients or 0)
    if config.min_size == 1:
        return InvalidValue("partition.clients", config.clients, f"there are {records} records; give at most {records}")
    most, largest = records // config.min_size, records // clients
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


def _pathological_owners(labels: NDArray[Any], config: PartitionConfig, rng: np.random.Generator) -> Rows:
    """The client of each record ``[M]``: each class is cut into portions, each client gets portions of distinct classes."""
    clients, each = int(config.clients or 0), config.classes_per_client
    present, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if each > len(present):
        raise InvalidValue(
            "partition.classes_per_client", each, f"there are {len(present)} classes; give at most that many"
        )
    if clients * each < len(present):
        cure = f"{clients} clients of {each} classes cannot hold all {len(present)}; give {-(-len(present) // clients)} or more"
        raise InvalidValue("partition.classes_per_client", each, cure)
    portions = _portions(counts, clients, each)
    free = np.full(clients, each)
    owners = np.empty(len(labels), dtype=np.int64)
    for code in rng.permutation(len(present)):
        # The clients with most classes to go, ties at random: so every portion finds a client (Ryser 1957).
        takers = np.lexsort((rng.random(clients), -free))[: portions[code]]
        free[takers] -= 1
        rows = rng.permutation(np.flatnonzero(codes == code))
        owners[rows] = np.repeat(rng.permutation(takers), _even(len(rows), len(takers)))
    sizes = np.bincount(owners, minlength=clients)
    if (least := int(sizes.min())) < config.min_size:
        field, cure = (
            "partition.min_size",
            f"client {sizes.argmin()} would hold {least} records of its {each} classes; ",
        )
        cure += (
            f"lower it to {least}, or take fewer clients" if least else "take fewer clients, or more classes for each"
        )
        raise InvalidValue(field, config.min_size, cure)
    return owners


def _portions(counts: NDArray[np.int64], clients: int, each: int) -> NDArray[np.int64]:
    """Into how many portions each class is cut: in proportion to its records, so that portions are about equal.

    At least one, at most one for each client and record; ``clients·each`` together, or less where records are too few.
    """
    most = np.minimum(counts, clients)
    target = min(clients * each, int(most.sum()))
    portions: NDArray[np.int64] = np.clip((clients * each * counts) // counts.sum(), 1, most)
    while (total := int(portions.sum())) != target:
        if total < target:
            portions[np.where(portions < most, counts / portions, -np.inf).argmax()] += 1
        else:
            portions[np.where(portions > 1, counts / portions, np.inf).argmin()] -= 1
    return portions


def _even(total: int, parts: int) -> NDArray[np.int64]:
    """``total`` in ``parts`` that differ by at most one."""
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes


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
