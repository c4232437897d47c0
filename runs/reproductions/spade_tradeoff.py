"""``spade-tradeoff``: local steps a round against scalars sent and the residual, without privacy and at a fixed total ρ_z."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..statement import epsilon_text
from ..study import Study, Wanted
from .figures import COLORS, mark_diagnostic, panels
from .framework import Claim, Conclusion, Reproduction, Scale
from .spade_rate import slope
from .spade_setting import DELTA, SOURCE, data_remark, map_name, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RHO_Z = 12.0
"""Total zCDP of a client over all of its releases: about ε = 32 at δ = 1e−5."""
CLIENTS = 30

STEPS: Mapping[str, dict[str, tuple[int, ...]]] = {
    "small": {"none": (2, 5, 10, 20, 50, 100, 200), "private": (100, 200, 500, 1000, 2000, 4000)},
    "full": {"none": (1, 2, 5, 10, 20, 50, 100, 200), "private": (100, 200, 500, 1000, 2000, 4000, 8000)},
}
TOTAL: Mapping[str, dict[str, int]] = {
    "small": {"none": 6000, "private": 8000},
    "full": {"none": 20000, "private": 16000},
}
"""T, local steps in all."""

_METHOD: Mapping[str, dict[str, Any]] = {
    "none": {"eta": 0.05, "mu": 0.2},
    "private": {"eta": 0.025, "mu": 0.2, "clip": 2.0},
}


def tradeoff_runs(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    """For each τ the same T in T/τ rounds, by the baseline estimator, on N = 30 IID clients."""
    wanted = []
    for kind, steps in STEPS[scale].items():
        for tau in steps:
            rounds = TOTAL[scale][kind] // tau
            chosen = {"name": "spade-dfl", "estimator": "baseline", "chunk": 12, "rounds": rounds, "local_steps": tau}
            for seed in seeds:
                run = tables(scale, "spade-tradeoff", seed, {"clients": CLIENTS}, {**chosen, **_METHOD[kind]})
                run["evaluate_every"] = max(1, rounds // 40)
                run["privacy"] = {"mode": "none"}
                if kind == "private":
                    run["privacy"] = {"mode": "zcdp", "rho_z": RHO_Z, "delta": DELTA}
                wanted.append(Wanted({"privacy": kind, "tau": tau, "seed": seed}, run))
    return wanted


def tradeoff_table(study: Study) -> pd.DataFrame:
    """One row for each panel and τ. ``residual`` is ‖∇F(x̄)‖² + mean ‖x_i − x̄‖² over the last fifth of the evaluations,
    a non-private diagnostic of the simulation."""
    tails = study.diagnostics.groupby(["privacy", "tau", "seed"])["residual"].agg(_tail)
    rows = []
    for (kind, tau), part in study.rows.groupby(["privacy", "tau"], sort=False):
        rows.append(
            {
                "privacy": kind,
                "tau": tau,
                "rounds": int(part["rounds_done"].iloc[0]),
                "scalars_sent": part["scalars_sent"].mean(),
                "residual": float(np.mean([tails.xs((kind, tau, seed)) for seed in part["seed"]])),
                "accuracy": part["accuracy"].mean(),
                "epsilon": epsilon_text(part["epsilon"].max(), str(part["epsilon_is"].iloc[0])),
                "epsilon_is": part["epsilon_is"].iloc[0],
                "feature_map": map_name(study),
                "seeds": len(part),
            }
        )
    return pd.DataFrame(rows)


def _tail(residuals: pd.Series) -> float:
    return float(residuals.iloc[-max(1, len(residuals) // 5) :].mean())


def tradeoff_claims(table: pd.DataFrame) -> list[Claim]:
    """Scalars fall as 1/τ; the residual rises without privacy; what it does at a fixed ρ_z is told."""
    claims = []
    for kind, words in (("none", "without privacy"), ("private", f"at a total ρ_z of {RHO_Z:g}")):
        part = table[table["privacy"] == kind].sort_values("tau")
        first, last = part.iloc[0], part.iloc[-1]
        span = f"from τ = {first['tau']} to τ = {last['tau']}"
        fall = slope(part["tau"], part["scalars_sent"])
        claims.append(
            Claim(
                f"scalars sent fall like 1/τ {words}",
                abs(fall + 1) < 0.05,
                f"{span} they fell from {first['scalars_sent']:,.0f} to {last['scalars_sent']:,.0f}, with slope {fall:.3f}",
            )
        )
        claims.append(
            Claim(
                f"the residual rises with τ {words}",
                bool(last["residual"] > first["residual"]),
                f"{span} it went from {first['residual']:.3g} to {last['residual']:.3g}, accuracy from "
                f"{100 * first['accuracy']:.1f} % to {100 * last['accuracy']:.1f} %",
            )
        )
    return claims


def _conclude(study: Study) -> Conclusion:
    table = tradeoff_table(study)
    remarks = [
        "All τ make the same number of local steps in all, with the same step; with privacy the noise of one release is "
        "σ² = 2C²K/ρ_z, so fewer releases get less noise each.",
        data_remark(study),
    ]
    return Conclusion(table, _figure(table), tradeoff_claims(table), remarks)


def _figure(table: pd.DataFrame) -> Figure:
    figure, found = panels(2, "Communication against optimisation, by local steps a round", size=(5.0, 3.7))
    titles = {"none": "without privacy", "private": f"total ρ_z = {RHO_Z:g}"}
    for axes, (kind, words) in zip(found, titles.items(), strict=True):
        part = table[table["privacy"] == kind].sort_values("tau")
        axes.loglog(part["tau"], part["scalars_sent"], "o-", color=COLORS[0])
        axes.set_xlabel(f"local steps a round, τ ({words})")
        axes.set_ylabel("scalars sent", color=COLORS[0])
        other = axes.twinx()
        other.loglog(part["tau"], part["residual"], "s--", color=COLORS[1])
        other.set_ylabel("stationarity + consensus residual", color=COLORS[1])
        mark_diagnostic(axes)
    return figure


REPRODUCTIONS = [
    Reproduction(
        "spade-tradeoff",
        "Scalars sent and residual by τ",
        SOURCE.format("its communication–optimisation trade-off"),
        tradeoff_runs,
        _conclude,
    )
]
