"""Frames as markdown and LaTeX."""

from __future__ import annotations

import pandas as pd
import pytest
from dualfed.runs.tables import cell, latex, markdown

_FRAME = pd.DataFrame({"name": ["a|b", "50 % & _x_"], "ε": [1.23456, float("inf")], "n": [3, 40]})


def test_markdown_keeps_its_columns():
    assert markdown(_FRAME).splitlines() == [
        "| name | ε | n |",
        "| --- | ---: | ---: |",
        r"| a\|b | 1.235 | 3 |",
        "| 50 % & _x_ | ∞ | 40 |",
    ]


def test_latex_escapes_everything():
    text = latex(_FRAME, caption="α < 1 & {x}", label="tab:x")
    assert r"50 \% \& \_x\_ & $\infty$ & 40 \\" in text
    assert r"\caption{α < 1 \& \{x\}}" in text
    assert r"\begin{tabular}{lrr}" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (float("nan"), "–"), (2.0, "2"), (0.000123456, "0.0001235"), ("x", "x"), (True, "True")],
)
def test_cells(value, shown):
    assert cell(value) == shown
