"""Runs that another process carries out: followed by what they write down, and asked to stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..actors.feed import FEED, FeedReader
from ..actors.run_file import read_run_file
from ..errors import InvalidValue, RunBroken
from .folder import user_of

_LOOK_S = 0.3
_ASK_S = 0.2


def follow(folder: Path, listen: Callable[[dict[str, Any]], None]) -> str:
    """Tell ``listen`` all that has happened in a run and goes on happening, until it is over; how it ended.

    Raises RunBroken if the process that carried it out is gone without having ended it.
    """
    facts = read_run_file(folder)
    if "rounds" in facts:
        listen({**facts, "kind": "prepared", "round": 0})
    reader, ending = FeedReader(folder / FEED), None
    while True:
        alone = user_of(folder) is None  # before reading: whatever was written by then is read below
        for event in reader.fresh():
            if event["kind"] == "started":
                ending = None
            elif event["kind"] == "ended":
                ending = str(event["ending"])
            listen(event)
        if alone:
            break
        time.sleep(_LOOK_S)
    if ending is None or _unfinished(folder, ending):
        raise RunBroken(f"the run is not going on and did not end; go on with `dualfed resume {folder}`")
    return ending


def ask_to_stop(folder: Path) -> None:
    """Ask whoever carries out the run to stop with a checkpoint.

    Raises InvalidValue: the run does not go on, or does so out of this process's reach.
    """
    user = user_of(folder)
    if user is None:
        raise InvalidValue("RUN", str(folder), "does not go on now; there is nothing to stop")
    if user.get("actor"):
        _ask_holder(user)
        return
    if user.get("host") != socket.gethostname() or not isinstance(user.get("pid"), int):
        cure = f"goes on on {user.get('host', 'another machine')}; stop it there"
        raise InvalidValue("RUN", str(folder), cure)
    try:
        os.kill(user["pid"], signal.SIGINT)  # SIGTERM is Ray's own for the seconds in which it starts
    except PermissionError:
        raise InvalidValue("RUN", str(folder), "belongs to another user, who alone may stop it") from None


def wait_for_end(folder: Path, patience_s: float) -> bool:
    """Wait until nobody uses the run's folder; False if somebody still does after ``patience_s``."""
    deadline = time.monotonic() + patience_s
    while user_of(folder) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_ASK_S)
    return True


def _ask_holder(user: dict[str, Any]) -> None:
    from ..actors.cluster import connected
    from ..actors.held_run import ask_holder_to_stop, holder_named

    # A run that ended meanwhile has no name any more, or does not answer.
    with connected(user["address"], user.get("auth")), contextlib.suppress(ValueError):
        ask_holder_to_stop(holder_named(user["actor"]))


def _unfinished(folder: Path, ending: str) -> bool:
    try:
        return str(json.loads((folder / "summary.json").read_text())["ending"]) != ending
    except (OSError, ValueError, KeyError):
        return ending != "failed"
