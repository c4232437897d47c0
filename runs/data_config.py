"""The ``[data]`` and ``[partition]`` tables: which records, what is done to them, and who holds them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from ..errors import InvalidValue
from ..section import Section

Value = str | int | float | bool
Policy = Literal["refuse", "drop", "indicator"]
Source = Literal["digits", "breast-cancer", "synthetic", "idx", "npz", "csv", "parquet", "image-folder", "hub"]

_TABLE = frozenset(
    {
        "label",
        "label_classes",
        "client",
        "numeric",
        "categorical",
        "ranges",
        "centred",
        "standardise",
        "categories",
        "statistics",
        "missing",
        "missing_values",
    }
)
_IMAGES = frozenset({"image_size", "grayscale"})
_HUB = frozenset({"repository", "subset", "revision", "split", "test_split", "image"})
# The fields that some sources alone take.
_USES: dict[str, frozenset[str]] = {
    "digits": frozenset(),
    "breast-cancer": frozenset(),
    "synthetic": frozenset({"records", "features", "classes", "spread"}),
    "idx": frozenset({"path"}),
    "npz": frozenset({"path"}),
    "csv": _TABLE | {"path", "test_path", "separator"},
    "parquet": _TABLE | {"path", "test_path"},
    "image-folder": _IMAGES | {"path"},
    "hub": _TABLE | _IMAGES | _HUB,
}
# "synthetic" came first; its fields are let pass elsewhere.
_OWN = frozenset().union(*_USES.values()) - _USES["synthetic"]


class DataConfig(Section):
    """Which records, and what is done to their features. Nothing private is computed unless ``statistics`` says so.

    Args:
        name: the source.
        path, test_path: files or folder; ``test_path`` is relative to the folder that holds ``path``.
        test_fraction: share held out where the source has no test part.
        label, label_classes: column of the labels, and the value (or values) of each class, in order.
        client: column that names who holds the record.
        ranges, standardise: numeric columns with their public least and most value, or mean and deviation.
        categories: categorical columns with their public values; each becomes a column of zeros and ones.
        numeric, categorical: further columns, whose constants are computed from the training records; needs
            ``statistics = "private"``.
        centred: ranges are mapped to −1..1, not to 0..1.
        missing: what happens to a record without a value: one word, or a table with a word for each column that is
            not to ``refuse``.
        missing_values: texts that mean "no value".
        image_size: height and width in pixels.
        feature_map, features_out, feature_seed, bandwidth, scattering_scale: a public map of the features; see
            `dualfed.runs.data.maps`.
        seed: keys the split and synthetic records, in place of the run's seed.
        validation: share of each client's records that it does not train on, evaluated on in place of the test records.
    """

    name: Source = "digits"
    path: Path | None = None
    test_path: Path | None = None
    test_fraction: float = Field(0.2, gt=0, lt=1)
    scale: Literal["unit", "none"] = "unit"
    bias: bool = True
    records: int = Field(2000, gt=1, le=10**9)
    features: int = Field(20, gt=0, le=10**6)
    classes: int = Field(2, gt=1, le=10**6)
    spread: float = Field(1.0, gt=0, allow_inf_nan=False)
    label: str | None = None
    label_classes: list[Value | list[Value]] | None = Field(None, min_length=2)
    client: str | None = None
    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    centred: bool = False
    standardise: dict[str, tuple[float, float]] = Field(default_factory=dict)
    categories: dict[str, list[Value]] = Field(default_factory=dict)
    statistics: Literal["public", "private"] = "public"
    numeric: list[str] = Field(default_factory=list)
    categorical: list[str] = Field(default_factory=list)
    missing: Policy | dict[str, Policy] = Field(
        "refuse", description='"refuse", "drop" or "indicator", or a table with one of these words for each column'
    )
    missing_values: list[str] = Field(default_factory=lambda: ["", "NA", "NaN", "nan", "null"])
    separator: str = Field(",", min_length=1, max_length=1, description="one character in quotes")
    image_size: tuple[int, int] | None = None
    grayscale: bool = False
    repository: str | None = None
    subset: str | None = None
    revision: str | None = None
    split: str = "train"
    test_split: str | None = None
    image: str | None = None
    feature_map: Literal["none", "random-projection", "random-fourier", "dct", "scattering"] = "none"
    features_out: int | None = Field(None, gt=0, le=10**6)
    feature_seed: int = Field(0, ge=0, lt=2**62)
    bandwidth: float = Field(1.0, gt=0, allow_inf_nan=False)
    scattering_scale: int = Field(2, gt=0, le=8)
    seed: int | None = Field(None, ge=0, lt=2**62)
    validation: float | None = Field(None, gt=0, lt=1)

    @property
    def columns(self) -> list[str]:
        """The columns that become features, in order: numeric ones first."""
        numbers = [*self.ranges, *self.standardise, *self.numeric]
        return [*numbers, *self.categories, *self.categorical]

    def policy(self, column: str) -> Policy:
        """What happens to a record without a value in this column."""
        return self.missing.get(column, "refuse") if isinstance(self.missing, dict) else self.missing

    @model_validator(mode="after")
    def _checked(self) -> DataConfig:
        _only_used(self)
        if "path" in _USES[self.name] and self.path is None:
            raise InvalidValue("data.path", None, f"data.name = {self.name!r} needs the path of its files")
        if self.name == "hub" and self.repository is None:
            raise InvalidValue("data.repository", None, 'data.name = "hub" needs a data set such as "ylecun/mnist"')
        if self.image_size is not None and min(self.image_size) < 1:
            raise InvalidValue("data.image_size", self.image_size, "give height and width in pixels, 1 or more")
        if self.name in ("csv", "parquet") or (self.name == "hub" and self.image is None):
            _check_table(self)
        elif self.name == "hub" and self.label is None:
            raise InvalidValue("data.label", None, "name the column that holds the labels")
        if self.feature_map in ("random-projection", "random-fourier", "dct") and self.features_out is None:
            cure = f"data.feature_map = {self.feature_map!r} needs the number of features to make"
            raise InvalidValue("data.features_out", None, cure)
        if self.feature_map == "none" and self.features_out is not None:
            raise InvalidValue("data.features_out", self.features_out, "leave it out, or choose a data.feature_map")
        return self


class PartitionConfig(Section):
    """Who holds which record.

    Args:
        scheme: see `dualfed.runs.partition.partition`.
        clients: N; left out, 16, or for ``column`` as many as the data have.
        alpha: of the Dirichlet distribution of ``dirichlet`` and ``quantity``.
        classes_per_client: of ``pathological``.
        min_size: the fewest training records of any client.
        drop_small: ``column`` only: leave out clients below ``min_size``, with their records.
    """

    scheme: Literal["iid", "dirichlet", "pathological", "quantity", "column"] = "iid"
    clients: int | None = Field(None, gt=0)
    alpha: float = Field(1.0, gt=0)
    classes_per_client: int = Field(2, gt=0)
    min_size: int = Field(1, gt=0)
    drop_small: bool = False

    @model_validator(mode="before")
    @classmethod
    def _usual_number(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("scheme") != "column" and values.get("clients") is None:
            return {**values, "clients": 16}
        return values

    @model_validator(mode="after")
    def _checked(self) -> PartitionConfig:
        if self.drop_small and self.scheme != "column":
            cure = f'leave it out: only partition.scheme = "column" drops clients, {self.scheme!r} fills them up'
            raise InvalidValue("partition.drop_small", True, cure)
        return self


def _only_used(config: DataConfig) -> None:
    for field in sorted(_OWN - _USES[config.name]):
        value, info = getattr(config, field), DataConfig.model_fields[field]
        if value != info.get_default(call_default_factory=True):
            sources = ", ".join(source for source, used in _USES.items() if field in used)
            shown = str(value) if isinstance(value, Path) else value
            raise InvalidValue(
                f"data.{field}", shown, f"leave it out: data.name = {config.name!r}, it is for {sources}"
            )


def _check_table(config: DataConfig) -> None:
    if config.label is None:
        raise InvalidValue("data.label", None, "name the column that holds the labels")
    if not config.columns:
        cure = "name the columns to learn from, in data.ranges, data.standardise or data.categories"
        raise InvalidValue("data.ranges", {}, cure)
    if (twice := _repeated([*config.columns, config.label])) is not None:
        raise InvalidValue("data", twice, "this column is named twice; say once what it is")
    if config.client in config.columns:
        raise InvalidValue("data.client", config.client, "is a feature too; take it out of one of the two")
    for column, (low, high) in config.ranges.items():
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidValue(f"data.ranges.{column}", [low, high], "give the least value, then a larger most value")
    for column, (mean, deviation) in config.standardise.items():
        if not (math.isfinite(mean) and math.isfinite(deviation) and deviation > 0):
            raise InvalidValue(f"data.standardise.{column}", [mean, deviation], "give a mean and a deviation above 0")
    for column, values in config.categories.items():
        texts = [as_text(value) for value in values]
        if not texts or _repeated(texts) is not None:
            raise InvalidValue(f"data.categories.{column}", values, "give each of its values once")
    for field in ("numeric", "categorical"):
        if (given := getattr(config, field)) and config.statistics == "public":
            constants = "ranges or data.standardise" if field == "numeric" else "categories"
            cure = f'has no public constants; give them in data.{constants}, or allow data.statistics = "private"'
            raise InvalidValue(f"data.{field}", given[0], cure)
    if config.label_classes is not None:
        texts = [as_text(value) for values in config.label_classes for value in listed(values)]
        if (again := _repeated(texts)) is not None:
            raise InvalidValue("data.label_classes", again, "names two classes with it; give each value once")
    _check_missing(config)


def _check_missing(config: DataConfig) -> None:
    if not isinstance(config.missing, dict):
        return
    known = [*config.columns, config.label, *([] if config.client is None else [config.client])]
    for column, policy in config.missing.items():
        if column not in known:
            raise InvalidValue(f"data.missing.{column}", policy, "no such column is used; take the line out")
        if policy == "indicator" and column in (config.label, config.client):
            raise InvalidValue(
                f"data.missing.{column}", policy, 'a label or client cannot be missing; "drop" or "refuse"'
            )


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def listed(value: Value | list[Value]) -> list[Value]:
    """The values of one class: a list of one where there is one."""
    return value if isinstance(value, list) else [value]


def as_text(value: Any) -> str:
    """A cell or a configured value as the text that the two are compared by: ``3``, ``3.0`` and ``"3.0"`` are one."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value).strip()
    whole, point, decimals = text.partition(".")
    if point and decimals and not decimals.strip("0") and whole.removeprefix("-").isdigit():
        return whole
    return text.lower() if text.lower() in ("true", "false") else text
