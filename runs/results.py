"""What a run leaves, as pandas frames and arrays."""

from __future__ import annotations

import json
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from .folder import existing_folder, readable

T = TypeVar("T")


@dataclass(frozen=True)
class RunResult:
    """A run, read from its folder.

    Attributes:
        folder: the run's folder; None where the run kept none.
        ending: ``completed``, ``stopped``, ``exhausted`` (nobody may take part any more) or ``failed``.
        config: the resolved configuration as plain tables.
        summary: what the closing summary prints.
        metrics: one row an evaluation: round, accuracy, loss, epsilon_max, epsilon_median, bytes_up, bytes_down, …
        diagnostics: NOT private: objective, local_loss, consensus; computed from private data, never released.
        timing: one row a round: seconds.
        events: refusals, losses, restarts.
        clients: one row a client: size, host, noise multiplier, releases, ε, its account and status.
        model: ``[d]`` the released model after the last round.
        spans: where time was simulated, what up to 64 clients did when: round, client, start_s, end_s, outcome.
        staleness: of an asynchronous run, how often each client's work was used at each staleness.
        states: recorded states ``{"x0": [T, d], "x": [T, N, d], …}`` where ``record_states`` was set.
    """

    folder: Path | None
    ending: str
    config: dict[str, Any]
    summary: dict[str, Any]
    metrics: pd.DataFrame
    diagnostics: pd.DataFrame
    timing: pd.DataFrame
    events: pd.DataFrame
    clients: pd.DataFrame
    model: np.ndarray
    states: dict[str, np.ndarray] = field(default_factory=dict)
    spans: pd.DataFrame = field(default_factory=pd.DataFrame)
    staleness: pd.DataFrame = field(default_factory=pd.DataFrame)

    @cached_property
    def accuracy(self) -> float:
        """Test accuracy of the released model at the last evaluation; NaN where the problem has none."""
        return float(self.metrics["accuracy"].iloc[-1]) if "accuracy" in self.metrics else float("nan")

    def seconds_to(self, accuracy: float) -> float:
        """Simulated seconds until an evaluation first reached this test accuracy; ``inf`` if none did, NaN where nothing
        took time."""
        if "simulated_s" not in self.metrics or "accuracy" not in self.metrics:
            return float("nan")
        reached = self.metrics.loc[self.metrics["accuracy"] >= accuracy, "simulated_s"].dropna()
        return float(reached.iloc[0]) if len(reached) else float("inf")

    @cached_property
    def epsilon(self) -> float:
        """The largest ε of any client."""
        return float(self.clients["epsilon"].max())


def load_result(folder: Path) -> RunResult:
    """Read a run's folder. Raises InvalidValue if it holds no run, or a file in it is damaged."""
    existing_folder(folder)
    summary: dict[str, Any] = _read(folder, "summary.json", lambda path: json.loads(path.read_text()), {})
    frames = {
        name: _read(folder, f"{name}.parquet", pd.read_parquet, pd.DataFrame())
        for name in ("metrics", "diagnostics", "timing", "events", "clients", "spans", "staleness")
    }
    return RunResult(
        folder=folder,
        ending=summary.get("ending", "unfinished"),
        config=_read(folder, "config.toml", lambda path: tomllib.loads(path.read_text()), {}),
        summary=summary,
        model=_read(folder, "model.safetensors", _model, np.empty(0)),
        states=_read(folder, "states.npz", _arrays, {}),
        **frames,
    )


def _read(folder: Path, name: str, read: Callable[[Path], T], otherwise: T) -> T:
    """What a file of a run holds; ``otherwise`` where there is none, as before its end. Raises InvalidValue."""
    if not (folder / name).exists():
        return otherwise
    with readable(folder, name):
        return read(folder / name)


def _model(path: Path) -> np.ndarray:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return np.asarray(load_file(path)["x0"])
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from None
