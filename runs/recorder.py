"""Keeps what happens in a run: frames for the user, parquet files in the run's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..actors.feed import FeedWriter

# Which columns land in which file. What depends on private data stays apart, and is marked.
_TABLES = {"evaluated": "metrics", "diagnosed": "diagnostics", "round": "timing"}
_TIMING = ("round", "participants", "released", "seconds", "host_seconds", "simulated_s")
_BY_ROUND = ("metrics", "diagnostics", "timing", "events", "spans")
NON_PRIVATE = {"dualfed": "non-private diagnostics of the simulation: computed from private data, not a release"}


class FileRecorder:
    """Collects the coordinator's events and writes them when asked; the feed for other processes at once.

    Args:
        folder: where the files go; None keeps the frames in memory alone.
        resumed_to: the round of the checkpoint that the run continues from; rows after it are dropped. None starts anew.
        status: whether the ε in the tables is guaranteed or claimed, which their schema and every line of the feed that
            holds one say.
    """

    def __init__(self, folder: Path | None, resumed_to: int | None = None, status: str = "guaranteed") -> None:
        self.folder, self._status = folder, status
        self._notes = {
            "diagnostics": NON_PRIVATE,
            "metrics": {"epsilon": status if status == "guaranteed" else "claimed, not guaranteed"},
        }
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*_BY_ROUND, "client_times", "staleness")}
        self._states: dict[str, list[np.ndarray]] = {}
        self._feed = None if folder is None else FeedWriter(folder)
        if folder is not None and resumed_to is not None:
            for table in _BY_ROUND:
                path = folder / f"{table}.parquet"
                if path.exists():
                    frame = pd.read_parquet(path)
                    kept = frame[frame["round"] <= resumed_to].to_dict("records")
                    self._rows[table] = [{str(name): value for name, value in row.items()} for row in kept]
            self._states = _recorded(folder / "states.npz", resumed_to)

    def take(self, event: dict[str, Any]) -> None:
        """Note one event."""
        kind = event["kind"]
        if self._feed is not None:
            self._feed.take({**event, "status": self._status} if "epsilon_max" in event else event)
        if kind == "states":
            for name, value in event.items():
                if name not in ("kind", "round"):
                    self._states.setdefault(name, []).append(np.asarray(value))
        elif (table := _TABLES.get(kind)) is not None:
            kept = {name: value for name, value in event.items() if name != "kind"}
            if kind == "round":
                kept = {name: kept[name] for name in _TIMING if name in kept}
            self._rows[table].append(kept)
        elif kind == "spans":
            self._rows["spans"] += event["rows"]
        elif kind == "client-times":
            self._rows["client_times"], self._rows["staleness"] = event["clients"], event["staleness"]
        else:
            detail = {name: str(value) for name, value in event.items() if name not in ("kind", "round")}
            text = "; ".join(f"{name}: {value}" for name, value in detail.items())
            self._rows["events"].append({"round": event["round"], "kind": kind, "detail": text})

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables so far, by name: metrics, diagnostics, timing, events, spans, client_times, staleness."""
        return {table: pd.DataFrame(rows) for table, rows in self._rows.items()}

    def states(self) -> dict[str, np.ndarray]:
        """Recorded states; some methods keep private ones, hence the mode of the file: ``{"x0": [T, d], "x": [T, N, d], …}``."""
        return {name: np.stack(values) for name, values in self._states.items()}

    def flush(self) -> None:
        """Write the tables, each replaced as a whole."""
        if self.folder is None:
            return
        for table, frame in self.frames().items():
            if len(frame.columns):
                write_frame(frame, self.folder / f"{table}.parquet", self._notes.get(table, {}))
        if self._states:
            partial = self.folder / "states.partial.npz"
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                np.savez(file, **self.states())  # type: ignore[arg-type]
            os.replace(partial, self.folder / "states.npz")


def _recorded(path: Path, rounds: int) -> dict[str, list[np.ndarray]]:
    """The states of the first ``rounds`` rounds, one row a round; nothing where they were not all recorded."""
    if not rounds or not path.exists():
        return {}
    with np.load(path) as file:
        rows = {name: list(file[name][:rounds]) for name in file.files}
    return rows if all(len(kept) == rounds for kept in rows.values()) else {}


def write_frame(frame: pd.DataFrame, path: Path, note: dict[str, str]) -> None:
    """Write a parquet file atomically, with ``note`` in its schema. The same rows give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), **{name.encode(): value.encode() for name, value in note.items()}}
    partial = path.with_suffix(".partial")
    pq.write_table(table.replace_schema_metadata(metadata), partial)
    os.replace(partial, path)
