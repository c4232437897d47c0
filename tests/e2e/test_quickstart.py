"""The installed command, from start to end, on Ray."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

COMMAND = str(Path(sys.executable).with_name("dualfed"))


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder for the command; short, since sockets in it may not have long names. It must end empty."""
    folder = Path(tempfile.mkdtemp(prefix="e2e-", dir="/tmp"))
    yield folder
    left = [path.name for path in folder.iterdir()]
    shutil.rmtree(folder)
    assert left == []


def environment(temporary: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary)}


def call(*arguments: str, cwd: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=cwd,
        env=environment(temporary),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )


def test_the_quickstart(tmp_path: Path, temporary: Path) -> None:
    done = call("run", "quickstart", "--out", "run", cwd=tmp_path, temporary=temporary)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run"
    summary = json.loads((folder / "summary.json").read_text())
    plain = json.loads((folder / "without-privacy" / "summary.json").read_text())
    assert summary["ending"] == "completed"
    assert summary["actors"] == summary["clients"]
    assert summary["accuracy"] > 0.6
    assert plain["accuracy"] > summary["accuracy"]
    assert 7.5 < summary["epsilon_max"] <= 8.0
    text = " ".join(done.stdout.replace("│", " ").split())
    for words in (
        f"{100 * summary['accuracy']:.1f} %",
        "guaranteed (8.00, 1e-05)-DP",
        "Each client holds",
        "without privacy",
    ):
        assert words in text
    for name in ("config.toml", "environment.json", "ledger.sqlite", "model.safetensors", "plots/accuracy-epsilon.png"):
        assert (folder / name).is_file(), name
    for table in ("metrics", "diagnostics", "timing", "clients"):
        assert len(pd.read_parquet(folder / f"{table}.parquet"))
    # Nothing of Ray's start-up reaches the user: every line on the error stream is the progress of one of the two runs.
    noise = [
        line for line in done.stderr.splitlines() if not re.match(r"(quickstart|without privacy): round \d+/\d+", line)
    ]
    assert noise == []


def test_interrupt_and_resume(tmp_path: Path, temporary: Path) -> None:
    settings = ["--set", "method.rounds=200", "--set", "compare_without_privacy=false", "--set", "evaluate_every=100"]
    running = subprocess.Popen(
        [COMMAND, "run", "quickstart", "--out", "run", *settings],
        cwd=tmp_path,
        env=environment(temporary),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    for line in running.stderr:
        if "round" in line:
            break
    time.sleep(1.0)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    text = " ".join(out.replace("│", " ").split())
    assert "Go on with: dualfed resume" in text
    stopped = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stopped["ending"] == "stopped"
    assert 0 < stopped["rounds_done"] < 200
    spent = pd.read_parquet(tmp_path / "run" / "clients.parquet")["epsilon"]

    done = call("resume", "run", "--engine", "inline", cwd=tmp_path, temporary=temporary)
    assert done.returncode == 0, done.stderr
    finished = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert finished["ending"] == "completed"
    clients = pd.read_parquet(tmp_path / "run" / "clients.parquet")
    assert (clients["releases"] == 200).all()
    assert (clients["epsilon"] >= spent - 1e-9).all()
    assert clients["epsilon"].max() <= 8.0
