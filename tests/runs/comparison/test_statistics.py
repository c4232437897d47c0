"""Paired differences against scipy's own paired test."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from dualfed.runs.comparison import paired_differences
from dualfed.runs.comparison.statistics import interval_half
from scipy import stats


def _rows(a, b):
    return pd.DataFrame(
        {
            "method": ["a"] * len(a) + ["b"] * len(b),
            "seed": [*range(len(a)), *range(len(b))],
            "accuracy": [*a, *b],
        }
    )


def test_the_interval_is_that_of_scipy():
    draw = np.random.Generator(np.random.Philox(7))
    a, b = draw.normal(0.8, 0.05, 6), draw.normal(0.75, 0.05, 6)
    (row,) = paired_differences(_rows(a, b), "accuracy", ["a", "b"]).to_dict("records")
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert row["difference"] == pytest.approx((a - b).mean())
    assert row["separate"] == (stats.ttest_rel(a, b).pvalue < 0.05)


def test_only_seeds_that_both_have_count():
    (row,) = paired_differences(_rows([0.8, 0.9, 0.7], [0.7, 0.7]), "accuracy", ["a", "b"]).to_dict("records")
    assert row["seeds"] == 2
    assert row["difference"] == pytest.approx(0.15)


def test_one_seed_has_no_interval():
    (row,) = paired_differences(_rows([0.8], [0.7]), "accuracy", ["a", "b"]).to_dict("records")
    assert np.isnan(row["low"])
    assert not row["separate"]
    assert np.isnan(interval_half(float("nan"), 1))


def test_the_level_is_kept_by_repetition():
    draw = np.random.Generator(np.random.Philox(3))
    covered = 0
    for _ in range(400):
        a = draw.normal(0.1, 1, 4)
        half = interval_half(a.std(ddof=1), 4, 0.9)
        covered += abs(a.mean() - 0.1) <= half
    assert 0.85 < covered / 400 < 0.95
