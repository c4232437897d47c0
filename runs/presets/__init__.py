"""Configurations that come with the package, by name. The first comment of each file says what it is for."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from ...errors import InvalidValue
from ...wanted import nearest

DEFAULT = "quickstart"


def preset_names() -> list[str]:
    """The names of all presets, sorted."""
    return sorted(
        entry.name.removesuffix(".toml") for entry in files(__name__).iterdir() if entry.name.endswith(".toml")
    )


def preset_text(name: str) -> str:
    """The file of a preset. Raises InvalidValue naming the ones there are."""
    if name not in preset_names():
        near = nearest(name, preset_names())
        meant = "" if near is None else f"did you mean {near}? "
        cure = f"is neither a preset nor a file; {meant}presets are {', '.join(preset_names())}"
        raise InvalidValue("PRESET", name, cure)
    return (files(__name__) / f"{name}.toml").read_text(encoding="utf-8")


def preset(name: str) -> dict[str, Any]:
    """The tables of a preset, for ``simulate``. Raises InvalidValue naming the ones there are."""
    return tomllib.loads(preset_text(name))


def preset_purpose(name: str) -> str:
    """What a preset is for, in one line."""
    first = preset_text(name).splitlines()[0]
    return first.lstrip("# ") if first.startswith("#") else ""
