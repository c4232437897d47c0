"""What the reproductions of FedSPD-DP have in common: data, sizes, and how a trend is read off the runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..statement import epsilon_text
from ..study import Study, Wanted
from .figures import curves, mark_diagnostic, panels
from .framework import Claim, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE = "FedSPD-DP, figure {}"
CLIENTS = 100
STATES: Mapping[str, str] = {"released": "guaranteed", "paper": "claimed"}
"""The two forms of FedSPD-DP, and what their ε is."""

ROUNDS: Mapping[str, int] = {"small": 60, "full": 400}
DELTA = 1e-5

# Twenty features and a softmax of ten classes: few enough parameters for ε̄ = 1 to leave something to see.
_SMALL = {"name": "synthetic", "records": 40000, "features": 20, "classes": 10, "spread": 2.0}
_FULL = {"name": "idx", "path": "/usr/share/datasets/fashion-mnist", "feature_map": "dct", "features_out": 16}


def tables(scale: Scale, name: str, seed: int, method: Mapping[str, Any], privacy: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of one run at N = 100: ``method`` and ``privacy`` over what all of them share."""
    rounds = ROUNDS[scale]
    return {
        "name": name,
        "seed": seed,
        "dtype": "float32",
        "evaluate_every": max(1, rounds // 12),
        "data": dict(_FULL if scale == "full" else _SMALL),
        "partition": {"scheme": "iid", "clients": CLIENTS},
        "problem": {"kind": "softmax"},
        "method": {"rounds": rounds, **method},
        "privacy": dict(privacy),
    }


def fedspd(state: str, participants: int, local_steps: int, **more: Any) -> dict[str, Any]:
    """FedSPD-DP at b = 10 with the ρ and γ of all figures."""
    return {
        "name": "fedspd-dp",
        "state": state,
        "participants": participants,
        "local_steps": local_steps,
        "batch_size": 10,
        "rho": 0.1,
        "gamma": 1.0,
        **more,
    }


def total(epsilon: float) -> dict[str, Any]:
    """A total budget (ε̄, δ) over all of a client's participations."""
    return {"mode": "total", "epsilon": epsilon, "delta": DELTA}


def sweep_figure(study: Study, by: str, label: str, title: str) -> Figure:
    """Test accuracy and H by round; released above, paper below, which carries the word claimed."""
    figure, found = panels(2, title, rows=2, size=(4.6, 3.2))
    for row, (state, word) in enumerate(STATES.items()):
        left, right = found[2 * row : 2 * row + 2]
        metrics = study.metrics[study.metrics["form"] == state]
        private = study.diagnostics[study.diagnostics["form"] == state]
        curves(left, metrics, by=by, y="accuracy", label=label, percent=True)
        curves(right, private, by=by, y="objective", label=label)
        left.set_title(f"{state} state: ε {word}", loc="left", fontsize=9)
        left.set_ylabel("test accuracy (%)")
        right.set_ylabel("average local function value at x_0")
        mark_diagnostic(right)
    return figure


def sweep_table(study: Study, by: str) -> pd.DataFrame:
    """One row for each form and value of ``by``: accuracy and objective over the seeds, ε with its word."""
    rows = []
    for (form, value), part in study.rows.groupby(["form", by], sort=False):
        rows.append(
            {
                "form": form,
                by: value,
                "accuracy": part["accuracy"].mean(),
                "accuracy_min": part["accuracy"].min(),
                "accuracy_max": part["accuracy"].max(),
                "objective": part["objective"].mean(),
                "epsilon": epsilon_text(part["epsilon"].max(), str(part["epsilon_is"].iloc[0])),
                "epsilon_is": part["epsilon_is"].iloc[0],
                "seeds": len(part),
            }
        )
    return pd.DataFrame(rows)


def rising(table: pd.DataFrame, by: str, symbol: str) -> list[Claim]:
    """For each form: accuracy rises, and H falls, with every step of ``by``."""
    claims = []
    for form, part in table.groupby("form", sort=False):
        part = part.sort_values(by)
        path = ", ".join(f"{100 * a:.1f} % at {v:g}" for a, v in zip(part["accuracy"], part[by], strict=True))
        fall = ", ".join(f"{h:.3f}" for h in part["objective"])
        where = f"in the {form} state (ε {STATES[str(form)]})"
        claims += [
            Claim(f"test accuracy rises with {symbol} {where}", part["accuracy"].is_monotonic_increasing, path),
            Claim(f"the objective falls with {symbol} {where}", part["objective"].is_monotonic_decreasing, fall),
        ]
    return claims


def data_remark(study: Study) -> str:
    """Which data these runs saw, from their own configuration."""
    config = study.wanted[0].config
    data, method = config.data, config.method
    seeds = len({entry.config.seed for entry in study.wanted})
    source = data.name if data.path is None else f"{data.name} at {data.path.name}"
    return (
        f"Data: {source}, feature map {data.feature_map}; {config.partition.scheme} partition over "
        f"{config.partition.clients} clients, T = {method['rounds']} rounds, b = {method['batch_size']}, "
        f"{config.problem.kind}; seeds: {seeds}."
    )


def sweep(scale: Scale, name: str, seeds: Any, by: str, values: Any, method: Any, epsilon: Any) -> list[Wanted]:
    """Runs in both forms for every value and seed; ``method`` and ``epsilon`` map a value to K and Q, and to ε̄."""
    return [
        Wanted(
            {"form": form, by: value, "seed": seed},
            tables(scale, name, seed, fedspd(form, *method(value)), total(epsilon(value))),
        )
        for form in STATES
        for value in values
        for seed in seeds
    ]
