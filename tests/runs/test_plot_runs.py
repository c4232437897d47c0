"""Several runs in one figure: their names, the word of each ε, and what is refused."""

from __future__ import annotations

from dualfed import simulate
from dualfed.errors import InvalidValue
from dualfed.runs.cli import app
from typer.testing import CliRunner


def _run(folder, **method):
    tables = {
        "name": folder.name,
        "engine": "inline",
        "evaluate_every": 1,
        "data": {"name": "synthetic", "records": 200, "features": 4, "classes": 2},
        "partition": {"clients": 3},
        "problem": {"kind": "logistic"},
        "method": {"name": "fedspd-dp", "rounds": 3, "local_steps": 1, "batch_size": 10, **method},
    }
    return simulate(tables, out=folder).folder


def test_several_runs_are_drawn_together(tmp_path):
    runs = [_run(tmp_path / "first"), _run(tmp_path / "second", state="paper")]
    shown = CliRunner().invoke(app, ["plot", *map(str, runs), "--out", str(tmp_path / "plots")])
    assert shown.exit_code == 0, shown.output
    text = (tmp_path / "plots" / "runs.svg").read_text(encoding="utf-8")
    assert text.count("first (guaranteed)") == 3
    assert text.count("second (claimed)") == 3
    assert "non-private diagnostic" in text


def test_what_is_refused(tmp_path):
    run = _run(tmp_path / "first")
    for given, words in (([run, run], "different runs"), ([run, tmp_path], "holds no run")):
        error = CliRunner().invoke(app, ["plot", *map(str, given)]).exception
        assert isinstance(error, InvalidValue)
        assert words in str(error)
