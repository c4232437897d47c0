"""Panels and curves in one manner for all reproductions and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that stay apart for the colour-blind (Okabe and Ito 2008), and marks besides.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#666666")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DIAGNOSTIC = "non-private diagnostic of the simulation"


def panels(
    columns: int, title: str, rows: int = 1, size: tuple[float, float] = (4.6, 3.6)
) -> tuple[Figure, list[Axes]]:
    """A figure of ``rows`` × ``columns`` panels of ``size`` inches each, its panels row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(size[0] * columns, 6.4), size[1] * rows + 0.3), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    found = np.atleast_1d(figure.subplots(rows, columns)).ravel().tolist()
    for axes in found:
        axes.grid(True, which="major", color="#e3e3e3", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, found


def curves(
    axes: Axes,
    frame: pd.DataFrame,
    *,
    by: str,
    y: str,
    x: str = "round",
    label: str = "{}",
    percent: bool = False,
    order: Sequence[Any] | None = None,
) -> None:
    """One line for each value of ``by``: the mean over the rows with the same ``x``, and a band from least to most.

    ``label`` is a format for the value of ``by``. Rows whose ``y`` is NaN are left out.
    """
    scale = 100.0 if percent else 1.0
    kept = frame[np.isfinite(frame[y].astype(float))]
    values = list(dict.fromkeys(kept[by])) if order is None else list(order)
    for position, value in enumerate(values):
        part = kept[kept[by] == value].groupby(x)[y].agg(["mean", "min", "max"]) * scale
        color = COLORS[position % len(COLORS)]
        marker = MARKS[position % len(MARKS)] if len(part) <= 12 else ""
        axes.plot(part.index, part["mean"], color=color, marker=marker, markersize=4, label=label.format(value))
        if (part["max"] > part["min"]).any():
            axes.fill_between(part.index, part["min"], part["max"], color=color, alpha=0.15, linewidth=0)
    axes.set_xlabel(x)
    axes.set_ylabel(f"{y} (%)" if percent else y)
    axes.legend(frameon=False, fontsize=8.5)


def mark_diagnostic(axes: Axes) -> None:
    """Say on a panel that what it shows was computed from private data and is no release."""
    axes.set_title(_DIAGNOSTIC, loc="left", fontsize=8.5, color="#b3541e", style="italic")
