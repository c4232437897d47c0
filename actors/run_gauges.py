"""What a run has spent and done, for Prometheus, through Ray's own metrics.

Ray exports them on each node's metrics port (``ray start --metrics-export-port``) where it collects metrics, which needs
``ray[default]``; elsewhere setting a gauge costs a few microseconds and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.util.metrics import Gauge

_WORDS = {
    "dualfed_epsilon_spent": "The largest epsilon of any client, as of the last evaluation; claimed or guaranteed by its label",
    "dualfed_epsilon_budget": "The largest epsilon that a client may spend; +Inf without a budget",
    "dualfed_rounds_done": "Rounds done",
    "dualfed_refusals": "Releases refused because a budget would have been passed",
    "dualfed_hosts_lost": "Host processes lost",
}


class RunGauges:
    """The gauges of one run, set from its events.

    Args:
        labels: ``run`` (its id), ``name``, and ``status``: whether its ε is guaranteed or claimed.
        budgets: ``[N]`` ε, or None.
    """

    def __init__(self, labels: dict[str, str], budgets: np.ndarray | None) -> None:
        self._gauges = {name: Gauge(name, description=words, tag_keys=tuple(labels)) for name, words in _WORDS.items()}
        for gauge in self._gauges.values():
            gauge.set_default_tags(labels)
        self._refused = self._lost = 0
        self._set("epsilon_budget", np.inf if budgets is None else float(np.max(budgets)))
        for name in ("epsilon_spent", "rounds_done", "refusals", "hosts_lost"):
            self._set(name, 0.0)

    def take(self, event: dict[str, Any]) -> None:
        """Note one event."""
        match event["kind"]:
            case "round" | "resumed":
                self._set("rounds_done", event["round"])
            case "evaluated":
                self._set("epsilon_spent", event["epsilon_max"])
            case "refused":
                self._refused += 1
                self._set("refusals", self._refused)
            case "lost":
                self._lost += 1
                self._set("hosts_lost", self._lost)

    def _set(self, name: str, value: float) -> None:
        self._gauges[f"dualfed_{name}"].set(float(value))
