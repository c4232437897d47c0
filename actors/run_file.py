"""What a run is and where it goes on, for other processes: ``run.json`` in the run's folder."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import psutil

RUN_FILE = "run.json"
VERSION = 1
_SAME_PROCESS_S = 2.0

State = Literal["running", "completed", "stopped", "exhausted", "failed", "lost", "unknown"]
"""``lost``: the process that drove the run is gone without having ended it. ``unknown``: it ran on another machine."""


class RunFile:
    """Keeps ``run.json`` up to date while a run goes on; each version replaces the one before it as a whole.

    Args:
        folder: the run's folder.
        facts: JSON values that say what the run is: ``run`` (its id), name, method, unit, status, engine, rounds,
            clients, delta, budget.
    """

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        self._path = folder / RUN_FILE
        driver = psutil.Process()
        self._content: dict[str, Any] = {
            "version": VERSION,
            **facts,
            "state": "running",
            "started": time.time(),
            "ended": None,
            "driver": {"pid": driver.pid, "started": driver.create_time(), "host": socket.gethostname()},
            "cluster": None,
            "ledger": None,
            "processes": {},
        }
        self._write()

    def listening(self, listen: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        """``listen``, with every event noted here first."""

        def hear(event: dict[str, Any]) -> None:
            self.take(event)
            listen(event)

        return hear

    def take(self, event: dict[str, Any]) -> None:
        """Note what an event says of the run's whereabouts and its end."""
        match event["kind"]:
            case "connected":
                self._content["cluster"] = {"address": event["address"], "auth": event["auth"]}
                self._content["ledger"] = {"name": event["ledger"], "namespace": event["namespace"]}
            case "placed":
                self._content["processes"] |= {"coordinator": event["coordinator"], "ledger": event["ledger"]}
            case "started" | "rebuilt":
                self._content["processes"] |= {"hosts": event["processes"]}
            case "ended":
                self.end(event["ending"])
                return
            case _:
                return
        self._write()

    def end(self, ending: str) -> None:
        """The run is over; the first call counts."""
        if self._content["state"] == "running":
            self._content |= {"state": ending, "ended": time.time(), "processes": {}}
            self._write()

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._content, indent=2))
        os.replace(partial, self._path)


def read_run_file(folder: Path) -> dict[str, Any]:
    """The content of ``run.json``; empty where there is none (a run of an earlier version) or it cannot be read."""
    try:
        content = json.loads((folder / RUN_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def state_of(content: dict[str, Any]) -> State:
    """How the run stands, judged from here: a run whose driver is gone is lost, whatever its file says."""
    state: State = content.get("state", "unknown")
    if state != "running":
        return state
    driver = content.get("driver", {})
    if driver.get("host") != socket.gethostname():
        return "unknown"
    try:
        began = psutil.Process(driver["pid"]).create_time()
        alive = psutil.Process(driver["pid"]).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return "lost"
    return "running" if alive and abs(began - driver["started"]) < _SAME_PROCESS_S else "lost"
