"""From the columns of a table to features: numbers mapped by constants, categories to columns of zeros and ones.

The constants are public, from the configuration; only ``statistics = "private"`` lets some of them be computed from the
training records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue
from ..data_config import DataConfig, as_text, listed
from .dataset import Array, Raw
from .tables import Table, Texts

# One column of a table to its features [n, k].
_Encode = Callable[[Table], NDArray[np.float64]]


@dataclass(frozen=True)
class Encoding:
    """How a table becomes features: constants fixed, so that a record's features depend on that record alone.

    Attributes:
        parts: for each column its name, how to encode it, and the words for it.
        norm_bound: public bound on a record's norm, inf where a column has none.
        words: the sentence's beginning on what is done.
    """

    parts: tuple[tuple[str, _Encode, str], ...]
    norm_bound: float
    words: str

    def raw(self, table: Table, labels: Array) -> Raw:
        """The records of ``table`` with their features ``[n, p]``."""
        features = np.concatenate([encode(table) for _, encode, _ in self.parts], axis=1)
        return Raw(features, labels, math.inf, self.words, self.norm_bound)

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """(column, words) of every column."""
        return tuple((column, words) for column, _, words in self.parts)


def drop_missing(table: Table, config: DataConfig) -> Table:
    """``table`` without the records that lack a value in a column whose policy is ``drop``.

    Raises:
        InvalidValue: a value is missing in a column whose policy is ``refuse`` (for labels and clients also
            ``indicator``), or no record is left.
    """
    kept = np.ones(len(table.rows), dtype=bool)
    for column, cells in table.columns.items():
        policy = config.policy(column)
        absent = np.array([cell is None for cell in cells], dtype=bool)
        feature = column in config.columns
        if absent.any() and (policy == "refuse" or (policy == "indicator" and not feature)):
            words = '"drop" or "indicator"' if feature else '"drop"'
            cure = (
                f"{int(absent.sum())} of {len(absent)} records of {table.origin} have no {column}, the first is record "
                f"{table.rows[absent.argmax()]}; choose {words} for it"
            )
            raise InvalidValue(f"data.missing.{column}", policy, cure)
        if policy == "drop":
            kept &= ~absent
    if not kept.any():
        raise InvalidValue(
            "data.missing", config.missing, f"no record of {table.origin} has all its values; none is left"
        )
    return table.take(kept)


def label_codes(table: Table, config: DataConfig) -> tuple[Array, tuple[str, ...]]:
    """Labels ``[n]``, and the names of the classes where the configuration gives them.

    Without ``label_classes`` whole numbers are classes and other numbers are targets.

    Raises:
        InvalidValue: a label that is in no class, or not a number where no classes are given.
    """
    column = str(config.label)
    if config.label_classes is None:
        if (named := _not_number(table.columns[column])) is not None:
            cure = f'say what the classes are, such as data.label_classes = ["{named}", "other"]'
            raise InvalidValue(f"data column {column}", named, cure)
        numbers = table.numbers(column)
        return (numbers.astype(np.int64) if (numbers == np.rint(numbers)).all() else numbers), ()
    classes = [[as_text(value) for value in listed(values)] for values in config.label_classes]
    codes = {text: code for code, texts in enumerate(classes) for text in texts}
    return _codes(table, column, codes, "data.label_classes"), tuple(" or ".join(texts) for texts in classes)


def client_codes(table: Table, config: DataConfig) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Who holds each record ``[n]``, and the clients' names, sorted; (None, ()) without a client column.

    Raises:
        InvalidValue: two names that differ in case alone.
    """
    if config.client is None:
        return None, ()
    cells = table.columns[config.client]
    names = sorted(set(cells), key=_natural)
    folded: dict[str, str] = {}
    for name in names:
        if (other := folded.setdefault(name.casefold(), name)) != name:
            cure = f"{other!r} and {name!r} differ in case alone; if they are one client, spell it one way"
            raise InvalidValue(f"data column {config.client}", name, cure)
    return _codes(table, config.client, {name: code for code, name in enumerate(names)}, "data.client"), tuple(names)


