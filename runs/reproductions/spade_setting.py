"""What the reproductions of SPADE-DFL have in common: data, partitions, methods, and how a method's step is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..config import DataConfig
from ..statement import epsilon_text
from ..study import Study, Wanted
from .framework import Scale

SOURCE = "SPADE-DFL, {}"
DELTA = 1e-5
CLIENTS = 100

# No client may be so small that nothing of it is left to hold out.
PARTITIONS: Mapping[str, dict[str, Any]] = {
    "iid": {"scheme": "iid"},
    "dirichlet 1.0": {"scheme": "dirichlet", "alpha": 1.0, "min_size": 5},
    "dirichlet 0.1": {"scheme": "dirichlet", "alpha": 0.1, "min_size": 5},
    "pathological": {"scheme": "pathological", "classes_per_client": 2},
}

# Test records are the same for all seeds: held-out records of one seed are no test records of another.
_DATA: Mapping[str, dict[str, Any]] = {
    "small": {"name": "digits", "feature_map": "dct", "features_out": 16, "bias": False, "seed": 0},
    "full": {
        "name": "idx",
        "path": "/usr/share/datasets/fashion-mnist",
        "feature_map": "dct",
        "features_out": 64,
        "bias": False,
        "seed": 0,
    },
}


@dataclass(frozen=True)
class Entry:
    """A method of the tables.

    Attributes:
        sees: ``values`` or ``gradients``: what it may ask of a loss.
        ours: whether it is SPADE-DFL.
        method: its table.
        grid: the candidates, two for every method, each laid over ``method``.
    """

    sees: str
    ours: bool
    method: Mapping[str, Any]
    grid: tuple[Mapping[str, Any], Mapping[str, Any]]


def entries(scale: Scale) -> Mapping[str, Entry]:
    """All methods at the same releases, clip and exchanges without data; those that see values ask the same queries."""
    full = scale == "full"
    every = {"rounds": 5 if full else 4, "clip": 1.5 if full else 2.0, "mixing_rounds": 10, "final_mixing": 20}
    values = {**every, "local_steps": 4000, "chunk": 100 if full else 14}
    gradients = {**every, "local_steps": 120}
    spade = {"name": "spade-dfl"}
    eta = 0.015 if full else 0.025
    known = {"estimator": "baseline", "mu": 0.2}
    directions = {"estimator": "paper", "mu": 0.8}
    exact = {"estimator": "gradient", "mu": 0.2}
    reach, exact_reach = eta * 0.2 * 4000, 0.5 * 0.2 * 120
    steps = ({"eta": eta}, {"eta": eta / 2})
    return {
        "spade-dfl, baseline": Entry("values", True, {**spade, **values, **known}, steps),
        "spade-dfl, paper": Entry(
            "values", True, {**spade, **values, **directions}, ({"eta": eta / 4}, {"eta": eta / 8})
        ),
        "dp-dsgd, values": Entry("values", False, {"name": "dp-dsgd", **values, **known}, steps),
        "dp-gt, values": Entry(
            "values",
            False,
            {"name": "dp-gt", **values, **known, "eta": eta},
            ({"alpha": reach}, {"alpha": 0.3 * reach}),
        ),
        "dp-dsgd, gradients": Entry(
            "gradients", False, {"name": "dp-dsgd", **gradients, **exact}, ({"eta": 0.5}, {"eta": 0.25})
        ),
        "dp-gt, gradients": Entry(
            "gradients",
            False,
            {"name": "dp-gt", **gradients, **exact, "eta": 0.5},
            ({"alpha": exact_reach}, {"alpha": 0.3 * exact_reach}),
        ),
        "lt-admm, gradients": Entry(
            "gradients",
            False,
            {"name": "lt-admm", **gradients, "memory": True},
            ({"gamma": 0.1}, {"gamma": 0.05}),
        ),
    }


def total(epsilon: float) -> dict[str, Any]:
    """A total budget (ε, δ) for a client's whole data set."""
    return {"mode": "total", "epsilon": epsilon, "delta": DELTA}


def tables(scale: Scale, name: str, seed: int, partition: Mapping[str, Any], method: Mapping[str, Any]) -> Any:
    """The tables of one run at ε = 32; ``partition`` over N = 100."""
    return {
        "name": name,
        "seed": seed,
        "dtype": "float32",
        "evaluate_every": 1,
        "data": dict(_DATA[scale]),
        "partition": {"clients": CLIENTS, **partition},
        "topology": {"kind": "erdos-renyi"},
        "problem": {"kind": "softmax"},
        "method": dict(method),
        "privacy": total(32.0),
    }


