"""The file that ``dualfed init`` writes: complete, valid, equal to the defaults."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
from dualfed import FedSPDDP, InvalidValue, RunConfig
from dualfed.algorithms.registry import make_method
from dualfed.runs.config import parse
from dualfed.runs.template import template, write_template
from pydantic import BaseModel


def test_it_holds_the_defaults() -> None:
    config = parse(tomllib.loads(template()))
    assert config.model_copy(update={"method": RunConfig().method}) == RunConfig()
    assert make_method(config.method) == FedSPDDP()


def test_it_names_every_field() -> None:
    text = template()
    sections: dict[str, set[str]] = {"": set()}
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            sections[name] = set(field.annotation.model_fields)
        elif name != "method":
            sections[""].add(name)
    sections["method"] = {"name", *(field.name for field in dataclasses.fields(FedSPDDP))}
    found: dict[str, set[str]] = {"": set()}
    section = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"\[([a-z]+)\]", line):
            section = match[1]
            found[section] = set()
        elif match := re.match(r"(?:# )?([a-z_0-9]+) = ", line):
            found[section].add(match[1])
    assert found == sections


def test_examples_are_valid_values() -> None:
    lines = [
        line.removeprefix("# ") if re.match(r"# [a-z_0-9]+ = ", line) else line for line in template().splitlines()
    ]
    tables = tomllib.loads("\n".join(lines))
    graph = tables.pop("topology")  # no kind of graph takes all of these
    data = tables.pop("data")  # and no source of data
    parse(tables)
    table = "label label_classes client ranges standardise categories statistics numeric categorical missing"
    hub = "repository subset revision split test_split"
    for kind, names in (
        ("csv", f"path test_path separator {table}"),
        ("parquet", f"path {table}"),
        ("image-folder", "path image_size grayscale"),
        ("hub", f"{hub} {table}"),
        ("hub", f"{hub} label image image_size grayscale"),
    ):
        given = {"name": kind, **{name: data[name] for name in names.split()}}
        parse({**tables, "data": given | ({"statistics": "private"} if "numeric" in given else {})})
    for kind, names in (("erdos-renyi", "p"), ("torus", "rows cols"), ("watts-strogatz", "degree rewire")):
        parse({**tables, "topology": {"kind": kind, **{name: graph[name] for name in names.split()}}})


def test_lines_are_short() -> None:
    assert max(len(line) for line in template().splitlines()) <= 120


def test_it_does_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("name = 'mine'")
    with pytest.raises(InvalidValue, match="already"):
        write_template(path)
    assert path.read_text() == "name = 'mine'"
    with pytest.raises(InvalidValue, match="cannot be written"):
        write_template(tmp_path / "nowhere" / "mine.toml")
