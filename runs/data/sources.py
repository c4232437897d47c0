"""Data that need no files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue
from ...keys import generator, public_key
from ..config import DataConfig
from .dataset import Raw

# Ranges of the thirty measurements of the Wisconsin breast-cancer data, in their own units: ten of a cell nucleus as
# (mean over the nuclei, standard error, worst nucleus). Round numbers after the ranges that the public description of
# the data prints; none is computed from the records that a run loads.
_BREAST_CANCER_RANGES: dict[str, tuple[tuple[float, float], ...]] = {
    "radius": ((5, 30), (0, 3), (5, 40)),
    "texture": ((5, 40), (0, 5), (10, 50)),
    "perimeter": ((40, 200), (0, 20), (50, 250)),
    "area": ((100, 2500), (0, 500), (100, 4000)),
    "smoothness": ((0.05, 0.15), (0, 0.03), (0.05, 0.25)),
    "compactness": ((0, 0.35), (0, 0.15), (0, 1)),
    "concavity": ((0, 0.4), (0, 0.4), (0, 1.2)),
    "concave points": ((0, 0.2), (0, 0.05), (0, 0.3)),
    "symmetry": ((0.1, 0.3), (0, 0.1), (0.15, 0.65)),
    "fractal dimension": ((0.05, 0.1), (0, 0.03), (0.05, 0.2)),
}


def digits() -> Raw:
    """1,797 images of handwritten digits, 8×8 pixels of 0..16, from scikit-learn."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Raw(bunch.images / 16.0, bunch.target.astype(np.int64), 1.0, "pixels divided by 16")


def breast_cancer() -> Raw:
    """569 tumours, 30 measurements each, label 1 for benign, from scikit-learn.

    The measurements differ by up to six powers of ten, so each is mapped from a public range to −1..1 and cut there.
    """
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    ranges = np.array([kind[part] for part in range(3) for kind in _BREAST_CANCER_RANGES.values()], dtype=np.float64)
    low, high = ranges.T
    scaled = np.clip(2 * (bunch.data - low) / (high - low) - 1, -1.0, 1.0)
    return Raw(scaled, bunch.target.astype(np.int64), 1.0, "each measurement mapped from a public range to -1..1")


def synthetic(config: DataConfig, seed: int) -> Raw:
    """Gaussian clusters: class c has a centre from N(0, I), its records come from N(centre, spread²·I).

    Classes are equally frequent, to one record. The numbers are a function of ``seed`` alone.

    Raises:
        InvalidValue: fewer records than two for each class.
    """
    if config.records < 2 * config.classes:
        raise InvalidValue("data.records", config.records, f"give at least {2 * config.classes}, two for each class")
    rng = generator(public_key(seed), "synthetic")
    centres: NDArray[Any] = rng.standard_normal((config.classes, config.features))
    labels = rng.permutation(np.arange(config.records) % config.classes)
    features = centres[labels] + config.spread * rng.standard_normal((config.records, config.features))
    return Raw(features, labels)
