"""Figures of the papers, made anew: runs, the table and plot that come of them, and what the numbers say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..errors import InvalidValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Say = Callable[[str], None]

BUDGETS = (300, 1000, 3000, 10000, 30000)
"""T, local steps in all, over two decades."""

RESIDUAL_SLOPE, RESIDUAL_MARGIN = -1 / 3, 0.05
ROUNDS_SLOPE, ROUNDS_MARGIN = 2 / 3, 0.02

# eta and mu are small enough for the noise between clients not to hide the rate of the gradient.
_RATE: dict[str, Any] = {
    "name": "spade-rate",
    "engine": "inline",
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


@dataclass(frozen=True)
class Rate:
    """What ``spade_rate`` found.

    Attributes:
        table: one row a run: budget, seed, local_steps, rounds, residual, stationarity, consensus, queries, scalars, seconds.
        residual_slope, residual_spread: of log residual over log T, the mean over seeds and its standard error.
        rounds_slope: of log K over log T.
        files: what was written.
    """

    table: pd.DataFrame
    residual_slope: float
    residual_spread: float
    rounds_slope: float
    files: list[Path]

    @property
    def holds(self) -> bool:
        """Whether both slopes are what the analysis says, within the margins."""
        steep = self.residual_slope <= RESIDUAL_SLOPE + RESIDUAL_MARGIN
        return steep and abs(self.rounds_slope - ROUNDS_SLOPE) <= ROUNDS_MARGIN

    def paragraph(self) -> str:
        """The numbers in words."""
        budgets, seeds = sorted(self.table["budget"].unique()), sorted(self.table["seed"].unique())
        mean = self.table.groupby("budget")["residual"].mean()
        verdict = "as the analysis says" if self.holds else "not as the analysis says"
        return (
            f"Over T = {budgets[0]:,} to {budgets[-1]:,} local steps a client and {len(seeds)} seeds, the mean of "
            f"‖∇F(x̄_k)‖² + (1/N) Σ_i ‖x_i,k − x̄_k‖² over the rounds fell from {mean.iloc[0]:.3g} to {mean.iloc[-1]:.3g}, "
            f"with slope {self.residual_slope:.3f} ± {self.residual_spread:.3f} (standard error over seeds) where −1/3 or "
            f"steeper was expected, to within {RESIDUAL_MARGIN}; rounds grew with slope {self.rounds_slope:.3f} where "
            f"2/3 ± {ROUNDS_MARGIN} was expected: {verdict}."
        )


def spade_rate(
    out: Path, *, seeds: Sequence[int] = (0, 1, 2), budgets: Sequence[int] = BUDGETS, say: Say | None = None
) -> Rate:
    """SPADE-DFL by the schedule of SPEC section 3 on a smooth, non-convex problem, without privacy.

    Logistic loss with the penalty w Σ x²/(1+x²), seen through function values alone, on ten unequal, label-skewed clients.

    Args:
        out: the folder for ``spade-rate.csv``, ``.png``, ``.svg`` and ``.txt``; made if it is not there.
        seeds: each draws records, partition, graph and queries anew.
        budgets: T; two or more.
        say: called with a line for every run.

    Raises:
        InvalidValue: no seeds, fewer than two budgets, or a folder that cannot be made.
    """
    if len(set(budgets)) < 2 or min(budgets) < 8:
        raise InvalidValue("--budgets", list(budgets), "a slope needs two or more different numbers of steps, each ≥ 8")
    if not seeds:
        raise InvalidValue("--seeds", 0, "give a whole number ≥ 1")
    _make(out)
    rows = []
    for seed in seeds:
        for budget in budgets:
            rows.append(_rate_run(seed, budget))
            if say is not None:
                say("T = {budget:>7,}  seed {seed}  K = {rounds:>5}  τ = {local_steps:>3}  residual {residual:.4g}  "
                    "({seconds:.0f} s)".format(**rows[-1]))  # fmt: skip
    table = pd.DataFrame(rows)
    slopes = [slope(part["budget"], part["residual"]) for _, part in table.groupby("seed")]
    spread = float(np.std(slopes, ddof=1) / math.sqrt(len(slopes))) if len(slopes) > 1 else float("nan")
    rounds = table.drop_duplicates("budget")
    found = Rate(table, float(np.mean(slopes)), spread, slope(rounds["budget"], rounds["rounds"]), [])
    return Rate(found.table, found.residual_slope, spread, found.rounds_slope, _write(found, out))


def slope(x: Any, y: Any) -> float:
    """The least-squares slope of log y over log x."""
    return float(np.polyfit(np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float)), 1)[0])


def _rate_run(seed: int, budget: int) -> dict[str, Any]:
    from .simulate import simulate

    config = {**_RATE, "seed": seed, "method": {**_RATE["method"], "budget": budget}}
    result = simulate(config, keep=False)
    # The mean is over the states from which rounds start, x_0 to x_{K−1}.
    private, public = result.diagnostics.iloc[:-1], result.metrics.iloc[:-1]
    return {
        "budget": budget,
        "seed": seed,
        "local_steps": result.config["method"]["local_steps"],
        "rounds": int(result.summary["rounds_done"]),
        "residual": float(private["residual"].mean()),
        "stationarity": float(private["stationarity"].mean()),
        "consensus": float(public["consensus"].mean()),
        "queries": int(result.metrics["queries"].iloc[-1]),
        "scalars": int(result.metrics["scalars"].iloc[-1]),
        "seconds": float(result.summary["seconds"]),
    }


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue("--out", str(out), f"this folder cannot be made: {error.strerror}") from None


def _write(found: Rate, out: Path) -> list[Path]:
    from .plots import save_figure

    table, text = out / "spade-rate.csv", out / "spade-rate.txt"
    found.table.to_csv(table, index=False)
    text.write_text(found.paragraph() + "\n", encoding="utf-8")
    return [table, text, *save_figure(_rate_figure(found), out / "spade-rate")]


def _rate_figure(found: Rate) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    by = found.table.groupby("budget")
    budgets = np.array(sorted(found.table["budget"].unique()), dtype=float)
    for axes, name, wanted, fitted, label in (
        (left, "residual", RESIDUAL_SLOPE, found.residual_slope, "mean stationarity + consensus residual"),
        (right, "rounds", ROUNDS_SLOPE, found.rounds_slope, "rounds K"),
    ):
        middle = by[name].mean().to_numpy(dtype=float)
        axes.fill_between(budgets, by[name].min(), by[name].max(), color="#1f5fa8", alpha=0.15, linewidth=0)
        axes.loglog(budgets, middle, "o-", color="#1f5fa8", label=f"measured, slope {fitted:.3f}")
        guide = middle[0] * (budgets / budgets[0]) ** wanted
        axes.loglog(budgets, guide, "--", color="#8a8a8a", label=f"slope {'−1/3' if wanted < 0 else '2/3'}")
        axes.set_xlabel("local steps T")
        axes.set_ylabel(label)
        axes.legend(frameon=False)
        axes.grid(True, which="major", color="#e3e3e3")
        axes.spines[["top", "right"]].set_visible(False)
    left.set_title("non-private diagnostics of the simulation", loc="left", fontsize=9, style="italic")
    return figure
