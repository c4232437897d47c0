"""Records as a run uses them: checked, split, and scaled record by record with public constants."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue

Array = NDArray[Any]

# Scaled records stop this far short of norm 1, so that rounding in either precision cannot carry one past the bound
# that sensitivities rest on.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test records, ready for a `Problem`.

    Attributes:
        train_features: float ``[M, p]``, bias column included.
        train_labels: int64 ``[M]`` in 0..n_classes−1, or float64 targets.
        test_features: float ``[T, p]``.
        test_labels: ``[T]``.
        n_classes: classes, or 0 for regression.
        name: what the data are called.
        scaling: a sentence on what was done to the features.
        record_norm: public bound on ‖a‖ of every record, bias included; inf where the scaling gives none.
        train_clients: int64 ``[M]``, position in ``client_names`` of who holds the record, where the data say so.
        client_names: as in the client column, sorted.
        class_names: what the classes are called, or ().
        statistics: ``public``, or ``private`` where the scaling looked at the training records.
        constants: what each column was scaled by, as (column, words).
    """

    train_features: Array
    train_labels: Array
    test_features: Array
    test_labels: Array
    n_classes: int
    name: str
    scaling: str
    record_norm: float
    train_clients: NDArray[np.int64] | None = None
    client_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    statistics: str = "public"
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def n_features(self) -> int:
        """p, bias column included."""
        return int(self.train_features.shape[1])


@dataclass(frozen=True, eq=False)
class Raw:
    """Records as a source gives them: features ``[n, ...]`` in public units, before any scaling.

    Attributes:
        features: ``[n, ...]``; unsigned bytes are pixels.
        labels: ``[n]``.
        bound: public bound on the absolute value of every feature after ``units``, or inf.
        units: what the source did to the features already, as the beginning of a sentence, or "".
        norm_bound: public bound on the norm of a record after ``units``, where it is less than ``bound`` implies.
    """

    features: Array
    labels: Array
    bound: float = math.inf
    units: str = ""
    norm_bound: float = math.inf


def check_labels(*parts: Array) -> int:
    """Number of classes of the labels of all parts together, 0 where they are real targets.

    Raises:
        InvalidValue: labels that are not 0..k−1 for some k ≥ 2, not finite, or not numbers.
    """
    if any(not np.issubdtype(part.dtype, np.number) and part.dtype != bool for part in parts):
        raise InvalidValue("data.labels", str(parts[0].dtype), "labels must be whole numbers from 0, or real targets")
    if any(np.issubdtype(part.dtype, np.complexfloating) for part in parts):
        raise InvalidValue("data.labels", str(parts[0].dtype), "labels must be whole numbers from 0, or real targets")
    if any(np.issubdtype(part.dtype, np.floating) for part in parts):
        for part in parts:
            if not (finite := np.isfinite(part)).all():
                record = int((~finite).argmax())
                raise InvalidValue("data.labels", float(part[record]), f"the target of record {record} is not finite")
        return 0
    present = np.unique(np.concatenate([np.unique(part).astype(np.int64) for part in parts]))
    if len(present) < 2:
        raise InvalidValue("data.labels", int(present[0]), "all records have this label; there is nothing to learn")
    misplaced = np.flatnonzero(present != np.arange(len(present)))
    if misplaced.size:
        cure = f"there are {len(present)} classes; number them 0 to {len(present) - 1} without gaps"
        raise InvalidValue("data.labels", int(present[misplaced[0]]), cure)
    return len(present)


def in_units(raw: Raw) -> Raw:
    """``raw`` with floating features ``[n, ...]``: unsigned bytes are divided by 255, the rest is checked.

    Raises:
        InvalidValue: no features, or features that are not real numbers.
    """
    features = raw.features
    if features.ndim < 2 or math.prod(features.shape[1:]) == 0:
        raise InvalidValue("data.features", features.shape, "give one row of features for each record")
    if not np.issubdtype(features.dtype, np.number) and features.dtype != bool:
        raise InvalidValue("data.features", str(features.dtype), "features must be numbers")
    if np.issubdtype(features.dtype, np.complexfloating):
        raise InvalidValue("data.features", str(features.dtype), "features must be real numbers")
    if features.dtype == np.uint8:
        return Raw(features / np.float32(255), raw.labels, 1.0, "pixels divided by 255")
    if features.dtype == np.float32:
        return raw
    return dataclasses.replace(raw, features=features.astype(np.float64, copy=False))


def prepare(raw: Raw, scale: str, bias: bool) -> tuple[Array, str, float]:
    """Scales each record by itself, with public constants only, so that scaling costs no privacy.

    Unsigned bytes are divided by 255. ``scale="unit"`` then brings every record but zero to norm 1 (a millionth less).

    Args:
        raw: the records.
        scale: ``unit`` or ``none``.
        bias: whether to add a column of ones.

    Returns:
        features ``[n, p]`` (float32 for bytes and float32, else float64), what was done as a sentence, and the public
        bound on ‖a‖.

    Raises:
        InvalidValue: no features, or a value that is not a finite number.
    """
    raw = in_units(raw)
    count, width = len(raw.features), math.prod(raw.features.shape[1:])
    out = np.empty((count, width + bias), dtype=raw.features.dtype)
    part = out[:, :width]
    part[...] = raw.features.reshape(count, width)
    done = [raw.units] if raw.units else []
    norms = np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64, casting="same_kind"))
    if not (finite := np.isfinite(norms)).all():
        record = int((~finite).argmax())
        cure = f"record {record} is not finite; drop it or repair it"
        raise InvalidValue("data.features", float(norms[record]), cure)
    record_norm = min(raw.bound * math.sqrt(width), raw.norm_bound)
    if scale == "unit":
        part *= ((1 - _ROUNDING) / np.where(norms > 0, norms, 1.0)).astype(out.dtype)[:, None]
        record_norm = 1.0
        done.append("each record scaled to norm 1")
    if bias:
        out[:, width] = 1.0
        record_norm = math.hypot(record_norm, 1.0)
        done.append("a column of ones added")
    sentence = ", ".join(done) or "features as given"
    return out, sentence[0].upper() + sentence[1:] + ".", record_norm