def tuned_runs(
    scale: Scale,
    name: str,
    seeds: Sequence[int],
    axis: str,
    cells: Mapping[Any, Mapping[str, Any]],
    methods: Iterable[str] | None = None,
) -> list[Wanted]:
    """Every method's two candidates in every cell: with a fifth of each client's records held out on the first seed
    (``held_out``), and with all training records and the test records on every seed.

    Args:
        axis: the label of the cells; cells: for each of its values the tables that it changes.
        methods: which of `entries`; None takes all.
    """
    known = entries(scale)
    wanted = []
    for value, changes in cells.items():
        for label in methods if methods is not None else known:
            entry = known[label]
            for candidate, change in enumerate(entry.grid):
                for seed, held_out in [(seeds[0], True), *((seed, False) for seed in seeds)]:
                    run = tables(scale, name, seed, PARTITIONS["iid"], {**entry.method, **change})
                    run = {**run, **{key: dict(table) for key, table in changes.items()}}
                    if held_out:
                        run["data"]["validation"] = 0.2
                    labels = {"candidate": candidate, "held_out": held_out, "seed": seed}
                    wanted.append(Wanted({axis: value, "method": label, **labels}, run))
    return wanted


def chosen_rows(study: Study, axis: str) -> pd.DataFrame:
    """The rows with test records of the candidate that did best on held-out records, by cell and method; the first of
    equals. Adds ``accuracy_clients``, the mean accuracy of the clients' own models at the end."""
    own = study.metrics.groupby([axis, "method", "candidate", "held_out", "seed"], sort=False)[
        "accuracy_clients"
    ].last()
    parts = []
    for (value, method), part in study.rows.groupby([axis, "method"], sort=False):
        score = part[part["held_out"]].set_index("candidate")["accuracy"].sort_index().fillna(-math.inf)
        best = score.index[int(score.to_numpy().argmax())]
        kept = part[(part["candidate"] == best) & ~part["held_out"]]
        clients = [own.xs((value, method, best, False, seed)) for seed in kept["seed"]]
        parts.append(kept.assign(accuracy_clients=clients))
    return pd.DataFrame(pd.concat(parts, ignore_index=True))


def method_table(study: Study, axis: str) -> pd.DataFrame:
    """One row for each cell and method, over the seeds, at the chosen candidate; ε with its word."""
    known = entries("small")
    shown = map_name(study)
    rows = []
    for (value, method), part in chosen_rows(study, axis).groupby([axis, "method"], sort=False):
        rows.append(
            {
                axis: value,
                "method": method,
                "sees": known[str(method)].sees,
                "accuracy": part["accuracy"].mean(),
                "accuracy_min": part["accuracy"].min(),
                "accuracy_max": part["accuracy"].max(),
                "accuracy_clients": part["accuracy_clients"].mean(),
                "candidate": int(part["candidate"].iloc[0]),
                "epsilon": epsilon_text(part["epsilon"].max(), str(part["epsilon_is"].iloc[0])),
                "epsilon_is": part["epsilon_is"].iloc[0],
                "scalars_sent": part["scalars_sent"].mean(),
                "feature_map": shown,
                "seeds": len(part),
            }
        )
    return pd.DataFrame(rows)


def margins(table: pd.DataFrame, axis: str, ours: str, sees: str = "values") -> pd.Series:
    """By cell, in points: the accuracy of ``ours`` less that of the best other method that sees ``sees``."""
    known = entries("small")
    others = [name for name, entry in known.items() if not entry.ours and entry.sees == sees]
    accuracy = table.pivot(index=axis, columns="method", values="accuracy").loc[list(dict.fromkeys(table[axis]))]
    rivals = accuracy[[name for name in others if name in accuracy]]
    return 100 * (accuracy[ours] - rivals.max(axis=1))


def map_name(study: Study) -> str:
    """The public feature map of the study's runs, by its name and size: ``dct, 16``."""
    return _map_of(study.wanted[0].config.data)


def _map_of(data: DataConfig) -> str:
    return data.feature_map if data.features_out is None else f"{data.feature_map}, {data.features_out}"


def data_remark(study: Study) -> str:
    """Which data these runs saw, through which public map, from their own configuration."""
    config = study.wanted[0].config
    seeds = len({entry.config.seed for entry in study.wanted})
    source = config.data.name if config.data.path is None else f"{config.data.name} in {config.data.path.name}"
    return f"Data: {source}; public feature map: {_map_of(config.data)}; {config.problem.kind}; seeds: {seeds}."


TUNING = (
    "Each method had two candidates, chosen in every cell on held-out training records of the first seed; that used the "
    "private data, and its cost is not in ε. Accuracy is that of the average of the released models."
)
