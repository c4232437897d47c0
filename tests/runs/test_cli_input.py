"""From what a person typed to tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from dualfed import InvalidValue, preset
from dualfed.runs.cli_input import absolute_data_path, parse_value, read_source, with_settings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("3.5", 3.5),
        ("1e-5", 1e-5),
        ("true", True),
        ("ray", "ray"),
        ('"ray"', "ray"),
        ("[1, 2]", [1, 2]),
        ('{value = 1.0, shape = "sqrt"}', {"value": 1.0, "shape": "sqrt"}),
        ("", ""),
        ("a=b", "a=b"),
        ("1\nseed = 2", "1\nseed = 2"),
        ("/some/where", "/some/where"),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_settings_are_put_in_and_leave_the_rest() -> None:
    tables = {"privacy": {"epsilon": 8.0, "delta": 1e-5}}
    changed = with_settings(tables, ["privacy.epsilon=3", "method.gamma.value=2", "name=mine"])
    assert changed == {
        "privacy": {"epsilon": 3, "delta": 1e-5},
        "method": {"gamma": {"value": 2}},
        "name": "mine",
    }
    assert tables == {"privacy": {"epsilon": 8.0, "delta": 1e-5}}


@pytest.mark.parametrize("setting", ["privacy.epsilon", "=3", "privacy..epsilon=3", "name.first=x"])
def test_settings_that_are_none(setting: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        with_settings({"name": "mine"}, [setting])
    assert caught.value.field == "--set"


def test_sources(tmp_path: Path) -> None:
    assert read_source("quickstart") == preset("quickstart")
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[data]\nname = "npz"\npath = "records.npz"\n')
    assert read_source(str(path))["data"]["path"] == str(tmp_path / "records.npz")


def test_sources_that_are_none(tmp_path: Path) -> None:
    for source, cure in (("nonsense", "presets are"), ("none.toml", "not a file"), (f"{tmp_path}/none", "not a file")):
        with pytest.raises(InvalidValue, match=cure):
            read_source(source)
    broken = tmp_path / "broken.toml"
    broken.write_text("name = 'x'\nseed = = 3\n")
    with pytest.raises(InvalidValue, match="line 2"):
        read_source(str(broken))
    broken.write_bytes(b"name = '\xff'\n")
    with pytest.raises(InvalidValue, match="UTF-8"):
        read_source(str(broken))


def test_data_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_data_path({"data": {"path": "x"}, "seed": 1}) == {"data": {"path": str(tmp_path / "x")}, "seed": 1}
    assert absolute_data_path({"seed": 1}) == {"seed": 1}
