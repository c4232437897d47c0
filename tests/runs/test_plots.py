"""Plots: which are drawn, what they say, and that they are images."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dualfed import InvalidValue, plot
from safetensors.numpy import save_file

PNG = b"\x89PNG\r\n\x1a\n"


def write_run(folder: Path, status: str = "guaranteed", mode: str = "total", accuracy: bool = True) -> Path:
    """The files of a small run that was never run."""
    folder.mkdir(parents=True)
    rounds = np.arange(0, 21, 5)
    spent = np.full(5, math.inf) if mode == "none" else np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    metrics = pd.DataFrame({"round": rounds, "loss": np.linspace(2.3, 1.0, 5), "epsilon_max": spent})
    if accuracy:
        metrics["accuracy"] = np.linspace(0.1, 0.7, 5)
    metrics.to_parquet(folder / "metrics.parquet")
    diagnostics = pd.DataFrame({"round": rounds, "objective": np.geomspace(100, 1, 5), "consensus": np.ones(5)})
    diagnostics.to_parquet(folder / "diagnostics.parquet")
    summary: dict[str, Any] = {
        "ending": "completed",
        "status": status,
        "mode": mode,
        "method": "fedspd-dp",
        "data": "digits",
        "clients": 12,
        "delta": 1e-5,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "config.toml").write_text('name = "made-up"\n')
    save_file({"x0": np.zeros(3)}, folder / "model.safetensors")
    return folder


def test_all_of_a_private_run(tmp_path: Path) -> None:
    written = plot(write_run(tmp_path / "run"))
    names = {"accuracy-rounds", "accuracy-epsilon", "objective-rounds", "objective-epsilon"}
    assert {path.name for path in written} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    for path in written:
        content = path.read_bytes()
        assert content.startswith(PNG) if path.suffix == ".png" else b"<svg" in content


def test_objectives_are_marked_as_diagnostics(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    plot(folder)
    for name in ("objective-rounds", "objective-epsilon"):
        assert "non-private diagnostic" in (folder / "plots" / f"{name}.svg").read_text()
    assert "non-private diagnostic" not in (folder / "plots" / "accuracy-rounds.svg").read_text()


def test_claimed_runs_say_so_wherever_an_epsilon_stands(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", status="claimed")
    plot(folder)
    for name in ("accuracy-epsilon", "objective-epsilon"):
        assert "ε (claimed)" in (folder / "plots" / f"{name}.svg").read_text()
    guaranteed = write_run(tmp_path / "other")
    plot(guaranteed)
    assert "claimed" not in (guaranteed / "plots" / "accuracy-epsilon.svg").read_text()


def test_no_epsilon_plot_without_noise(tmp_path: Path) -> None:
    written = plot(write_run(tmp_path / "run", mode="none"))
    assert {path.stem for path in written} == {"accuracy-rounds", "objective-rounds"}


def test_a_problem_without_accuracy_shows_its_loss(tmp_path: Path) -> None:
    written = plot(write_run(tmp_path / "run", accuracy=False))
    assert {path.stem for path in written} == {"loss-rounds", "loss-epsilon", "objective-rounds", "objective-epsilon"}


def test_the_run_without_privacy_is_drawn_beside(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    write_run(folder / "without-privacy", mode="none")
    plot(folder)
    assert "without privacy" in (folder / "plots" / "accuracy-rounds.svg").read_text()


def test_the_same_frames_give_the_same_files(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    first = [path.read_bytes() for path in plot(folder)]
    assert [path.read_bytes() for path in plot(folder)] == first


def test_no_run_and_no_rounds(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="holds no run"):
        plot(tmp_path)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(InvalidValue, match="no evaluated round"):
        plot(tmp_path)
