"""Means over seeds, and differences between methods on the same seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pandas as pd

from ..study.results import mean_and_deviation

LEVEL = 0.95


def paired_differences(rows: pd.DataFrame, measure: str, methods: Sequence[str], level: float = LEVEL) -> pd.DataFrame:
    """``measure`` of one method less that of another, on the seeds that both have.

    Args:
        rows: columns ``method``, ``seed`` and ``measure``.
        level: of Student's t interval for the mean difference, with n − 1 degrees of freedom; not adjusted for the
            number of pairs. With one seed there is none (NaN).

    Returns:
        one row a pair: measure, method, less, seeds, difference, deviation, low, high, separate (whether the interval
        leaves out 0).
    """
    found = []
    values = rows.pivot_table(index="seed", columns="method", values=measure)
    for one, other in itertools.combinations([name for name in methods if name in values], 2):
        gaps = (values[one] - values[other]).dropna().to_numpy(dtype=float)
        if not len(gaps):
            continue
        mean, deviation = mean_and_deviation(gaps)
        half = interval_half(deviation, len(gaps), level)
        found.append(
            {
                "measure": measure,
                "method": one,
                "less": other,
                "seeds": len(gaps),
                "difference": mean,
                "deviation": deviation,
                "low": mean - half,
                "high": mean + half,
                "separate": bool(abs(mean) > half),
            }
        )
    names = ["measure", "method", "less", "seeds", "difference", "deviation", "low", "high", "separate"]
    return pd.DataFrame(found, columns=names)


def interval_half(deviation: float, count: int, level: float = LEVEL) -> float:
    """Half the width of Student's t interval for a mean of ``count`` values; NaN for one value."""
    from scipy.stats import t

    if count < 2:
        return float("nan")
    return float(t.ppf((1 + level) / 2, count - 1) * deviation / math.sqrt(count))
