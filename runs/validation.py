"""Records held out of the clients' own, to choose parameters by, so that no choice has seen a test record."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidValue
from ..keys import generator, public_key
from .data import Dataset

Rows = NDArray[np.int64]

TUNING_SENTENCE = "tuning used the private data; its cost is not in ε"


def held_out(dataset: Dataset, members: list[Rows], fraction: float, seed: int) -> tuple[Dataset, list[Rows]]:
    """Every client keeps its records but for ``fraction`` of them; those of all clients take the place of the test records.

    A client keeps at least one record. The draw is public, keyed by ``seed``.

    Args:
        members: the training rows of each client, as ``partition`` deals them.

    Raises:
        InvalidValue: so few records that nothing is held out.
    """
    kept, out = [], []
    for client, rows in enumerate(members):
        order = generator(public_key(seed), "validation", client).permutation(len(rows))
        count = min(round(fraction * len(rows)), len(rows) - 1)
        out.append(rows[np.sort(order[:count])])
        kept.append(rows[np.sort(order[count:])])
    chosen = np.concatenate(out)
    if not len(chosen):
        raise InvalidValue("data.validation", fraction, "the clients hold too few records for it; give a larger share")
    chosen.sort()
    evaluated = dataclasses.replace(
        dataset, test_features=dataset.train_features[chosen], test_labels=dataset.train_labels[chosen]
    )
    return evaluated, kept
