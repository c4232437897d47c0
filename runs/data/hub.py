"""Data sets of the Hugging Face Hub, through the library ``datasets``, which is an optional extra."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ...errors import InvalidValue
from ..data_config import DataConfig
from .dataset import Raw
from .images import pixels, stacked
from .tables import Table, from_arrow


def hub_tables(config: DataConfig) -> tuple[Table, Table | None]:
    """The used columns of the splits that ``config`` names: training part, and test part where there is one.

    Raises:
        InvalidValue: the library is missing, the data set cannot be loaded, or a column is missing.
    """
    return tuple(  # type: ignore[return-value]
        None
        if part is None
        else from_arrow(
            part.with_format("arrow")[:], config, f"split {name}", "data.repository", str(config.repository)
        )
        for name, part in _parts(config)
    )


def hub_images(config: DataConfig) -> tuple[Raw, Raw | None, tuple[str, ...]]:
    """Images and their labels: training part, test part where there is one, and the classes' names where they are told.

    Raises:
        InvalidValue: as above, or images of several sizes where no ``image_size`` is given.
    """
    names: tuple[str, ...] = ()
    raws: list[Raw | None] = []
    for split, part in _parts(config):
        if part is None:
            raws.append(None)
            continue
        for column in (str(config.image), str(config.label)):
            if column not in part.column_names:
                cure = f"split {split} has no column {column!r}; it has {', '.join(part.column_names)}"
                raise InvalidValue("data.repository", config.repository, cure)
        if len(part) == 0:
            raise InvalidValue("data.repository", config.repository, f"split {split} holds no records")
        names = tuple(getattr(part.features[str(config.label)], "names", None) or ())
        arrays = [pixels(image, config) for image in part[str(config.image)]]
        told = [f"image {position} of split {split}" for position in range(len(arrays))]
        raws.append(Raw(stacked(arrays, told, "data.repository"), np.asarray(part[str(config.label)])))
    train, test = raws
    if train is not None and test is not None and train.features.shape[1:] != test.features.shape[1:]:
        cure = "training and test images differ in size; give data.image_size = [height, width]"
        raise InvalidValue("data.repository", config.repository, cure)
    return train, test, names  # type: ignore[return-value]


def _parts(config: DataConfig) -> list[tuple[str, Any]]:
    """(name, data set) of the training split, then of the test split (None where there is none)."""
    try:
        library = importlib.import_module("datasets")
    except ImportError:
        cure = 'data from the Hub need the library datasets; install it with: pip install "dualfed[hub]"'
        raise InvalidValue("data.name", "hub", cure) from None
    parts = []
    for split in (config.split, config.test_split):
        if split is None:
            parts.append(("", None))
            continue
        try:
            part = library.load_dataset(config.repository, config.subset, split=split, revision=config.revision)
        except Exception as error:
            # The library raises errors of its own, of the Hub's client and of the network's.
            words = " ".join(str(error).split())[:300]
            cure = f"split {split} cannot be loaded ({type(error).__name__}: {words})"
            raise InvalidValue("data.repository", config.repository, cure) from None
        parts.append((split, part))
    return parts
