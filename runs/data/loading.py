"""From the configuration's ``data`` table to a data set."""

from __future__ import annotations

import numpy as np

from ...errors import InvalidValue
from ...keys import generator, public_key
from ..config import DataConfig
from .dataset import Array, Dataset, Raw, check_labels, prepare
from .files import idx_folder, npz
from .sources import breast_cancer, digits, synthetic


def load(config: DataConfig, seed: int) -> Dataset:
    """Reads, checks, splits and scales the data that ``config`` names.

    Scaling looks at one record at a time and at public constants only. Sources without a test part of their own are
    split by ``test_fraction``, keyed by ``seed``.

    Raises:
        InvalidValue: naming the field at fault, in one sentence.
    """
    train, test = _read(config, seed)
    n_classes = check_labels(train.labels, *([] if test is None else [test.labels]))
    if test is None:
        train, test = _split(train, config.test_fraction, seed)
    train_features, scaling, record_norm = prepare(train, config.scale, config.bias)
    test_features, _, _ = prepare(test, config.scale, config.bias)
    return Dataset(
        train_features,
        _as_labels(train.labels, n_classes),
        test_features,
        _as_labels(test.labels, n_classes),
        n_classes,
        config.name if config.path is None else f"{config.name} ({config.path.stem})",
        scaling,
        record_norm,
    )


def _read(config: DataConfig, seed: int) -> tuple[Raw, Raw | None]:
    match config.name:
        case "digits":
            return digits(), None
        case "breast-cancer":
            return breast_cancer(), None
        case "synthetic":
            return synthetic(config, seed), None
    if config.path is None:
        raise InvalidValue("data.path", None, f"data.name = {config.name!r} needs the path of its files")
    return idx_folder(config.path) if config.name == "idx" else npz(config.path)


def _split(raw: Raw, test_fraction: float, seed: int) -> tuple[Raw, Raw]:
    count = len(raw.labels)
    if count < 2:
        raise InvalidValue("data", count, "one record cannot be split into a training and a test part; bring more")
    n_test = min(max(1, round(test_fraction * count)), count - 1)
    order = generator(public_key(seed), "split").permutation(count)
    # Sorted, so that each part keeps the order of the source.
    parts = np.sort(order[n_test:]), np.sort(order[:n_test])
    train, test = (Raw(raw.features[rows], raw.labels[rows], raw.bound, raw.units) for rows in parts)
    return train, test


def _as_labels(labels: Array, n_classes: int) -> Array:
    return labels.astype(np.int64 if n_classes else np.float64)
