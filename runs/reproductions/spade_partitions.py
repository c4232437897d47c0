"""``spade-heterogeneity``: who holds which classes, and SPADE-DFL's accuracy under each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..holdings import Holdings, holdings
from ..statement import epsilon_text
from ..study import Study, Wanted
from .figures import curves, panels
from .framework import Claim, Conclusion, Reproduction, Scale
from .spade_setting import PARTITIONS, SOURCE, data_remark, entries, map_name, tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROUNDS = 8
"""More releases than in the tables, so that there is a curve to see."""


def partition_runs(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    """SPADE-DFL with and without noise under each partition, by the first candidate of the tables."""
    entry = entries(scale)["spade-dfl, baseline"]
    method = {**entry.method, **entry.grid[0], "rounds": ROUNDS}
    wanted = []
    for name, partition in PARTITIONS.items():
        for noise in ("ε = 32", "no noise"):
            for seed in seeds:
                run = tables(scale, "spade-heterogeneity", seed, partition, method)
                if noise == "no noise":
                    run["privacy"] = {"mode": "none"}
                wanted.append(Wanted({"partition": name, "noise": noise, "seed": seed}, run))
    return wanted


def held(study: Study) -> Mapping[str, Holdings]:
    """Who holds what in the first seed's run of each partition. Computed from the records, without noise."""
    first: dict[str, Holdings] = {}
    for entry in study.wanted:
        name = str(entry.labels["partition"])
        if name not in first:
            first[name] = holdings(entry.config)
    return first


def partition_table(study: Study, found: Mapping[str, Holdings]) -> pd.DataFrame:
    """One row for each partition: how unlike its clients are, and the accuracy with and without noise."""
    rows = []
    for name, part in study.rows.groupby("partition", sort=False):
        noisy, clean = part[part["noise"] == "ε = 32"], part[part["noise"] == "no noise"]
        frame = found[str(name)].frame
        rows.append(
            {
                "partition": name,
                "classes_of_a_client": frame["classes"].mean(),
                "distance": frame["distance"].mean(),
                "least_records": int(frame["records"].min()),
                "most_records": int(frame["records"].max()),
                "accuracy": noisy["accuracy"].mean(),
                "accuracy_min": noisy["accuracy"].min(),
                "accuracy_max": noisy["accuracy"].max(),
                "accuracy_without_noise": clean["accuracy"].mean(),
                "epsilon": epsilon_text(noisy["epsilon"].max(), str(noisy["epsilon_is"].iloc[0])),
                "epsilon_is": noisy["epsilon_is"].iloc[0],
                "feature_map": map_name(study),
                "seeds": len(noisy),
            }
        )
    return pd.DataFrame(rows)


def partition_claims(table: pd.DataFrame) -> list[Claim]:
    """Unlike clients are harder: with noise and without."""
    table = table.set_index("partition")
    claims = []
    for column, words in (("accuracy", "at ε = 32"), ("accuracy_without_noise", "without noise")):
        accuracy = 100 * table[column]
        skewed = accuracy[["dirichlet 0.1", "pathological"]]
        path = ", ".join(f"{value:.1f} % {name}" for name, value in accuracy.items())
        claims.append(
            Claim(
                f"accuracy {words} is higher with IID clients than with strongly skewed ones",
                bool(accuracy["iid"] > skewed.max()),
                path,
            )
        )
    return claims


def _conclude(study: Study) -> Conclusion:
    found = held(study)
    table = partition_table(study, found)
    remarks = [
        "The class shares in table and figure are computed from the records without noise: a diagnostic of the "
        "simulation, like the curves without noise. Steps were not tuned for a partition.",
        data_remark(study),
    ]
    return Conclusion(table, _figure(study, found), partition_claims(table), remarks)


def _figure(study: Study, found: Mapping[str, Holdings]) -> Figure:
    figure, axes = panels(len(found), "Class shares of each client, and accuracy by release", rows=2, size=(2.9, 2.7))
    for position, (name, holding) in enumerate(found.items()):
        top, bottom = axes[position], axes[position + len(found)]
        _shares(top, holding.proportions)
        top.set_title(name, loc="left", fontsize=9)
        curves(
            bottom,
            study.metrics[study.metrics["partition"] == name],
            by="noise",
            y="accuracy",
            percent=True,
            order=["ε = 32", "no noise"],
        )
        bottom.set_ylim(0, 100)
        bottom.set_xlabel("release")
        bottom.set_ylabel("test accuracy (%)")
    axes[0].set_ylabel("class share")
    return figure


def _shares(axes: Axes, proportions: np.ndarray) -> None:
    """Stacked bars, clients ordered by their most frequent class."""
    import matplotlib as mpl

    order = np.lexsort((-proportions.max(axis=1), proportions.argmax(axis=1)))
    shares, below = proportions[order], np.zeros(len(proportions))
    colors = mpl.colormaps["tab10" if proportions.shape[1] <= 10 else "tab20"]
    for code in range(proportions.shape[1]):
        axes.bar(np.arange(len(shares)), shares[:, code], bottom=below, width=1.0, color=colors(code % 20))
        below = below + shares[:, code]
    axes.set_xlabel("client")
    axes.set_ylim(0, 1)


REPRODUCTIONS = [
    Reproduction(
        "spade-heterogeneity",
        "Class shares and accuracy by partition",
        SOURCE.format("its figures over partitions"),
        partition_runs,
        _conclude,
        {"small": 2, "full": 3},
    )
]
