"""Plots of simulated time: what clients did when, and the released model's quality against seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .results import RunResult

_SHOWN_CLIENTS, _SHOWN_ROUNDS = 32, 12
_COLOURS = {"used": "#1f5fa8", "late": "#d08a2e", "void": "#d08a2e", "dropped": "#b3541e"}
_MEANING = {
    "used": "counted",
    "late": "too late: void, charged",
    "void": "too old or lost: void, charged",
    "dropped": "dropped out: void, charged",
}
_PLAIN = "#e3e3e3"


def time_figures(result: RunResult) -> dict[str, Figure]:
    """The figures of a run in which something took time, by name; none for any other run."""
    figures: dict[str, Figure] = {}
    if "simulated_s" not in result.metrics or not result.metrics["simulated_s"].max() > 0:
        return figures
    if len(result.spans):
        figures["clients-time"] = _clients_over_time(result)
    column = "accuracy" if "accuracy" in result.metrics else "loss"
    figures[f"{column}-time"] = quality_over_time({"": result.metrics}, column, _title(result))
    return figures


def quality_over_time(runs: dict[str, pd.DataFrame], column: str, title: str) -> Figure:
    """``column`` of the metrics of one or more runs, by label, against simulated seconds."""
    figure, axes = _new(title)
    for label, metrics in runs.items():
        seconds = metrics["simulated_s"].fillna(0.0)
        scale = 100 if column == "accuracy" else 1
        axes.plot(seconds, scale * metrics[column], label=label or None, color=None if label else _COLOURS["used"])
    axes.set_xlabel("simulated time (s)")
    axes.set_ylabel("test accuracy (%)" if column == "accuracy" else "test loss")
    axes.set_xlim(left=0)
    axes.grid(True, color=_PLAIN, linewidth=0.8)
    if len(runs) > 1:
        axes.legend(frameon=False)
    return figure


def _clients_over_time(result: RunResult) -> Figure:
    """A bar for each piece of work; white is waiting or idleness."""
    from matplotlib.patches import Patch

    clients = np.sort(result.spans["client"].unique())
    if len(clients) > _SHOWN_CLIENTS:
        clients = clients[np.unique(np.linspace(0, len(clients) - 1, _SHOWN_CLIENTS).astype(int))]
    spans = result.spans[
        result.spans["client"].isin(clients) & (result.spans["round"] < result.spans["round"].min() + _SHOWN_ROUNDS)
    ]
    figure, axes = _new(_title(result))
    row = {client: number for number, client in enumerate(clients.tolist())}
    seen = [outcome for outcome in _COLOURS if (spans["outcome"] == outcome).any()]
    for outcome in seen:
        for client, mine in spans[spans["outcome"] == outcome].groupby("client"):
            bars = list(zip(mine["start_s"], mine["end_s"] - mine["start_s"]))
            axes.broken_barh(bars, (row[int(str(client))] - 0.4, 0.8), facecolors=_COLOURS[outcome], linewidth=0)
    if not len(result.staleness):
        for end in result.timing.loc[result.timing["round"].isin(spans["round"]), "simulated_s"]:
            axes.axvline(end, color="#8a8a8a", linewidth=0.6, zorder=0)
    every = -(-len(clients) // 16)
    axes.set_yticks(range(0, len(clients), every), [str(client) for client in clients[::every]])
    axes.set_ylim(len(clients) - 0.5, -0.5)
    axes.set_xlim(0, float(spans["end_s"].max()))
    axes.set_xlabel(f"simulated time (s), rounds {int(spans['round'].min())} to {int(spans['round'].max())}")
    axes.set_ylabel("client")
    handles = [Patch(color=_COLOURS[outcome], label=_MEANING[outcome]) for outcome in seen]
    axes.legend(handles=handles, frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, fontsize=8)
    return figure


def _title(result: RunResult) -> str:
    summary = result.summary
    policy = result.config.get("policy", {}).get("kind", "wait")
    return f"{summary.get('method', 'run')}, {summary.get('clients', '?')} clients, policy {policy}"


def _new(title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11, pad=22)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return figure, axes
