"""Several runs in the same plots: ``dualfed plot RUN RUN …``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ..errors import InvalidValue
from .plots import save_figure
from .reproductions.figures import curves, mark_diagnostic, panels
from .results import RunResult, load_result
from .study.measures import epsilon_is


def plot_runs(folders: Sequence[Path | str], out: Path | str) -> list[Path]:
    """Draw several runs together, by round and by ε, as ``OUT/runs.png`` and ``.svg``; the files written.

    Raises:
        InvalidValue: fewer than two runs, one given twice, one without an evaluation, or a folder that cannot be made.
    """
    places = [Path(folder) for folder in folders]
    if len(places) < 2 or len({place.resolve() for place in places}) < len(places):
        raise InvalidValue("RUN", [str(place) for place in places], "give two or more different runs")
    results = [load_result(place) for place in places]
    for place, result in zip(places, results):
        if not len(result.metrics) or not result.summary:
            raise InvalidValue("RUN", str(place), "has not ended yet; go on with `dualfed resume`")
    target = Path(out)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue("--out", str(target), f"this folder cannot be made: {error.strerror}") from None
    labels = _labels(places, results)
    score = "accuracy" if all("accuracy" in result.metrics for result in results) else "loss"
    metrics = _together([result.metrics for result in results], labels)
    diagnostics = _together([result.diagnostics for result in results if len(result.diagnostics)], labels)
    figure, (left, middle, right) = panels(3, f"{len(results)} runs", size=(4.4, 3.8))
    percent = score == "accuracy"
    curves(left, metrics, by="run", y=score, percent=percent, order=labels)
    spent = metrics[np.isfinite(metrics["epsilon_max"]) & (metrics["epsilon_max"] > 0)]
    shown = [label for label in labels if label in set(spent["run"])]
    if shown:
        curves(middle, spent, by="run", y=score, x="epsilon_max", percent=percent, order=shown)
    middle.set_xlabel("ε spent, largest of all clients; the legend says what it is")
    for axes in (left, middle):
        axes.set_ylabel("test accuracy (%)" if percent else "test loss")
    if "objective" in diagnostics:
        curves(
            right,
            diagnostics,
            by="run",
            y="objective",
            order=[each for each in labels if each in set(diagnostics["run"])],
        )
    mark_diagnostic(right)
    return save_figure(figure, target / "runs")


def _together(frames: Sequence[pd.DataFrame], labels: Sequence[str]) -> pd.DataFrame:
    parts = [frame.assign(run=label) for frame, label in zip(frames, labels)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _labels(places: Sequence[Path], results: Sequence[RunResult]) -> list[str]:
    """The runs' names, or their folders' where two are called the same; never without the word of their ε."""
    names = [str(result.summary["name"]) for result in results]
    if len(set(names)) < len(names):
        names = [place.name if place.name else str(place.resolve().name) for place in places]
    if len(set(names)) < len(names):
        names = [str(place) for place in places]
    return [f"{name} ({epsilon_is(result.summary)})" for name, result in zip(names, results)]
