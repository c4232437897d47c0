"""Worker processes that carry out runs side by side. A worker that dies costs its run, not the study."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .work import Reply, execute

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Task:
    """A run to bring about: its tables as plain values, and its folder."""

    tables: Mapping[str, Any]
    folder: Path


def carried_out(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[int, Reply]]:
    """Every task's position and reply, as they come. With one job everything happens in this process.

    Closing the iterator stops the runs that go on, with a checkpoint each.
    """
    if jobs <= 1 or len(tasks) <= 1:
        for index, task in enumerate(tasks):
            yield index, execute(task.tables, task.folder)
        return
    crew = _Crew(tasks, min(jobs, len(tasks)))
    try:
        for _ in tasks:
            yield crew.replies.get()
    finally:
        crew.dismiss()


class _Crew:
    """One thread and one process for each job; threads take tasks in order."""

    def __init__(self, tasks: Sequence[Task], jobs: int) -> None:
        self.replies: queue.Queue[tuple[int, Reply]] = queue.Queue()
        self._todo: queue.SimpleQueue[tuple[int, Task]] = queue.SimpleQueue()
        for numbered in enumerate(tasks):
            self._todo.put(numbered)
        self._processes: set[subprocess.Popen[str]] = set()
        self._leaving = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(jobs)]
        for thread in self._threads:
            thread.start()

    def dismiss(self) -> None:
        """End all processes; runs that go on stop with a checkpoint first."""
        self._leaving.set()
        for process in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        for process in list(self._processes):
            process.kill()

    def _work(self) -> None:
        process = None
        while not self._leaving.is_set():
            try:
                index, task = self._todo.get_nowait()
            except queue.Empty:
                break
            if process is None:
                process = self._started()
            reply = _asked(process, task)
            if reply is None:
                code = process.wait()
                self._processes.discard(process)
                process = None
                reply = {"failed": f"its process ended before the run did ({_how(code)})"}
            self.replies.put((index, reply))
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()
            self._processes.discard(process)

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from dualfed.runs.study.work import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._processes.add(process)
        return process


def _asked(process: subprocess.Popen[str], task: Task) -> Reply | None:
    """The worker's reply, or None where it is gone."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps({"tables": task.tables, "folder": str(task.folder)}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        return dict(json.loads(line)) if line else None
    except (OSError, ValueError):
        return None


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.Signals(-code).name}"
