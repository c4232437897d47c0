"""Runs that are interrupted or killed, through the installed command, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from dualfed.privacy.ledger import Ledger

pytestmark = [pytest.mark.ray, pytest.mark.slow]

COMMAND = [sys.executable, "-m", "dualfed"]
RUN = """
name = "long"
seed = 5
evaluate_every = 20
checkpoint_every = 40
[data]
name = "synthetic"
records = 600
features = 8
classes = 3
[partition]
clients = 6
min_size = 40
[method]
name = "fedspd-dp"
rounds = 300
participants = 3
local_steps = 2
batch_size = 10
[privacy]
mode = "total"
epsilon = 8.0
[actors]
clients_per_actor = 3
"""


@pytest.fixture
def started(tmp_path):
    """``started(engine)``: a long run of the installed command; ended by its own process id if a test forgets it."""
    running = []

    def start(engine):
        (tmp_path / "run.toml").write_text(RUN)
        environment = {**os.environ, "TMPDIR": "/tmp"}
        process = subprocess.Popen(
            [*COMMAND, "run", str(tmp_path / "run.toml"), "--engine", engine, "--out", str(tmp_path / "out")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for_round(process, t):
    for line in process.stdout:
        if f"round {t}/" in line:
            return
    pytest.fail(f"the run ended before round {t}")


def resumed(tmp_path):
    return subprocess.run([*COMMAND, "resume", str(tmp_path / "out")], capture_output=True, text=True, cwd=tmp_path)


def charges(tmp_path):
    ledger = Ledger.open_readonly(tmp_path / "out" / "ledger.sqlite")
    try:
        return ledger.participations.copy(), [spent.epsilon for spent in ledger.epsilon()]
    finally:
        ledger.close()


@pytest.mark.parametrize("engine", ["inline", "ray"])
def test_ctrl_c_then_resume(engine, started, tmp_path):
    process = started(engine)
    wait_for_round(process, 40)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "dualfed resume" in said
    assert "Traceback" not in said
    timing = pd.read_parquet(tmp_path / "out" / "timing.parquet")
    before, spent_before = charges(tmp_path)
    assert before.sum() == timing["released"].sum()
    assert 40 <= timing["round"].max() < 300

    again = resumed(tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    after, spent_after = charges(tmp_path)
    assert after.sum() == 3 * 300, "no round was charged twice"
    assert all(later >= earlier for earlier, later in zip(spent_before, spent_after))
    metrics = pd.read_parquet(tmp_path / "out" / "metrics.parquet")
    assert metrics["round"].tolist() == list(range(0, 301, 20))
    assert (metrics["epsilon_max"].diff().dropna() >= 0).all()
    assert pd.read_parquet(tmp_path / "out" / "timing.parquet")["round"].tolist() == list(range(1, 301))


def test_kill_then_resume_and_nothing_is_left(started, tmp_path):
    process = started("ray")
    wait_for_round(process, 60)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    process.kill()
    process.wait()
    before, spent_before = charges(tmp_path)
    assert before.sum() >= 3 * 60

    again = resumed(tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    after, spent_after = charges(tmp_path)
    assert (after >= before).all()
    assert all(later >= earlier for earlier, later in zip(spent_before, spent_after))
    assert max(spent_after) <= 8.0
    left = [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    for _ in range(240):  # Ray's agents notice the loss of their parent by and by
        left = [child for child in left if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        if not left:
            break
        time.sleep(0.5)
    assert not left, [child.cmdline()[:3] for child in left]
    assert not list(Path("/tmp").glob(f"dualfed-{process.pid}-*")), "the next run removes what a killed one left"
    assert not (tmp_path / "out" / "state").exists()
