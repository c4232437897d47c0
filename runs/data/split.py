"""Training and test part of records that come as one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue
from ...keys import generator, public_key

Rows = NDArray[np.int64]


def split_rows(count: int, test_fraction: float, seed: int, clients: NDArray[Any] | None = None) -> tuple[Rows, Rows]:
    """Training and test rows of ``count`` records, each in the order of the source; keyed by ``seed``.

    Where ``clients`` ``[count]`` says who holds each record, every client is split by itself: it gives ``test_fraction``
    of its own records to within one, and keeps at least one to train on. Rounding is systematic (Madow 1949), so that
    many clients of few records still give ``test_fraction`` of all, up to those of a single record, which give none.

    Raises:
        InvalidValue: a single record, or clients of one record each.
    """
    if count < 2:
        raise InvalidValue("data", count, "one record cannot be split into a training and a test part; bring more")
    rng = generator(public_key(seed), "split")
    order = rng.permutation(count)
    if clients is None:
        n_test = min(max(1, round(test_fraction * count)), count - 1)
        return np.sort(order[n_test:]), np.sort(order[:n_test])
    holder = np.unique(clients, return_inverse=True)[1]
    sizes = np.bincount(holder)
    if sizes.max() < 2:
        cure = "every client holds one record, so none can give one to a test part; bring a test set"
        raise InvalidValue("data.client", len(sizes), cure)
    ends = np.floor(np.cumsum(sizes) * test_fraction + rng.random())
    wanted = np.diff(ends, prepend=0.0).astype(np.int64)
    n_test = np.minimum(wanted, sizes - 1)
    if n_test.sum() == 0:
        n_test[sizes.argmax()] = 1
    by_client = order[np.argsort(holder[order], kind="stable")]
    place = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    tested = place < np.repeat(n_test, sizes)
    return np.sort(by_client[~tested]), np.sort(by_client[tested])
