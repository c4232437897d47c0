"""``spade-rate``: the rate of SPADE-DFL by its non-private schedule (SPEC section 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...errors import InvalidValue
from ..study import Study, Wanted
from .figures import mark_diagnostic, panels
from .framework import Claim, Conclusion, Reproduction, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS: Mapping[str, tuple[int, ...]] = {
    "small": (300, 1000, 3000, 10000),
    "full": (300, 1000, 3000, 10000, 30000),
}
"""T, local steps in all of every client."""

RESIDUAL_SLOPE, RESIDUAL_MARGIN = -1 / 3, 0.05
ROUNDS_SLOPE, ROUNDS_MARGIN = 2 / 3, 0.02

# eta and mu are small enough for the noise between clients not to hide the rate of the gradient.
_RATE: dict[str, Any] = {
    "name": "spade-rate",
    "evaluate_every": 1,
    "checkpoint_every": 10**9,
    "data": {"name": "synthetic", "records": 400, "features": 9, "classes": 2, "spread": 1.0},
    "partition": {"scheme": "dirichlet", "clients": 10, "alpha": 1.0, "min_size": 10},
    "topology": {"kind": "erdos-renyi"},
    "problem": {"kind": "nonconvex-logistic", "options": {"bend": 0.1}},
    "method": {
        "name": "spade-dfl",
        "schedule": "rate",
        "estimator": "paper",
        "eta": 0.3,
        "mu": 1.0,
        "tau0": 1.0,
        "chunk": 8,
    },
    "privacy": {"mode": "none"},
}


def rate_runs(seeds: Sequence[int], budgets: Sequence[int]) -> list[Wanted]:
    """A run for every seed and number of local steps. Each seed draws records, partition, graph and queries anew.

    Raises:
        InvalidValue: fewer than two budgets, or one too small for two rounds.
    """
    if len(set(budgets)) < 2 or min(budgets) < 8:
        raise InvalidValue("budgets", list(budgets), "a slope needs two or more different numbers of steps, each ≥ 8")
    return [
        Wanted(
            {"budget": budget, "seed": seed}, {**_RATE, "seed": seed, "method": {**_RATE["method"], "budget": budget}}
        )
        for seed in seeds
        for budget in budgets
    ]


def _plan(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    return rate_runs(seeds, BUDGETS[scale])


def rate_table(study: Study) -> pd.DataFrame:
    """One row a run: budget, seed, local_steps, rounds, residual, stationarity, consensus, queries, scalars, seconds."""
    rows = []
    for labels, result in study.results():
        # The mean is over the states from which rounds start, x_0 to x_{K−1}.
        private, public = result.diagnostics.iloc[:-1], result.metrics.iloc[:-1]
        rows.append(
            {
                **labels,
                "local_steps": result.config["method"]["local_steps"],
                "rounds": int(result.summary["rounds_done"]),
                "residual": float(private["residual"].mean()),
                "stationarity": float(private["stationarity"].mean()),
                "consensus": float(public["consensus"].mean()),
                "queries": int(result.metrics["queries"].iloc[-1]),
                "scalars": int(result.metrics["scalars"].iloc[-1]),
                "seconds": float(result.summary["seconds"]),
            }
        )
    return pd.DataFrame(rows)


def slope(x: Any, y: Any) -> float:
    """The least-squares slope of log y over log x."""
    return float(np.polyfit(np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float)), 1)[0])


def rate_claims(table: pd.DataFrame) -> list[Claim]:
    """The two slopes of the analysis, each beside the one that was measured."""
    slopes = [slope(part["budget"], part["residual"]) for _, part in table.groupby("seed")]
    spread = float(np.std(slopes, ddof=1) / math.sqrt(len(slopes))) if len(slopes) > 1 else float("nan")
    residual = float(np.mean(slopes))
    each = table.drop_duplicates("budget")
    rounds = slope(each["budget"], each["rounds"])
    mean = table.groupby("budget")["residual"].mean()
    words = f" ± {spread:.3f} (standard error over {len(slopes)} seeds)" if len(slopes) > 1 else " (one seed)"
    return [
        Claim(
            "the mean of ‖∇F(x̄_k)‖² + (1/N) Σ_i ‖x_i,k − x̄_k‖² over the rounds falls like T^(−1/3) or faster",
            residual <= RESIDUAL_SLOPE + RESIDUAL_MARGIN,
            f"over T = {min(table['budget']):,} to {max(table['budget']):,} local steps it fell from {mean.iloc[0]:.3g} to "
            f"{mean.iloc[-1]:.3g}, with slope {residual:.3f}{words}, where at most −1/3 + {RESIDUAL_MARGIN} was asked",
        ),
        Claim(
            "rounds grow like T^(2/3)",
            abs(rounds - ROUNDS_SLOPE) <= ROUNDS_MARGIN,
            f"their slope is {rounds:.3f}, where 2/3 ± {ROUNDS_MARGIN} was asked",
        ),
    ]


def _conclude(study: Study) -> Conclusion:
    table = rate_table(study)
    remark = (
        "Logistic loss with the penalty w Σ x²/(1+x²), smooth and not convex, seen through function values alone, on ten "
        "unequal, label-skewed clients with synthetic records; no noise, no privacy."
    )
    return Conclusion(table, _figure(table), rate_claims(table), [remark])


def _figure(table: pd.DataFrame) -> Figure:
    figure, (left, right) = panels(2, "SPADE-DFL by its non-private schedule", size=(4.4, 3.6))
    by = table.groupby("budget")
    budgets = np.array(sorted(table["budget"].unique()), dtype=float)
    for axes, name, wanted, label in (
        (left, "residual", RESIDUAL_SLOPE, "mean stationarity + consensus residual"),
        (right, "rounds", ROUNDS_SLOPE, "rounds K"),
    ):
        middle = by[name].mean().to_numpy(dtype=float)
        axes.fill_between(budgets, by[name].min(), by[name].max(), color="#1f5fa8", alpha=0.15, linewidth=0)
        axes.loglog(budgets, middle, "o-", color="#1f5fa8", label=f"measured, slope {slope(budgets, middle):.3f}")
        guide = middle[0] * (budgets / budgets[0]) ** wanted
        axes.loglog(budgets, guide, "--", color="#8a8a8a", label=f"slope {'−1/3' if wanted < 0 else '2/3'}")
        axes.set_xlabel("local steps T")
        axes.set_ylabel(label)
        axes.legend(frameon=False)
    mark_diagnostic(left)
    return figure


REPRODUCTIONS = [
    Reproduction(
        "spade-rate",
        "Residual and rounds against local steps",
        "SPADE-DFL, the rate of its analysis",
        _plan,
        _conclude,
        {"small": 2, "full": 3},
    )
]
