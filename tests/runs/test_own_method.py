"""The worked example of the docs: short, run from its file, resumed, on both engines, and conforming."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from dualfed import preset, simulate
from dualfed.algorithms.conformance import check_server_method
from dualfed.algorithms.registry import make_method, method_class, method_table
from dualfed.errors import InvalidValue
from dualfed.runs.cli import app
from dualfed.runs.cli_input import read_source
from dualfed.runs.conformance import PASSES, conformance_matrix, failures, sentences
from typer.testing import CliRunner

_DOC = Path(__file__).parents[2] / "docs" / "own-method.md"


def _example() -> str:
    return re.findall(r"```python\n(.*?)```", _DOC.read_text(encoding="utf-8"), flags=re.S)[0]


@pytest.fixture
def own(tmp_path) -> str:
    path = tmp_path / "noisy_gradient.py"
    path.write_text(_example(), encoding="utf-8")
    return f"{path}:NoisyGradient"


def _tables(own: str) -> dict:
    tables = preset("quickstart")
    method = {"name": own, "eta": 2.0, "rounds": 6}
    return {**tables, "engine": "inline", "compare_without_privacy": False, "method": method, "actors": {}}


def test_it_is_under_80_lines():
    assert len(_example().splitlines()) < 80


def test_it_passes_the_suite(own):
    check_server_method(lambda: method_class(own)(rounds=3))
    matrix = conformance_matrix([own])
    assert failures(matrix) == 0
    said = matrix.set_index("method").loc[own]
    passed = said.drop(["barrier", "neighbour", "lossy", "ray"])
    assert (passed == PASSES).all(), said


def test_without_noise_it_is_gradient_descent(own):
    tables = {**_tables(own), "privacy": {"mode": "none"}}
    losses = simulate({**tables, "method": {**tables["method"], "rounds": 40}}, keep=False).diagnostics["objective"]
    assert (losses.diff().dropna() < 0).all()
    assert losses.iloc[-1] < 0.8 * losses.iloc[0]


def test_its_noise_is_what_its_bound_asks_for(own):
    result = simulate({**_tables(own), "record_states": True}, keep=False)
    assert result.epsilon <= 8.0
    assert set(result.clients["unit"]) == {"record"}
    assert result.summary["status"] == "guaranteed"


@pytest.mark.parametrize(
    ("wrong", "right", "words"),
    [
        ("unit=self.unit, status=self.status", 'unit="client"', "for one record, and its event"),
        ("unit=self.unit, status=self.status", 'status="claimed"', "that is claimed"),
        ("GaussianEvent(unit", "PureEvent(unit", "says nothing of"),
        ("problem.gradient_bound / sizes)", 'problem.gradient_bound / sizes, noise="radial")', "adds radial noise"),
        ("GaussianEvent(unit", "SubsampledEvent(rate=0.1, unit", "releases 2 values in round 1"),
        ("GaussianEvent(unit", "PureEvent(unit", "releases 2 values in round 1"),
    ],
)
def test_a_run_refuses_an_event_that_is_not_about_what_the_method_does(wrong, right, words, tmp_path):
    """Before anything is charged: the ledger would print ε without the word claimed, for another unit, or too small."""
    text = _example().replace("import GaussianEvent", "import GaussianEvent, PureEvent, SubsampledEvent")
    assert wrong in text
    if "2 values" in words:
        noise = "radial" if "Pure" in right else "gaussian"
        text = text.replace("bound / sizes)", f'bound / sizes, parts=2, noise="{noise}")')
    (tmp_path / "wrong.py").write_text(text.replace(wrong, right), encoding="utf-8")
    for mode in ({"mode": "total", "epsilon": 3.0}, {"mode": "none"}):
        with pytest.raises(InvalidValue, match=words):
            simulate({**_tables(f"{tmp_path / 'wrong.py'}:NoisyGradient"), "privacy": mode}, keep=False)


def test_a_run_names_its_file_and_is_found_from_anywhere(own, tmp_path, monkeypatch):
    result = simulate(_tables(own), out=tmp_path / "run")
    assert result.config["method"]["name"] == own
    monkeypatch.chdir(tmp_path)
    relative = make_method({"name": "noisy_gradient.py:NoisyGradient"})
    assert method_table(relative)["name"] == own


def test_a_file_is_relative_to_the_configuration_that_names_it(own, tmp_path):
    (tmp_path / "mine.toml").write_text('[method]\nname = "noisy_gradient.py:NoisyGradient"\n')
    assert read_source(str(tmp_path / "mine.toml"))["method"]["name"] == own


def test_the_command_runs_it_and_shows_the_matrix(own, tmp_path):
    method = f'method={{name = "{own}", eta = 2.0, rounds = 3}}'
    shown = CliRunner().invoke(
        app, ["run", "quickstart", "--engine", "inline", "--set", method, "--out", str(tmp_path / "out")]
    )
    assert shown.exit_code == 0, shown.output
    assert "noisy-gradient" in shown.output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.py:M", "is not a file that exists"),
        ("nowhere_at_all:M", "cannot be imported"),
        ("json:loads", "has no class loads"),
        (":M", "my_file.py:MyMethod"),
        ("dualfed.algorithms.method:ServerMethod", "with all its parts"),
    ],
)
def test_a_place_that_is_none(name, words):
    with pytest.raises(InvalidValue, match=words):
        method_class(name)


def test_a_file_that_does_not_load(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(InvalidValue, match="does not load: ZeroDivisionError"):
        method_class(f"{tmp_path / 'broken.py'}:M")


def test_a_method_that_leaks_fails_and_the_matrix_says_where(tmp_path):
    step = "start - self.eta * weights * gradient"
    leaking = _example().replace(f"gate.release({step})", step)
    path = tmp_path / "leaks.py"
    path.write_text(leaking, encoding="utf-8")
    matrix = conformance_matrix([f"{path}:NoisyGradient"])
    said = matrix.iloc[0]
    assert said["gate"].startswith("fails: noisy-gradient: an upload depends on data")
    assert said["noise"].startswith("fails: noisy-gradient: 0 releases for 3 granted")
    assert said["charges"] == "fails: charges and grants that were used"
    assert failures(matrix) >= 3
    assert any(sentence.startswith(f"{path}:NoisyGradient, gate: fails") for sentence in sentences(matrix))


def test_an_entry_point_is_found(monkeypatch, own):
    from dualfed.algorithms import registry

    class Entry:
        name = "theirs"

        def load(self):
            return method_class(own)

    def entries(group, name="theirs"):
        return [Entry()] if (group, name) == ("dualfed.methods", "theirs") else []

    monkeypatch.setattr(registry, "entry_points", entries)
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    assert "theirs" in registry.method_names()
    assert method_class("theirs") is method_class(own)


@pytest.mark.slow
@pytest.mark.ray
def test_it_runs_in_actors(own):
    inline, ray = (simulate({**_tables(own), "engine": engine}, keep=False) for engine in ("inline", "ray"))
    np.testing.assert_allclose(inline.model, ray.model, rtol=1e-9, atol=1e-12)
