"""A run submitted as a job to a cluster whose nodes do not have the package."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv

import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]
pytest.importorskip("aiohttp", reason='job submission needs "dualfed[cluster]"')

RAY = ["-m", "ray.scripts.scripts"]
RUN = """
name = "job"
seed = 5
evaluate_every = 5
[data]
name = "synthetic"
records = 600
features = 8
classes = 3
[partition]
clients = 4
min_size = 40
[method]
name = "fedspd-dp"
rounds = 10
local_steps = 2
batch_size = 10
[privacy]
mode = "total"
epsilon = 8.0
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The interpreter of a fresh environment with what the package needs, and without the package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next((folder / "lib").glob("python*")) / "site-packages"
    # Folders named in a .pth file are searched, and their own .pth files are not: an editable install does not show.
    (packages / "base.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    python = str(folder / "bin" / "python")
    looked = subprocess.run([python, "-c", "import ray, torch, dualfed"], capture_output=True, text=True, cwd=folder)
    if looked.returncode == 0:
        pytest.skip("the package is installed into site-packages itself, so no environment here is without it")
    assert "No module named 'dualfed'" in looked.stderr
    return python


@pytest.fixture
def cluster(bare):
    """A cluster of that environment, with its dashboard; its address for jobs."""
    folder = tempfile.mkdtemp(prefix="job-", dir="/tmp")  # short: sockets in it may not have long names
    port, jobs = free_port(), free_port()
    quiet = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    options = [f"--port={port}", f"--dashboard-port={jobs}", f"--temp-dir={folder}", "--num-cpus=2", "--block"]
    head = subprocess.Popen(
        [bare, *RAY, "start", "--head", "--include-dashboard=true", "--disable-usage-stats", *options],
        env={**os.environ, **quiet},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(240):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", jobs)) == 0:
                    break
            time.sleep(0.25)
        yield f"http://127.0.0.1:{jobs}"
    finally:
        family = psutil.Process(head.pid).children(recursive=True)
        head.send_signal(signal.SIGTERM)
        head.wait(timeout=60)
        _, left = psutil.wait_procs(family, timeout=30)
        for process in left:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_brings_the_package_along(bare, cluster, tmp_path):
    (tmp_path / "run.toml").write_text(RUN)
    staged = subprocess.run(
        [sys.executable, "-m", "dualfed", "stage", "job", "run.toml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert staged.returncode == 0, staged.stderr
    assert "ray job submit" in staged.stdout
    assert {path.name for path in (tmp_path / "job").iterdir()} == {"dualfed", "run.toml"}
    entry = [bare, "-m", "dualfed", "run", "run.toml", "--address", "auto", "--out", str(tmp_path / "out")]
    for _ in range(20):
        submitted = subprocess.run(
            [bare, *RAY, "job", "submit", "--address", cluster, "--working-dir", str(tmp_path / "job"), "--", *entry],
            capture_output=True,
            text=True,
            timeout=200,
            cwd=tmp_path,
            env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        )
        if "No available agent" not in submitted.stderr:  # which comes up some seconds after the dashboard
            break
        time.sleep(2)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert "succeeded" in submitted.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["ending"] == "completed"
    assert summary["rounds_done"] == 10
    assert summary["epsilon_max"] <= 8.0
