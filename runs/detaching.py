"""Runs that go on without the process that started them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .folder import LOG

_READY = "DUALFED_READY"  # names the descriptor on which a process that goes on alone says that its run has begun
_TOLD_LINES = 12


def detached(command: Sequence[str], folder: Path) -> int:
    """Have another process do a command of ours on ``folder``, away from this terminal; the exit code.

    Returns once the run has begun, or with what that process said if it ended before. That process keeps the run's own Ray
    cluster, and ends it with the run.
    """
    log, folder = folder / LOG, folder.resolve()
    reading, writing = os.pipe()
    where = ["--out", str(folder)] if command[0] == "run" else [str(folder)]
    # Open for reading too: a run that does not begin removes its folder, and this file with it.
    with open(log, "a+b") as said:
        began = said.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-m", "dualfed", *command, *where],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            pass_fds=(writing,),
            env={**os.environ, _READY: str(writing)},
        )
        os.close(writing)
        said_so = os.read(reading, 1)
        os.close(reading)
        if said_so:
            say_how_to_watch(str(folder), None)
            return 0
        code = process.wait()
        said.seek(began)
        text = said.read().decode(errors="replace")
    if command[0] == "run" and not (folder / "config.toml").exists():  # nothing began: leave nothing
        log.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
    print("\n".join(text.strip().splitlines()[-_TOLD_LINES:]), file=sys.stderr)
    return code


def say_begun() -> None:
    """Tell the process that detached this one, if there is any, that the run has begun."""
    descriptor = os.environ.pop(_READY, None)
    if descriptor is not None:
        os.write(int(descriptor), b"1")
        os.close(int(descriptor))


def say_how_to_watch(folder: str, address: str | None) -> None:
    """Print the run's folder and the commands for it; ``address`` where the folder is on that cluster's head."""
    there = "" if address is None else f" --address {address}"
    print(folder)
    print(f"The run goes on without this command. Watch it with: dualfed watch {folder}{there}")
    print(f"End it, with a checkpoint, with: dualfed stop {folder}{there}")
