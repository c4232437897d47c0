"""Grids of candidates, and the choice among them by validation records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...errors import InvalidValue, RunBroken

Candidate = dict[str, Any]


def flattened(tables: Mapping[str, Any], field: str = "tune", prefix: str = "") -> dict[str, list[Any]]:
    """Nested tables of lists as dotted keys: ``{"method": {"rho": [1, 2]}}`` becomes ``{"method.rho": [1, 2]}``.

    Raises:
        InvalidValue: a value that is no list, an empty one, or one with a value twice.
    """
    found: dict[str, list[Any]] = {}
    for name, value in tables.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found |= flattened(value, field, f"{key}.")
            continue
        if not isinstance(value, list) or not value or any(value.count(each) > 1 for each in value):
            raise InvalidValue(f"{field}.{key}", value, "give a list of different values, such as [0.1, 1.0]")
        found[key] = value
    return found


def candidates(axes: Mapping[str, Sequence[Any]]) -> list[Candidate]:
    """Every combination of the axes' values, the last axis fastest."""
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def method_grid(tune: Mapping[str, Any], label: str) -> list[Candidate]:
    """The candidates of one method of a comparison.

    Raises:
        InvalidValue: none are stated, or one changes what all methods must have in common.
    """
    axes = flattened(tune)
    if not axes:
        cure = "state its candidates, such as [tune] method.rho = [0.1, 1.0]; every method needs as many"
        raise InvalidValue(f"tune (of {label})", {}, cure)
    for key in axes:
        if not key.startswith("method.") or key == "method.name":
            cure = "only a method's own parameters can be tuned; all else is the same for all methods"
            raise InvalidValue(f"tune.{key} (of {label})", axes[key], cure)
    return candidates(axes)


def check_equal_effort(grids: Mapping[str, Sequence[Candidate]]) -> None:
    """Refuse grids of different sizes. Raises InvalidValue naming both."""
    (first, size), *others = ((label, len(grid)) for label, grid in grids.items())
    for label, other in others:
        if other != size:
            cure = f"{first} has {size} candidates; give every method a grid of the same size"
            raise InvalidValue(f"tune (of {label})", f"{other} candidates", cure)


def words(candidate: Mapping[str, Any]) -> str:
    """A candidate for a table: ``rho = 0.1, gamma = 1``."""
    return ", ".join(f"{key.removeprefix('method.')} = {value}" for key, value in candidate.items())


def scored_by(rows: pd.DataFrame) -> str:
    """By which measure candidates are compared: accuracy where the problem has one, else loss."""
    return "accuracy" if rows["accuracy"].notna().any() else "loss"


def best(rows: pd.DataFrame, faults: Sequence[str], what: str) -> int:
    """The position of the best candidate among ``rows`` of one method, by the mean over its seeds; the first of equals.

    Raises:
        RunBroken: no candidate ran to its end with a finite loss.
    """
    kept = rows[np.isfinite(rows["loss"].astype(float))] if len(rows) else rows
    if not len(kept):
        raise RunBroken(
            f"no candidate of {what} ran to its end: {faults[0] if faults else 'their losses are not finite'}"
        )
    measure = scored_by(kept)
    scores = kept.groupby("candidate")[measure].mean()
    scores = scores if measure == "accuracy" else -scores
    scores = scores.sort_index()
    return int(scores.index[int(scores.to_numpy().argmax())])
