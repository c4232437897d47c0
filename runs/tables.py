"""Data frames as markdown and LaTeX tables."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "τ": r"$\tau$",
    "ρ": r"$\rho$",
    "∞": r"$\infty$",
    "−": r"$-$",
    "–": "--",
    "…": r"\ldots{}",
}


def cell(value: Any) -> str:
    """A value for a table: four significant digits, whole numbers as they are, – for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float) or hasattr(value, "dtype"):
        number = float(value)
        if math.isnan(number):
            return "–"
        if math.isinf(number):
            return "∞" if number > 0 else "−∞"
        return f"{number:.0f}" if number == round(number) and abs(number) < 1e15 else f"{number:.4g}"
    return str(value)


def markdown(frame: pd.DataFrame) -> str:
    """A pipe table, ending in a newline; numbers are set to the right."""
    names = [str(name) for name in frame.columns]
    right = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns]
    lines = [_piped(names), _piped(["---:" if number else "---" for number in right])]
    lines += [_piped([cell(value) for value in row]) for row in frame.itertuples(index=False)]
    return "\n".join(lines) + "\n"


def aligned(frame: pd.DataFrame) -> str:
    """Columns of text under their names, ending in a newline."""
    body = [[cell(value) for value in row] for row in frame.itertuples(index=False)]
    rows = [[str(name) for name in frame.columns], *body]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows) + "\n"


def latex(frame: pd.DataFrame, caption: str = "", label: str = "") -> str:
    """A table with rules of the package booktabs, everything escaped."""
    right = "".join("r" if pd.api.types.is_numeric_dtype(frame[name]) else "l" for name in frame.columns)
    lines = [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{escaped(caption)}}}"] if caption else []
    lines += [rf"\label{{{label}}}"] if label else []
    lines += [rf"\begin{{tabular}}{{{right}}}", r"\toprule", _row([str(name) for name in frame.columns]), r"\midrule"]
    lines += [_row([cell(value) for value in row]) for row in frame.itertuples(index=False)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def escaped(text: str) -> str:
    """Text for LaTeX: special characters and the Greek of this project."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _row(cells: list[str]) -> str:
    return " & ".join(escaped(each) for each in cells) + r" \\"


def _piped(cells: list[str]) -> str:
    return "| " + " | ".join(each.replace("|", r"\|").replace("\n", " ") for each in cells) + " |"