def fit(train: Table, config: DataConfig) -> Encoding:
    """The encoding that ``config`` declares; constants that it leaves to private statistics come from ``train``."""
    parts: list[tuple[str, _Encode, str]] = []
    bounded = True
    for column, (low, high) in config.ranges.items():
        parts.append((column, _ranged(column, low, high, config), f"from {low:g}..{high:g}"))
    for column, (mean, deviation) in config.standardise.items():
        parts.append((column, _standardised(column, mean, deviation, config), f"(x − {mean:g}) / {deviation:g}"))
        bounded = False
    for column in config.numeric:
        mean, deviation = _moments(train, column)
        words = f"(x − {mean:.4g}) / {deviation:.4g}, private statistics"
        parts.append((column, _standardised(column, mean, deviation, config), words))
        bounded = False
    for column, values in config.categories.items():
        texts = [as_text(value) for value in values]
        parts.append((column, _one_hot(column, texts, config, strict=True), f"{len(texts)} categories"))
    for column in config.categorical:
        texts = sorted({cell for cell in train.columns[column] if cell is not None}, key=_natural)
        words = f"{len(texts)} categories, private statistics"
        parts.append((column, _one_hot(column, texts, config, strict=False), words))
    # Ranges, their indicators and one-hot groups each have norm at most 1.
    return Encoding(tuple(parts), math.sqrt(len(parts)) if bounded else math.inf, _sentence(config))


def _sentence(config: DataConfig) -> str:
    numeric = {
        "ranges": f"mapped from public ranges to {'-1' if config.centred else '0'}..1",
        "standardise": "standardised by public constants",
        "numeric": "standardised by private statistics of the training records",
    }
    categorical = {
        "categories": "made zeros and ones by public categories",
        "categorical": "made zeros and ones by private statistics (the values that occur in the training records)",
    }
    said = []
    for kind, words in (("numeric", numeric), ("categorical", categorical)):
        for field, done in words.items():
            if count := len(getattr(config, field)):
                said.append(f"{count} {kind} column{'' if count == 1 else 's'} {done}")
    if any(config.policy(column) == "indicator" for column in config.columns):
        said.append("missing values marked by a column of their own")
    if any(config.policy(column) == "drop" for column in [*config.columns, str(config.label)]):
        said.append("records with missing values dropped")
    return ", ".join(said)


def _ranged(column: str, low: float, high: float, config: DataConfig) -> _Encode:
    def encode(table: Table) -> NDArray[np.float64]:
        scaled = np.clip((table.numbers(column) - low) / (high - low), 0.0, 1.0)
        return _marked(2 * scaled - 1 if config.centred else scaled, config.policy(column) == "indicator")

    return encode


def _standardised(column: str, mean: float, deviation: float, config: DataConfig) -> _Encode:
    def encode(table: Table) -> NDArray[np.float64]:
        return _marked((table.numbers(column) - mean) / deviation, config.policy(column) == "indicator")

    return encode


def _marked(values: NDArray[np.float64], indicator: bool) -> NDArray[np.float64]:
    """``[n, 1]``, or ``[n, 2]`` with a column that is 1 where the value is missing (and the value then 0)."""
    if not indicator:
        return values[:, None]
    absent = np.isnan(values)
    return np.stack([np.where(absent, 0.0, values), absent.astype(np.float64)], axis=1)


def _one_hot(column: str, texts: list[str], config: DataConfig, strict: bool) -> _Encode:
    codes: dict[str | None, int] = {text: code for code, text in enumerate(texts)}
    if config.policy(column) == "indicator":
        codes[None] = len(texts)

    def encode(table: Table) -> NDArray[np.float64]:
        found = _codes(table, column, codes, f"data.categories.{column}", strict)
        out = np.zeros((len(found), len(codes)))
        known = np.flatnonzero(found >= 0)
        out[known, found[known]] = 1.0
        return out

    return encode


def _codes(table: Table, column: str, codes: Mapping[Any, int], field: str, strict: bool = True) -> NDArray[np.int64]:
    """The code of each cell ``[n]``, −1 for a value that has none unless ``strict``."""
    cells = table.columns[column]
    found = np.array([codes.get(cell, -1) for cell in cells], dtype=np.int64)
    if strict and (found < 0).any():
        position = int((found < 0).argmax())
        cure = f"does not occur there, but in column {column}, record {table.rows[position]} of {table.origin}; add it"
        raise InvalidValue(field, cells[position], cure)
    return found


def _moments(train: Table, column: str) -> tuple[float, float]:
    """Mean and deviation of the values that are there; a constant column has deviation 1."""
    values = train.numbers(column)
    known = values[~np.isnan(values)]
    if not known.size:
        raise InvalidValue(f"data column {column}", None, "no training record has a value; leave the column out")
    deviation = float(known.std())
    return float(known.mean()), deviation if deviation > 1e-12 * max(1.0, float(np.abs(known).max())) else 1.0


def _not_number(cells: Texts) -> str | None:
    for cell in cells:
        try:
            float(cell)
        except (TypeError, ValueError):
            return str(cell)
    return None


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers in their order, before texts."""
    try:
        number = float(text)
    except ValueError:
        return 1, 0.0, text
    return (0, number, text) if math.isfinite(number) else (1, 0.0, text)
