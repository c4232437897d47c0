"""Draws a run's plots from the frames that the user gets: accuracy and objective, against rounds and against ε."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import InvalidValue
from .plots_time import time_figures
from .results import RunResult, load_result
from .statement import epsilon_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (6.4, 4.0)
_MAIN, _PLAIN, _MARKED = "#1f5fa8", "#8a8a8a", "#b3541e"
_STYLE: Any = {"svg.hashsalt": "dualfed", "svg.fonttype": "none", "font.size": 10}
_DIAGNOSTIC = "non-private diagnostic of the simulation, not a release"
_LOG_FROM = 20.0


@dataclass(frozen=True)
class _Curve:
    """One quantity: its values by round, what it is called, and whether it is a diagnostic."""

    frame: pd.DataFrame
    column: str
    label: str
    diagnostic: bool = False
    percent: bool = False

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        return np.asarray(frame[self.column], dtype=float) * (100 if self.percent else 1)


def plot(folder: Path | str) -> list[Path]:
    """Draw the plots of a run into ``FOLDER/plots``, as PNG and SVG; the files written.

    A run without noise has no plots against ε; the same run without privacy, where it is there, is drawn beside.

    Raises:
        InvalidValue: there is no run, or nothing was evaluated yet.
    """
    result = load_result(Path(folder))
    if not len(result.metrics):
        raise InvalidValue("RUN", str(folder), "has no evaluated round yet; go on with `dualfed resume`")
    twin = _twin(Path(folder))
    target = Path(folder) / "plots"
    try:
        target.mkdir(exist_ok=True)
        return [path for name, figure in _figures(result, twin).items() for path in save_figure(figure, target / name)]
    except OSError as error:
        raise InvalidValue("RUN", str(folder), f"plots cannot be written there: {error.strerror}") from None


def _figures(result: RunResult, twin: RunResult | None) -> dict[str, Figure]:
    figures = {}
    for name, curve in _curves(result).items():
        figures[f"{name}-rounds"] = _against_rounds(result, twin, curve)
        if len(_with_epsilon(result, curve)):
            figures[f"{name}-epsilon"] = _against_epsilon(result, twin, curve)
    return figures | time_figures(result)


def _curves(result: RunResult) -> dict[str, _Curve]:
    found = {}
    if "accuracy" in result.metrics:
        found["accuracy"] = _Curve(result.metrics, "accuracy", "test accuracy (%)", percent=True)
    else:
        found["loss"] = _Curve(result.metrics, "loss", "test loss")
    if "objective" in result.diagnostics:
        found["objective"] = _Curve(result.diagnostics, "objective", "objective H", diagnostic=True)
    return found


def _against_rounds(result: RunResult, twin: RunResult | None, curve: _Curve) -> Figure:
    figure, axes = _new(result, curve)
    other = None if twin is None else _frame_of(twin, curve)
    if other is not None:
        axes.plot(other["round"], curve.values(other), color=_PLAIN, linestyle="--", label="without privacy")
    axes.plot(
        curve.frame["round"],
        curve.values(curve.frame),
        color=_color(curve),
        marker=_marker(curve.frame),
        label=_run_label(result),
    )
    axes.set_xlabel("round")
    _finish(axes, curve, other is not None)
    return figure


def _against_epsilon(result: RunResult, twin: RunResult | None, curve: _Curve) -> Figure:
    figure, axes = _new(result, curve)
    frame = _with_epsilon(result, curve)
    other = None if twin is None else _frame_of(twin, curve)
    if other is not None:
        axes.axhline(curve.values(other)[-1], color=_PLAIN, linestyle="--", label="without privacy, at the end")
    spent = np.asarray(frame["epsilon_max"], dtype=float)
    axes.plot(spent, curve.values(frame), color=_color(curve), marker=_marker(frame), label=_run_label(result))
    axes.set_xlabel(
        f"{epsilon_label(str(result.summary.get('status', 'guaranteed')))} spent by the client that spent most, "
        f"at δ = {result.summary.get('delta', float('nan')):g}"
    )
    if spent[-1] > _LOG_FROM * spent[0]:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
    _finish(axes, curve, other is not None)
    return figure


def _with_epsilon(result: RunResult, curve: _Curve) -> pd.DataFrame:
    """The curve's rows with a finite, positive ε."""
    if "epsilon_max" not in result.metrics:
        return pd.DataFrame()
    spent = result.metrics[["round", "epsilon_max"]]
    values = curve.frame[["round", curve.column]].merge(spent, on="round", how="inner")
    rows: pd.DataFrame = values[np.isfinite(values["epsilon_max"]) & (values["epsilon_max"] > 0)]
    return rows


def _frame_of(twin: RunResult, curve: _Curve) -> pd.DataFrame | None:
    frame = twin.diagnostics if curve.diagnostic else twin.metrics
    return frame if curve.column in frame and len(frame) else None


def _twin(folder: Path) -> RunResult | None:
    beside = folder / "without-privacy"
    return load_result(beside) if (beside / "metrics.parquet").exists() else None


def _new(result: RunResult, curve: _Curve) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    summary = result.summary
    title = (
        f"{summary.get('method', 'run')} on {summary.get('data', 'its data')}, {summary.get('clients', '?')} clients"
    )
    axes.set_title(title, loc="left", fontsize=11, pad=18 if curve.diagnostic else 8)
    if curve.diagnostic:
        axes.text(0, 1.02, _DIAGNOSTIC, transform=axes.transAxes, fontsize=8.5, color=_MARKED, style="italic")
    return figure, axes


def _run_label(result: RunResult) -> str:
    summary = result.summary
    if summary.get("mode") == "none":
        return "no noise"
    words = "claimed, not guaranteed" if summary.get("status") == "claimed" else "guaranteed"
    return f"private, {words}"


def _finish(axes: Axes, curve: _Curve, compared: bool) -> None:
    axes.set_ylabel(curve.label)
    lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
    values = np.concatenate(lines)
    values = values[np.isfinite(values)]
    if curve.percent:
        axes.set_ylim(max(0, 5 * np.floor(values.min() / 5 - 0.5)) if len(values) else 0, None)
    elif len(values) and values.min() > 0 and values.max() > _LOG_FROM * values.min():
        axes.set_yscale("log")
    axes.grid(True, which="major", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if compared or "claimed" in str(axes.get_lines()[-1].get_label()):
        axes.legend(frameon=False)


def _plain_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _color(curve: _Curve) -> str:
    return _MARKED if curve.diagnostic else _MAIN


def _marker(frame: pd.DataFrame) -> str:
    return "o" if len(frame) <= 3 else ""


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as ``STEM.png`` and ``STEM.svg``; the same figure gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    with mpl.rc_context(_STYLE):
        FigureCanvasAgg(figure).print_figure(png, format="png", dpi=150, metadata={"Software": "dualfed"})
        FigureCanvasSVG(figure).print_figure(svg, format="svg", metadata={"Date": None, "Creator": "dualfed"})
    return [png, svg]
