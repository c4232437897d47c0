"""Who holds what: the figures of a partition, for a table and a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .config import RunConfig
from .data import Dataset, load
from .partition import partition


@dataclass(frozen=True, eq=False)
class Holdings:
    """A data set and how it is dealt out.

    Attributes:
        dataset: the data, as a run would use them.
        members: for each client its training rows.
        names: what the clients are called: their numbers, or the names that the data give.
        proportions: ``[N, classes]``, share of each class among a client's records; ``[N, 0]`` for real targets.
        frame: one row a client: client, name, records, classes, largest_share, distance, mean_norm, and mean_target for
            real targets. ``distance`` is half the summed difference of the client's class shares from everybody's.
    """

    dataset: Dataset
    members: list[NDArray[np.int64]]
    names: list[str]
    proportions: NDArray[np.float64]
    frame: pd.DataFrame

    @property
    def left_out(self) -> int:
        """Training records that no client holds, because their clients are too small."""
        return len(self.dataset.train_labels) - sum(len(rows) for rows in self.members)

    @property
    def class_names(self) -> list[str]:
        """What the classes are called."""
        return list(self.dataset.class_names) or [str(code) for code in range(self.dataset.n_classes)]


def holdings(config: RunConfig) -> Holdings:
    """Load and deal out the data of a configuration; nothing is run.

    These figures are computed from the records without noise: they are for whoever may see the data.

    Raises:
        InvalidValue: whatever is wrong with the ``data`` or ``partition`` table.
    """
    dataset = load(config.data, config.seed)
    labels, clients = dataset.train_labels, dataset.train_clients
    members = partition(labels, config.partition, config.seed, clients, dataset.client_names)
    if clients is not None and config.partition.scheme == "column":
        names = [dataset.client_names[clients[rows[0]]] for rows in members]
    else:
        names = [str(client) for client in range(len(members))]
    sizes = np.array([len(rows) for rows in members])
    counts = np.zeros((len(members), dataset.n_classes))
    if dataset.n_classes:
        counts[:] = [np.bincount(labels[rows], minlength=dataset.n_classes) for rows in members]
    proportions = counts / sizes[:, None]
    norms = np.linalg.norm(dataset.train_features.astype(np.float64), axis=1)
    frame = pd.DataFrame({"client": np.arange(len(members)), "name": names, "records": sizes})
    if dataset.n_classes:
        everybody = counts.sum(axis=0) / sizes.sum()
        frame["classes"] = (counts > 0).sum(axis=1)
        frame["largest_share"] = proportions.max(axis=1)
        frame["distance"] = np.abs(proportions - everybody).sum(axis=1) / 2
    else:
        frame["mean_target"] = [float(labels[rows].mean()) for rows in members]
    frame["mean_norm"] = [float(norms[rows].mean()) for rows in members]
    return Holdings(dataset, members, names, proportions, frame)
