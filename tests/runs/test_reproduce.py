"""``dualfed reproduce spade-rate``: its files, its fit, what it says and what it refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs import reproduce
from dualfed.runs.cli import app
from typer.testing import CliRunner


def test_a_slope_is_that_of_a_power():
    x = np.array([10, 100, 1000])
    assert reproduce.slope(x, 3 * x**-0.4) == pytest.approx(-0.4)


def test_a_short_run_leaves_table_plot_and_paragraph(tmp_path):
    found = reproduce.spade_rate(tmp_path / "rate", seeds=(0, 1), budgets=(64, 512))
    table = pd.read_csv(tmp_path / "rate" / "spade-rate.csv")
    assert table["local_steps"].tolist() == [4, 8] * 2
    assert table["rounds"].tolist() == [16, 64] * 2
    assert found.rounds_slope == pytest.approx(2 / 3)
    np.testing.assert_allclose(table["residual"], table["stationarity"] + table["consensus"])
    assert {path.name for path in found.files} == {f"spade-rate.{end}" for end in ("csv", "txt", "png", "svg")}
    assert all(path.stat().st_size > 0 for path in found.files)
    words = (tmp_path / "rate" / "spade-rate.txt").read_text()
    assert f"slope {found.residual_slope:.3f}" in words
    assert "2 seeds" in words


def test_the_verdict_follows_the_margins():
    table = pd.DataFrame({"budget": [10, 100], "seed": [0, 0], "residual": [1.0, 0.5], "rounds": [5, 20]})
    assert reproduce.Rate(table, -0.30, 0.01, 0.67, []).holds
    assert not reproduce.Rate(table, -0.27, 0.01, 0.67, []).holds
    assert not reproduce.Rate(table, -0.40, 0.01, 0.70, []).holds
    assert "not as the analysis says" in reproduce.Rate(table, -0.1, 0.01, 0.67, []).paragraph()


def test_what_it_refuses(tmp_path):
    with pytest.raises(InvalidValue, match="two or more different"):
        reproduce.spade_rate(tmp_path, budgets=(100,))
    with pytest.raises(InvalidValue, match="--seeds"):
        reproduce.spade_rate(tmp_path, seeds=())
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match="cannot be made"):
        reproduce.spade_rate(tmp_path / "file" / "below", budgets=(64, 512))
    error = CliRunner().invoke(app, ["reproduce", "spade-rate", "--budgets", "many"]).exception
    assert isinstance(error, InvalidValue)
