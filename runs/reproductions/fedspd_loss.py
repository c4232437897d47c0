"""``fedspd-fig6``: the total loss by round, as the ledger states it (SPEC section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..statement import account_name
from ..study import Study, Wanted
from .fedspd_methods import ROUND_DELTA, per_round
from .fedspd_setting import CLIENTS, SOURCE, data_remark, fedspd, tables
from .figures import COLORS, panels
from .framework import Claim, Conclusion, Reproduction, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL, PARTIAL = CLIENTS, 20
ROUND_LOSS = 0.1
_METHODS = ("fedspd-dp, epoch", "fedspd-dp, iid", "dp-admm")


def loss_runs(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    """FedSPD-DP in its released form by both ways to draw records, and DP-ADMM, with K = N and K = 20."""
    found = []
    for participants in (FULL, PARTIAL):
        for label in _METHODS:
            kind, _, batches = label.partition(", ")
            method: dict[str, Any] = {"name": kind, "participants": participants}
            if batches:
                method = fedspd("released", participants, 5, batches=batches)
            for seed in seeds:
                labels = {"method": label, "participants": participants, "seed": seed}
                privacy = {**per_round(ROUND_LOSS), "calibration": "classic"}
                found.append(Wanted(labels, tables(scale, "fedspd-fig6", seed, method, privacy)))
    return found


def loss_table(study: Study) -> pd.DataFrame:
    """One row for each method and K: the ledger's ε at the middle and the end, its word and its account."""
    rows = []
    curves = study.metrics.groupby(["method", "participants", "round"])["epsilon_max"].max()
    for (method, participants), part in study.rows.groupby(["method", "participants"], sort=False):
        curve = curves.xs((method, participants))
        middle = int(curve.index[len(curve) // 2])
        rows.append(
            {
                "method": method,
                "participants": participants,
                "round_middle": middle,
                "epsilon_middle": curve[middle],
                "round_end": int(curve.index[-1]),
                "epsilon": part["epsilon"].max(),
                "delta": part["delta"].iloc[0],
                "epsilon_is": part["epsilon_is"].iloc[0],
                "account": account_name(str(part["account"].iloc[0])),
                "seeds": len(part),
            }
        )
    return pd.DataFrame(rows)


def loss_claims(table: pd.DataFrame) -> list[Claim]:
    """Partial below full for each method, FedSPD-DP below DP-ADMM for each participation."""
    by = table.set_index(["method", "participants"])["epsilon"]
    full, partial = max(table["participants"]), min(table["participants"])
    claims = [
        Claim(
            f"the total loss of {method} is smaller with K = {partial} than with K = {full}",
            bool(by[method, partial] < by[method, full]),
            f"ε = {by[method, partial]:.3f} against {by[method, full]:.3f}, "
            f"{by[method, full] / by[method, partial]:.2f} times",
        )
        for method in _METHODS
    ]
    for participants in (full, partial):
        admm = by["dp-admm", participants]
        for method in _METHODS[:2]:
            ours = by[method, participants]
            claims.append(
                Claim(
                    f"the total loss of {method} is below that of dp-admm with K = {participants}",
                    bool(ours < admm),
                    f"ε = {ours:.3f} against {admm:.3f}, {admm / ours:.2f} times",
                )
            )
    return claims


def _figure(study: Study) -> Figure:
    figure, (axes,) = panels(1, "Total loss by round at (0.1, 1e−4) a round", size=(6.8, 4.2))
    curve = study.metrics.groupby(["method", "participants", "round"])["epsilon_max"].max()
    for color, method in zip(COLORS, _METHODS, strict=False):
        for participants, line in ((FULL, "-"), (PARTIAL, "--")):
            part = curve.loc[method, participants]
            axes.plot(part.index, part, line, color=color, label=f"{method}, K = {participants}")
    axes.set_xlabel("round")
    axes.set_ylabel("largest ε of a client (guaranteed)")
    axes.legend(frameon=False, fontsize=8.5)
    return figure


def _conclude(study: Study) -> Conclusion:
    table = loss_table(study)
    remarks = [
        f"All ε are the ledger's for the client with most participations, at δ = {ROUND_DELTA:g}, guaranteed, for one "
        "record; the noise is the classic formula's.",
        "A DP-ADMM round reads all of a client's records, so nothing is gained by sampling; FedSPD-DP's reads Q·b = 50.",
        data_remark(study),
    ]
    return Conclusion(table, _figure(study), loss_claims(table), remarks)


REPRODUCTIONS = [Reproduction("fedspd-fig6", "Total loss by round", SOURCE.format(6), loss_runs, _conclude)]
