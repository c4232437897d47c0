"""The file that ``dualfed init --method spade-dfl`` writes: complete, with the method's defaults, and it runs."""

from __future__ import annotations

import dataclasses
import re
import tomllib

import pytest
from dualfed.algorithms.registry import make_method
from dualfed.algorithms.spade_dfl import SPADEDFL
from dualfed.errors import InvalidValue
from dualfed.runs.simulate import simulate
from dualfed.runs.template import template, write_template
from dualfed.runs.template_spade import SPADE


def test_it_names_every_field_with_its_default():
    assert set(SPADE) == {"name", *(field.name for field in dataclasses.fields(SPADEDFL))}
    given = tomllib.loads(template("spade-dfl"))["method"]
    assert make_method(given) == SPADEDFL(clip=1.0)


def test_its_examples_are_valid_values():
    lines = template("spade-dfl").splitlines()
    tables = tomllib.loads("\n".join(re.sub(r"^# ([a-z_0-9]+ = )", r"\1", line) for line in lines))
    assert make_method({**tables["method"], "schedule": "rate"}).rounds > 0


def test_it_runs_as_it_is():
    given = tomllib.loads(template("spade-dfl"))
    shorter = {**given, "engine": "inline", "method": {**given["method"], "local_steps": 5, "rounds": 2}}
    assert simulate(shorter, keep=False).ending == "completed"


def test_lines_are_short():
    assert max(len(line) for line in template("spade-dfl").splitlines()) <= 120


def test_a_method_without_words_is_refused_before_a_file_is_made(tmp_path):
    with pytest.raises(InvalidValue, match="give one of fedspd-dp, spade-dfl"):
        write_template(tmp_path / "mine.toml", "mine")
    assert not (tmp_path / "mine.toml").exists()
