"""``sweep``: every combination once, scored by held-out records, by worker processes and by Ray Tune alike."""

from __future__ import annotations

import pandas as pd
import pytest
from dualfed import sweep
from dualfed.errors import InvalidValue
from dualfed.runs.cli import app
from dualfed.runs.comparison.sweeping import read_grid
from typer.testing import CliRunner


def test_every_combination_is_run_and_the_best_is_that_of_the_held_out_records(tmp_path, one):
    found = sweep(one, {"method.rho": [0.1, 1.0], "method.gamma": [1.0, 4.0]}, seeds=2, out=tmp_path)
    assert len(found.table) == 4
    assert len(found.runs) == 8
    means = found.runs.groupby("candidate")["accuracy"].mean()
    assert found.table["validation_accuracy"].tolist() == pytest.approx(means.tolist())
    chosen = found.table[found.table["best"] == "best"].iloc[0]
    assert chosen["validation_accuracy"] == means.max()
    assert found.best == {"method.rho": chosen["method.rho"], "method.gamma": chosen["method.gamma"]}
    text = (tmp_path / "sweep.md").read_text()
    assert "Tuning used the private data; its cost is not in ε." in text
    assert "(guaranteed)" in text
    assert {path.name for path in found.files} == {
        "sweep-runs.csv", "sweep.csv", "sweep.md", "sweep.png", "sweep.svg", "report.html",
    }  # fmt: skip


def test_words_as_values_and_a_candidate_that_is_refused(tmp_path, one):
    found = sweep(one, {"method.state": ["released", "paper"], "method.batch_size": [10, 5000]}, out=tmp_path)
    assert len(found.table) == 2
    assert len(found.faults) == 2
    assert set(found.table["method.state"]) == {"released", "paper"}
    assert any("(claimed)" in words for words in found.table["epsilon"])


def test_a_grid_is_read_as_toml_values():
    assert read_grid(["method.rho=0.1, 1,10", "method.state=released,paper"]) == {
        "method.rho": [0.1, 1, 10],
        "method.state": ["released", "paper"],
    }
    for given in (["method.rho"], ["=1"], ["method.rho="], ["a=1", "a=2"], ["a=1,1"]):
        with pytest.raises(InvalidValue):
            read_grid(given)


def test_what_is_refused(tmp_path, one):
    for grid in ({}, {"seed": [1, 2]}, {"data.validation": [0.1]}, {"method.rho": []}):
        with pytest.raises(InvalidValue, match="grid"):
            sweep(one, grid, out=tmp_path)
    with pytest.raises(InvalidValue, match=r"method\.nothing"):
        sweep(one, {"method.nothing": [1]}, out=tmp_path)


def test_a_missing_ray_tune_is_named_or_done_without(tmp_path, one, monkeypatch):
    import tomlkit
    from dualfed.actors import trials

    monkeypatch.setattr(trials, "missing", lambda: ["fsspec"])
    with pytest.raises(InvalidValue, match=r"needs fsspec: pip install 'dualfed\[tune\]'"):
        sweep(one, {"method.rho": [0.1]}, engine="ray", out=tmp_path / "a")
    path = tmp_path / "one.toml"
    path.write_text(tomlkit.dumps(one))
    shown = CliRunner().invoke(
        app, ["sweep", str(path), "--grid", "method.rho=0.1,1", "--jobs", "1", "--out", str(tmp_path / "b")]
    )
    assert shown.exit_code == 0, shown.output
    assert "taking worker processes instead" in shown.output


@pytest.mark.slow
@pytest.mark.ray
def test_ray_tune_gives_the_same_table(tmp_path, one):
    grid = {"method.rho": [0.1, 1.0]}
    inline = sweep(one, grid, out=tmp_path / "inline")
    by_tune = sweep(one, grid, engine="ray", jobs=2, out=tmp_path / "tune")
    pd.testing.assert_frame_equal(
        inline.table.drop(columns="seconds"), by_tune.table.drop(columns="seconds"), check_exact=True
    )
    assert sorted(path.name for path in (tmp_path / "tune" / "runs").iterdir()) == sorted(
        path.name for path in (tmp_path / "inline" / "runs").iterdir()
    )
