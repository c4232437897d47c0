"""What a study reads from every finished run, as one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..results import RunResult

MEASURES: Mapping[str, str] = {
    "accuracy": "test accuracy of the released model at the end, 0 to 1; NaN where the problem has none",
    "loss": "test loss of the released model at the end",
    "objective": "H at the end; a non-private diagnostic of the simulation",
    "epsilon": "the largest ε of any client; ∞ without noise",
    "epsilon_is": "guaranteed, claimed, or no noise",
    "delta": "the δ of that ε",
    "unit": "what two neighbouring data sets differ in: record or client",
    "account": "by which account ε was computed",
    "rounds_done": "rounds that took place",
    "scalars_sent": "numbers sent over the network by all clients and the server together",
    "seconds": "working time of the rounds on this machine",
    "ending": "completed, or exhausted where nobody could take part any more",
}


def measures(result: RunResult) -> dict[str, Any]:
    """The measures of a finished run, by the names of `MEASURES`."""
    summary = result.summary
    last: dict[Any, Any] = result.diagnostics.iloc[-1].to_dict() if len(result.diagnostics) else {}
    sent = int(summary["bytes_up"]) + int(summary["bytes_down"])
    return {
        "accuracy": float(summary.get("accuracy", np.nan)),
        "loss": float(summary["loss"]),
        "objective": float(last.get("objective", np.nan)),
        "epsilon": float(summary["epsilon_max"]),
        "epsilon_is": epsilon_is(summary),
        "delta": float(summary["delta"]),
        "unit": str(summary["unit"]),
        "account": str(summary["account"]),
        "rounds_done": int(summary["rounds_done"]),
        "scalars_sent": sent // np.dtype(result.config["dtype"]).itemsize,
        "seconds": float(summary["seconds"]),
        "ending": result.ending,
    }


def epsilon_is(summary: Mapping[str, Any]) -> str:
    """The word that stands by a run's ε."""
    return "no noise" if summary["mode"] == "none" else str(summary["status"])
