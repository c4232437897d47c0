"""The run's numbers as Prometheus reads them, https://prometheus.io/docs/instrumenting/exposition_formats/ ."""

from __future__ import annotations

import math

import numpy as np

from .board import CONDITIONS, Board
from .views import rate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CLIENTS_LISTED = 1000


def exposition(board: Board) -> str:
    """Gauges of the run; those of each client for runs of up to 1,000 clients."""
    facts, accounts = board.facts, board.accounts
    run = f'run="{_escaped(facts.identity)}",name="{_escaped(facts.name)}"'
    lines: list[str] = []

    def gauge(name: str, help: str, *samples: tuple[str, float]) -> None:
        lines.append(f"# HELP dualfed_{name} {help}")
        lines.append(f"# TYPE dualfed_{name} gauge")
        lines.extend(f"dualfed_{name}{{{run}{labels}}} {_value(value)}" for labels, value in samples)

    gauge("rounds_done", "Rounds that are complete.", ("", board.done))
    gauge("rounds", "Rounds planned.", ("", facts.rounds))
    gauge("exact_as_of_round", "Round of the last charge that every epsilon here includes.", ("", board.exact_round))
    gauge("running", "1 while the run goes on.", (f',state="{board.state}"', float(board.state == "running")))
    gauge("rounds_per_second", "By the wall clock, over the last rounds.", ("", rate(board) or math.nan))
    gauge("releases", "Releases charged, of all clients.", ("", float(accounts.releases.sum())))
    counted = np.bincount(board.condition, minlength=len(CONDITIONS))
    gauge("clients", "By condition.", *((f',condition="{c}"', float(counted[k])) for k, c in enumerate(CONDITIONS)))
    for name, values in board.metrics.items():
        if name in ("accuracy", "loss") and len(values):
            gauge(f"test_{name}", "Of the released model, on held-out records.", ("", values[-1]))
    labels = [f',status="{s}",unit="{u}",delta="{facts.delta:g}"' for s, u in zip(accounts.status, accounts.unit)]
    worst = int(np.argmax(accounts.epsilon))
    gauge(
        "epsilon_max",
        "Largest privacy loss of any client; a bound, claimed where status says so.",
        (labels[worst], accounts.epsilon[worst]),
    )
    if len(accounts.client) <= _CLIENTS_LISTED:
        named = zip(accounts.client, labels)
        rows = [(f',client="{client}"{label}', place) for place, (client, label) in enumerate(named)]
        gauge("epsilon", "Privacy loss of a client.", *((label, accounts.epsilon[place]) for label, place in rows))
        gauge("budget", "Largest epsilon allowed.", *((label, accounts.budget[place]) for label, place in rows))
    return "\n".join(lines) + "\n"


def _value(value: float) -> str:
    value = float(value)
    return "NaN" if math.isnan(value) else "+Inf" if value == math.inf else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
