"""The configurations of a comparison, and that they differ in their methods alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...algorithms.registry import make_method
from ...errors import InvalidValue
from ..cli_input import absolute_data_path, read_source
from ..config import RunConfig, parse

Given = str | Path | Mapping[str, Any] | RunConfig


@dataclass(frozen=True)
class Entry:
    """One method of a comparison.

    Attributes:
        label: what it is called in tables; also the name of its runs.
        config: as given.
        family: ``server`` or ``graph``.
    """

    label: str
    config: RunConfig
    family: str

    @property
    def private(self) -> bool:
        """Whether it adds noise; a configuration without is a reference."""
        return self.config.privacy.mode != "none"


def read_entries(given: Sequence[Given]) -> list[Entry]:
    """The configurations of files, presets, tables or checked configurations, each with a label of its own.

    Raises:
        InvalidValue: fewer than two, or one that is wrong.
    """
    if len(given) < 2:
        raise InvalidValue("FILE", [str(each) for each in given], "give two or more configurations to compare")
    read = [read_one(each) for each in given]
    methods = [make_method(config.method) for _, config in read]
    labels: list[str] = []
    for (stem, _), method in zip(read, methods):
        single = sum(other.name == method.name for other in methods) == 1
        label = method.name if single or stem is None else stem
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.")[:40] or "method"
        twins = sum(other == label or other.startswith(f"{label}-") for other in labels)
        labels.append(f"{label}-{twins + 1}" if label in labels else label)
    return [Entry(label, config, method.family) for label, (_, config), method in zip(labels, read, methods)]


def read_one(given: Given) -> tuple[str | None, RunConfig]:
    if isinstance(given, RunConfig):
        return None, given
    if isinstance(given, Mapping):
        return (str(given["name"]) if "name" in given else None), parse(given)
    return Path(given).stem, parse(absolute_data_path(read_source(str(given))))


def check_alike(entries: Sequence[Entry]) -> None:
    """Refuse configurations that differ in anything but their methods.

    Those without privacy are references, and need no budget; those with a server need no graph.

    Raises:
        InvalidValue: naming the first field that differs, and in which two.
    """
    first = entries[0]
    for field in ("seed", "dtype"):
        for other in entries[1:]:
            _same(field, getattr(first.config, field), getattr(other.config, field), first, other)
    for section in ("data", "partition", "problem"):
        for other in entries[1:]:
            _same_section(section, first, other)
    graphs = [entry for entry in entries if entry.family == "graph"]
    for other in graphs[1:]:
        _same_section("topology", graphs[0], other)
    private = [entry for entry in entries if entry.private]
    for other in private[1:]:
        _same_section("privacy", private[0], other)
    if first.config.data.validation is not None:
        cure = "leave it out: a comparison reports test records, and --tune holds validation records out by itself"
        raise InvalidValue("data.validation", first.config.data.validation, cure)


def _same_section(section: str, one: Entry, other: Entry) -> None:
    a, b = (getattr(entry.config, section).model_dump(mode="json") for entry in (one, other))
    for field, value in a.items():
        _same(f"{section}.{field}", value, b[field], one, other)


def _same(field: str, value: Any, other_value: Any, one: Entry, other: Entry) -> None:
    if value != other_value:
        cure = f"is {value!r} in {one.label}; give all the same, or they cannot be compared"
        raise InvalidValue(f"{field} (of {other.label})", other_value, cure)


def for_seed(config: RunConfig, label: str, seed: int, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The tables of one run. Every seed has the same records and test records; it draws all else anew.

    ``changes`` are dotted keys and their values.
    """
    tables: dict[str, Any] = config.model_dump(mode="json", exclude={"tune", "engine"}, exclude_none=True)
    tables |= {"name": label, "seed": seed, "compare_without_privacy": False}
    if tables["data"].get("seed") is None:
        tables["data"]["seed"] = config.seed
    for key, value in (changes or {}).items():
        *parents, leaf = key.split(".")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
        table[leaf] = value
    return tables
