"""What a person sees of simulated time: summary, progress, plots, traces named in a file."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from dualfed.runs.cli_input import absolute_data_path, read_source
from dualfed.runs.plots import plot
from dualfed.runs.progress import LineWatcher
from dualfed.runs.simulate import simulate
from dualfed.runs.statement import seconds_text
from dualfed.runs.summary import show
from rich.console import Console


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("time") / "run"
    text = io.StringIO()
    watch = LineWatcher(Console(file=text, width=200), "run")
    config = {
        "engine": "inline",
        "data": {"name": "synthetic", "records": 400, "features": 5, "classes": 2},
        "partition": {"clients": 8},
        "method": {"name": "fedspd-dp", "rounds": 10, "participants": 4, "local_steps": 2, "batch_size": 5},
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 1.0},
        "time": {"compute": "pareto", "shape": 1.2, "target_accuracy": 0.4},
        "policy": {"kind": "over-select", "extra": 2},
    }
    return simulate(config, out=folder, listen=watch), text.getvalue()


def test_the_summary_says_how_long_and_who_came_late(run):
    result, _ = run
    text = io.StringIO()
    show(result, None, Console(file=text, width=200))
    assert "simulated time" in text.getvalue()
    assert "20 late (charged all the same)" in text.getvalue()
    assert "40 % accuracy" in text.getvalue()
    summary = json.loads((result.folder / "summary.json").read_text())
    assert summary["simulated_s"] == pytest.approx(result.metrics["simulated_s"].iloc[-1])
    assert summary["stragglers"] == {"late": 20, "void": 0, "dropped": 0, "offline": 0}
    assert summary["target"]["seconds"] == result.seconds_to(0.4)


def test_seconds_to_a_target_are_those_of_the_first_evaluation_that_reaches_it(run):
    result, _ = run
    reached = result.metrics[result.metrics["accuracy"] >= 0.4].iloc[0]
    assert result.seconds_to(0.4) == reached["simulated_s"]
    assert result.seconds_to(1.01) == np.inf


def test_progress_tells_a_kind_of_straggler_once(run):
    _, told = run
    assert told.count("too late") == 1
    assert "simulated" in told


def test_plots_of_time_are_drawn(run):
    result, _ = run
    names = {path.name for path in plot(result.folder)}
    assert {"clients-time.png", "clients-time.svg", "accuracy-time.png", "accuracy-time.svg"} <= names
    bars = (result.folder / "plots" / "clients-time.svg").read_text()
    assert "too late" in bars
    assert len(result.spans) == 60
    assert set(result.spans["outcome"]) == {"used", "late"}


def test_times_in_words():
    assert [seconds_text(s) for s in (0.0123, 12.34, 250, 9000)] == ["0.0123 s", "12.3 s", "4 min 10 s", "2 h 30 min"]


def test_traces_are_found_beside_the_file_that_names_them(tmp_path):
    (tmp_path / "run.toml").write_text('[time]\ncompute = "trace"\ntrace = "delays.csv"\nchurn_trace = "/abs/c.csv"\n')
    tables = absolute_data_path(read_source(str(tmp_path / "run.toml")))
    assert tables["time"]["trace"] == str(tmp_path / "delays.csv")
    assert tables["time"]["churn_trace"] == "/abs/c.csv"
