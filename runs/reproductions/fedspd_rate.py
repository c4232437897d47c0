"""``fedspd-rate``: the law O(1/√(pTQ)) of FedSPD-DP, on a convex problem that is not smooth (SPEC section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from ..study import Study, Wanted
from .figures import COLORS, MARKS, mark_diagnostic, panels
from .framework import Claim, Conclusion, Reproduction, Scale
from .spade_rate import slope

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATE_SLOPE, RATE_MARGIN = -0.5, 0.05
CELLS = ((4, 1), (4, 5), (20, 1), (20, 5))
"""K and Q of the runs, of N = 20 clients."""
_CLIENTS = 20
_ROUNDS = {"small": 800, "full": 10000}
_FIRST = 50  # rounds of the shortest T

_RATE: dict[str, Any] = {
    "name": "fedspd-rate",
    "checkpoint_every": 10**9,
    "data": {"name": "digits", "seed": 0},
    "partition": {"scheme": "dirichlet", "clients": _CLIENTS, "alpha": 1.0, "min_size": 40},
    "problem": {"kind": "softmax", "regulariser": "l1", "weight": 2e-3},
    "privacy": {"mode": "none"},
}


def rate_runs(seeds: Sequence[int], rounds: int, reference_rounds: int = 1500) -> list[Wanted]:
    """γ_t = γ√t with batches for every (K, Q) and seed, and for each seed a full-batch run that finds the least H."""
    found = []
    for seed in seeds:
        shared = {**_RATE, "seed": seed}
        method = {"name": "fedspd-dp", "rho": 0.1, "batch_size": 5, "batches": "independent"}
        reference = {**method, "rounds": reference_rounds, "local_steps": 20, "batches": "full", "gamma": 0.5}
        labels = {"participants": _CLIENTS, "local_steps": 20, "reference": True, "seed": seed}
        found.append(Wanted(labels, {**shared, "evaluate_every": max(1, reference_rounds // 4), "method": reference}))
        for participants, steps in CELLS:
            ours = {
                **method,
                "rounds": rounds,
                "participants": participants,
                "local_steps": steps,
                "gamma": {"value": 0.05, "shape": "sqrt"},
            }
            labels = {"participants": participants, "local_steps": steps, "reference": False, "seed": seed}
            found.append(Wanted(labels, {**shared, "evaluate_every": max(1, rounds // 320), "method": ours}))
    return found


def _plan(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    return rate_runs(seeds, _ROUNDS[scale], 500 if scale == "small" else 6000)


def rate_table(study: Study) -> pd.DataFrame:
    """One row for each run and T: participants, local_steps, seed, rounds, work = pTQ, gap.

    ``gap`` is the mean of H(x_0^t) − H* over the rounds to T, which bounds that of the averaged model.
    """
    frame, rows = study.diagnostics, []
    for seed, here in frame.groupby("seed"):
        least = here["objective"].min()
        for (participants, steps), part in here[~here["reference"].astype(bool)].groupby(
            ["participants", "local_steps"]
        ):
            last = int(part["round"].max())
            for rounds in np.unique(np.geomspace(min(_FIRST, last // 2), last, 8).astype(int)):
                upto = part[(part["round"] > 0) & (part["round"] <= rounds)]
                rows.append(
                    {
                        "participants": participants,
                        "local_steps": steps,
                        "seed": seed,
                        "rounds": int(rounds),
                        "work": cast(int, participants) / _CLIENTS * rounds * steps,
                        "gap": float((upto["objective"] - least).mean()),
                    }
                )
    return pd.DataFrame(rows)


def exponents(table: pd.DataFrame) -> dict[str, float]:
    """Least-squares exponents of the gap: ``pTQ`` as one product, and ``p``, ``T`` and ``Q`` each for itself."""
    names = {"p": "participants", "T": "rounds", "Q": "local_steps"}
    columns = [np.log(table[name].to_numpy(dtype=float)) for name in names.values()]
    found, *_ = np.linalg.lstsq(
        np.column_stack([*columns, np.ones(len(table))]), np.log(table["gap"].to_numpy(dtype=float)), rcond=None
    )
    return {"pTQ": slope(table["work"], table["gap"]), **dict(zip(names, map(float, found[:3]), strict=True))}


def rate_claims(table: pd.DataFrame) -> list[Claim]:
    """The law as one slope, and the share that each of p, T and Q has in it."""
    found = exponents(table)
    words = f"slope {found['pTQ']:.3f} over pTQ = {table['work'].min():,.0f} to {table['work'].max():,.0f}"
    claims = [
        Claim(
            "the mean of H(x_0^t) − H* over the rounds falls like (pTQ)^(−1/2) or faster",
            found["pTQ"] <= RATE_SLOPE + RATE_MARGIN,
            f"{words}, where at most −1/2 + {RATE_MARGIN} was asked",
        )
    ]
    for name in ("p", "T", "Q"):
        claims.append(
            Claim(
                f"{name} alone has the exponent −1/2 or less in it",
                found[name] <= RATE_SLOPE + RATE_MARGIN,
                f"{found[name]:.3f} when the exponents of p, T and Q are fitted side by side",
            )
        )
    return claims


def _conclude(study: Study) -> Conclusion:
    table = rate_table(study)
    remark = (
        "Softmax with the penalty 0.002‖x‖₁ on digits, 20 unequal, label-skewed clients, batches of 5, γ_t = 0.05√t, no noise; "
        "H* is the least value that any run of the same seed reached, full batches with constant γ among them."
    )
    return Conclusion(table, _figure(table), rate_claims(table), [remark])


def _figure(table: pd.DataFrame) -> Figure:
    figure, (axes,) = panels(1, "FedSPD-DP with γ√t on an ℓ1-penalised softmax", size=(6.4, 4.2))
    for number, ((participants, steps), part) in enumerate(table.groupby(["participants", "local_steps"])):
        mean = part.groupby("work")["gap"].mean()
        axes.loglog(
            mean.index,
            mean,
            color=COLORS[number],
            marker=MARKS[number],
            markersize=4,
            label=f"p = {cast(int, participants) / _CLIENTS:g}, Q = {steps}",
        )
    work = np.array([table["work"].min(), table["work"].max()])
    first = table.loc[table["work"] == work[0], "gap"].mean()
    axes.loglog(work, first * (work / work[0]) ** RATE_SLOPE, "--", color="#8a8a8a", label="slope −1/2")
    axes.set_xlabel("p·T·Q")
    axes.set_ylabel("mean of H(x_0) − H* over the rounds")
    axes.legend(frameon=False)
    mark_diagnostic(axes)
    return figure


REPRODUCTIONS = [
    Reproduction("fedspd-rate", "Objective gap against p·T·Q", "FedSPD-DP, the rate of its analysis", _plan, _conclude)
]
