"""The tables and the plot of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..plots import save_figure
from ..reproductions.figures import COLORS, MARKS, curves, panels
from ..statement import epsilon_number
from ..tables import latex, markdown
from .grid import scored_by
from .statistics import interval_half

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .comparison import Comparison


def write(found: Comparison) -> list[Path]:
    """Write tables, plot and page into the comparison's folder; the files."""
    from ..report.comparison import comparison_page

    folder = found.folder
    files = []
    for name, frame in (
        ("compare", found.runs.drop(columns="folder")),
        ("compare-methods", found.methods),
        ("compare-differences", found.differences),
        ("compare-tuning", found.tuning),
    ):
        if len(frame):
            frame.to_csv(folder / f"{name}.csv", index=False)
            files.append(folder / f"{name}.csv")
    shown, notes = methods_shown(found), [*found.notes, *found.faults]
    text = markdown(shown)
    if len(found.differences):
        text += "\n" + markdown(differences_shown(found))
    if len(found.tuning):
        text += "\n" + markdown(tuning_shown(found))
    page, tex = folder / "compare.md", folder / "compare.tex"
    page.write_text(text + "\n" + "\n".join(f"* {note}" for note in notes) + "\n", encoding="utf-8")
    tex.write_text(latex(shown, caption=" ".join(notes), label="tab:compare"), encoding="utf-8")
    figures = save_figure(figure(found), folder / "compare")
    return [*files, page, tex, *figures, comparison_page(found, figures)]


def methods_shown(found: Comparison) -> pd.DataFrame:
    """The table of methods for reading: mean ± deviation, and an ε that is never without its word."""
    rows = []
    for row in found.methods.to_dict("records"):
        shown = {"method": row["method"]}
        if "tuned" in row:
            shown["tuned"] = row["tuned"]
        if np.isfinite(row["accuracy"]):
            shown["accuracy (%)"] = _spread(100 * row["accuracy"], 100 * row["accuracy_deviation"], 1)
        shown |= {
            "test loss": _spread(row["loss"], row["loss_deviation"], 4),
            "objective (not private)": _spread(row["objective"], row["objective_deviation"], 4),
            "ε": epsilon_with_word(row["epsilon"], row["epsilon_is"]),
            "δ": "–" if row["epsilon_is"] == "no noise" else f"{row['delta']:g}",
            "protects": "–" if row["epsilon_is"] == "no noise" else f"one {row['unit']}",
            "rounds": f"{row['rounds_done']:.0f}",
            "scalars sent": f"{row['scalars_sent']:,.0f}",
            "seconds": f"{row['seconds']:.1f}",
            "seeds": f"{row['seeds']}",
        }
        rows.append(shown)
    return pd.DataFrame(rows)


def epsilon_with_word(epsilon: float, word: str) -> str:
    """``3.00 (guaranteed)``, ``3.00 (claimed)``, ``∞ (no noise)``."""
    return f"{epsilon_number(epsilon)} ({word})"


def differences_shown(found: Comparison) -> pd.DataFrame:
    """The paired differences for reading."""
    rows = []
    for row in found.differences.to_dict("records"):
        scale, digits = (100, 2) if row["measure"] == "accuracy" else (1, 5)
        low, high = (f"{scale * row[side]:+.{digits}f}" for side in ("low", "high"))
        rows.append(
            {
                "measure": "accuracy (points)" if row["measure"] == "accuracy" else row["measure"],
                "difference": f"{row['method']} less {row['less']}",
                "mean": f"{scale * row['difference']:+.{digits}f}",
                f"{100 * found.level:g} % interval": f"{low} to {high}" if row["seeds"] > 1 else "–",
                "leaves out 0": ("yes" if row["separate"] else "no") if row["seeds"] > 1 else "–",
                "seeds": f"{row['seeds']}",
            }
        )
    return pd.DataFrame(rows)


def tuning_shown(found: Comparison) -> pd.DataFrame:
    """The candidates and their validation scores for reading."""
    measure = "validation_accuracy" if found.tuning["validation_accuracy"].notna().any() else "validation_loss"
    words = "validation accuracy (%)" if measure.endswith("accuracy") else "validation loss"
    scale, digits = (100, 1) if measure.endswith("accuracy") else (1, 4)
    return pd.DataFrame(
        {
            "method": found.tuning["method"],
            "candidate": found.tuning["parameters"],
            words: [f"{scale * value:.{digits}f}" for value in found.tuning[measure]],
            "chosen": ["chosen" if chosen else "" for chosen in found.tuning["chosen"]],
        }
    )


def figure(found: Comparison) -> Figure:
    """Left: the score against rounds, mean and range over seeds. Right: the score at the end with its interval."""
    measure = scored_by(found.runs)
    percent = measure == "accuracy"
    score = "test accuracy (%)" if percent else "test loss"
    shown, (left, right) = panels(2, f"{len(found.methods)} methods, {found.methods['seeds'].max()} seeds")
    labels = list(found.methods["method"])
    curves(left, found.curves, by="method", y=measure, percent=percent, order=labels)
    left.set_ylabel(score)
    scale = 100 if percent else 1
    for position, row in enumerate(found.methods.to_dict("records")):
        half = interval_half(row[f"{measure}_deviation"], row["seeds"], found.level)
        right.errorbar(
            scale * row[measure],
            -position,
            xerr=None if np.isnan(half) else scale * half,
            fmt=MARKS[position % len(MARKS)],
            color=COLORS[position % len(COLORS)],
            capsize=4,
        )
    names = [
        f"{row['method']}\nε {epsilon_with_word(row['epsilon'], row['epsilon_is'])}"
        for row in found.methods.to_dict("records")
    ]
    right.set_yticks([-position for position in range(len(labels))], names, fontsize=8.5)
    right.set_ylim(-len(labels) + 0.4, 0.6)
    right.set_xlabel(f"{score}, mean and {100 * found.level:g} % interval")
    return shown


def _spread(mean: float, deviation: float, digits: int) -> str:
    if np.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}" + ("" if np.isnan(deviation) else f" ± {deviation:.{digits}f}")
