"""From the configuration's ``data`` table to a data set."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue
from ..config import DataConfig
from .columns import client_codes, drop_missing, fit, label_codes
from .dataset import Array, Dataset, Raw, check_labels, prepare
from .files import idx_folder, npz
from .hub import hub_images, hub_tables
from .images import image_folder
from .maps import apply_map
from .sources import breast_cancer, digits, synthetic
from .split import split_rows
from .tables import Table, read_table


@dataclass(frozen=True, eq=False)
class _Parts:
    """Training and test records before scaling, with what is known of them."""

    train: Raw
    test: Raw
    n_classes: int
    clients: NDArray[np.int64] | None = None
    client_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()


def load(config: DataConfig, seed: int) -> Dataset:
    """Reads, checks, splits, maps and scales the data that ``config`` names.

    Features are a function of one record and of public constants, unless ``statistics = "private"`` leaves constants to
    be computed from the training records. Sources without a test part of their own are split by ``test_fraction``,
    keyed by ``seed``; where the data name clients, each client is split by itself.

    Raises:
        InvalidValue: naming the field at fault, in one sentence.
    """
    seed = seed if config.seed is None else config.seed
    parts = _from_tables(config, seed) if _tabular(config) else _from_arrays(config, seed)
    train_features, scaling, record_norm = prepare(apply_map(parts.train, config), config.scale, config.bias)
    test_features, _, _ = prepare(apply_map(parts.test, config), config.scale, config.bias)
    return Dataset(
        train_features,
        _as_labels(parts.train.labels, parts.n_classes),
        test_features,
        _as_labels(parts.test.labels, parts.n_classes),
        parts.n_classes,
        _name(config),
        scaling,
        record_norm,
        parts.clients,
        parts.client_names,
        parts.class_names,
        "private" if config.numeric or config.categorical else "public",
        parts.constants,
    )


def _tabular(config: DataConfig) -> bool:
    return config.name in ("csv", "parquet") or (config.name == "hub" and config.image is None)


def _from_arrays(config: DataConfig, seed: int) -> _Parts:
    raw, test, names = _read(config, seed)
    n_classes = check_labels(raw.labels, *([] if test is None else [test.labels]))
    if test is not None:
        return _Parts(raw, test, n_classes, class_names=names)
    rows = split_rows(len(raw.labels), config.test_fraction, seed)
    train, test = (dataclasses.replace(raw, features=raw.features[part], labels=raw.labels[part]) for part in rows)
    return _Parts(train, test, n_classes, class_names=names)


def _read(config: DataConfig, seed: int) -> tuple[Raw, Raw | None, tuple[str, ...]]:
    match config.name:
        case "digits":
            return digits(), None, ()
        case "breast-cancer":
            return breast_cancer(), None, ("malignant", "benign")
        case "synthetic":
            return synthetic(config, seed), None, ()
        case "idx":
            return *idx_folder(_path(config)), ()
        case "npz":
            return *npz(_path(config)), ()
        case "image-folder":
            return image_folder(_path(config), config)
    return hub_images(config)


def _from_tables(config: DataConfig, seed: int) -> _Parts:
    given, test_given = _read_tables(config)
    table = drop_missing(given, config)
    labels, names = label_codes(table, config)
    clients, client_names = client_codes(table, config)
    if test_given is None:
        n_classes = _classes(config, labels)
        rows, held_out = split_rows(len(labels), config.test_fraction, seed, clients)
        train, test = table.take(rows), table.take(held_out)
        train_labels, test_labels = labels[rows], labels[held_out]
        clients = None if clients is None else clients[rows]
    else:
        train, test = table, drop_missing(test_given, config)
        train_labels, test_labels = labels, label_codes(test, config)[0]
        if train_labels.dtype != test_labels.dtype:  # whole numbers by chance: targets are real in both parts
            train_labels, test_labels = train_labels.astype(np.float64), test_labels.astype(np.float64)
        n_classes = _classes(config, train_labels, test_labels)
    encoding = fit(train, config)
    return _Parts(
        encoding.raw(train, train_labels),
        encoding.raw(test, test_labels),
        n_classes,
        clients,
        client_names,
        names,
        encoding.constants,
    )


def _read_tables(config: DataConfig) -> tuple[Table, Table | None]:
    if config.name == "hub":
        return hub_tables(config)
    path = _path(config)
    table = read_table(path, config)
    if config.test_path is None:
        return table, None
    return table, read_table(path.parent / config.test_path.expanduser(), config, "data.test_path")


def _classes(config: DataConfig, *labels: Array) -> int:
    """How many classes there are: as many as ``label_classes`` declares, whether or not each occurs."""
    if config.label_classes is None:
        return check_labels(*labels)
    present = np.unique(np.concatenate(labels))
    if len(present) < 2:
        raise InvalidValue("data.labels", int(present[0]), "all records have this label; there is nothing to learn")
    return len(config.label_classes)


def _path(config: DataConfig) -> Path:
    if config.path is None:
        raise InvalidValue("data.path", None, f"data.name = {config.name!r} needs the path of its files")
    return config.path


def _name(config: DataConfig) -> str:
    if config.name == "hub":
        return f"hub ({config.repository})"
    return config.name if config.path is None else f"{config.name} ({config.path.stem})"


def _as_labels(labels: Array, n_classes: int) -> Array:
    return labels.astype(np.int64 if n_classes else np.float64)
