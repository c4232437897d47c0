"""Presets: found, described, and valid."""

from __future__ import annotations

import pytest
from dualfed import InvalidValue, preset
from dualfed.algorithms.registry import make_method
from dualfed.runs.config import parse
from dualfed.runs.presets import DEFAULT, preset_names, preset_purpose


def test_names() -> None:
    assert {DEFAULT, "fedspd-dp", "fashion-mnist", "fashion-mnist-reference"} <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_valid_configuration(name: str) -> None:
    config = parse(preset(name))
    make_method(config.method)
    assert config.name == name
    assert preset_purpose(name).endswith(".")


def test_an_unknown_one_names_those_there_are() -> None:
    with pytest.raises(InvalidValue, match=r"presets are .*quickstart"):
        preset("quikstart")
