"""One run of a study, begun, continued or found finished; and the process that does nothing else.

`main` reads one JSON object a line, ``{"tables": …, "folder": …}``, and answers with one line each. It ends when its input
does; a run that goes on then stops with a checkpoint.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ...errors import DualfedError, InvalidValue

FINISHED = ("completed", "exhausted")
Reply = dict[str, Any]


def ending_of(folder: Path) -> str:
    """How the run in ``folder`` ended, ``unfinished``, or ``none`` where no run was begun."""
    if not (folder / "config.toml").exists():
        return "none"
    try:
        return str(json.loads((folder / "summary.json").read_text())["ending"])
    except (OSError, ValueError, KeyError):
        return "unfinished"


def execute(tables: Mapping[str, Any], folder: Path) -> Reply:
    """Bring about the run ``tables`` in ``folder``.

    Returns:
        ``{"ending": …}``; ``{"refused": [field, value, cure]}`` where the configuration cannot be run; or
        ``{"failed": sentence, "trace": …}``.
    """
    try:
        return {"ending": _brought_about(tables, folder)}
    except InvalidValue as error:
        return {"refused": [error.field, error.value, error.cure]}
    except DualfedError as error:
        return {"failed": " ".join(str(error).split())}
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return {"failed": first, "trace": traceback.format_exc()}


def _brought_about(tables: Mapping[str, Any], folder: Path) -> str:
    import torch

    from ..folder import locked
    from ..simulate import resume, simulate

    if (ending := ending_of(folder)) in FINISHED:
        return ending
    if tables.get("engine") == "inline":
        torch.set_num_threads(1)
    if ending != "none":
        try:
            return resume(folder, engine=str(tables["engine"])).ending
        except DualfedError:
            pass  # what cannot be continued is begun anew: nothing of it was used
    if folder.exists():
        with locked(folder):
            for path in folder.iterdir():
                if path.name != ".lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return simulate(tables, out=folder).ending


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are none left."""
    waiting: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in requests:
            waiting.put(line)
        waiting.put(None)
        os.kill(os.getpid(), signal.SIGTERM)  # whoever asked is gone: a run that goes on stops with a checkpoint

    threading.Thread(target=listen, daemon=True).start()
    while (line := waiting.get()) is not None:
        request = json.loads(line)
        answers.write(json.dumps(execute(request["tables"], Path(request["folder"])), default=repr) + "\n")
        answers.flush()


def main() -> None:
    """Serve on the process's own input and output; whatever libraries print goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process that asks, which then says so
    serve(sys.stdin, answers)
