"""Two machines by hand, as docs/cluster.md has it: two network namespaces with addresses of their own, and Ray's token."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil
import pytest
from dualfed import load_result

pytestmark = [pytest.mark.ray, pytest.mark.slow]

RAY = ["-m", "ray.scripts.scripts"]
PORT = 6379
RUN = """
name = "two"
seed = 5
evaluate_every = 5
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
rounds = 20
participants = 4
local_steps = 2
batch_size = 10
[privacy]
mode = "total"
epsilon = 8.0
[actors]
clients_per_actor = 1
"""


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


@pytest.fixture
def machines():
    """``{name of the namespace: address}`` of two that reach each other and nothing else."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip (iproute2)")
    tag = secrets.token_hex(2)
    names, net = [f"df{tag}a", f"df{tag}b"], f"10.{200 + os.getpid() % 50}.{os.getpid() % 250}"
    if ip("netns", "add", names[0], check=False).returncode:
        pytest.skip("network namespaces may not be made here (not root)")
    made = {name: f"{net}.{number}" for number, name in enumerate(names, 1)}
    try:
        ip("netns", "add", names[1])
        ip(
            "link",
            "add",
            f"v{names[0]}",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            f"v{names[1]}",
            "netns",
            names[1],
        )
        for name, address in made.items():
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"v{name}")
            for device in ("lo", f"v{name}"):
                ip("-n", name, "link", "set", device, "up")
        yield made
    finally:
        for name in names:
            ip("netns", "del", name, check=False)


@pytest.fixture
def cluster(machines):
    """A head on the first machine and a node on the second; ``(on_first, environment)`` to call a command there."""
    (first, address), (second, other) = machines.items()
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    folders = [tempfile.mkdtemp(prefix="two-", dir="/tmp") for _ in machines]
    started = []

    def start(name, folder, *options):
        words = ["ip", "netns", "exec", name, sys.executable, *RAY, "start", "--num-cpus=1", "--block", *options]
        if "--head" in options:
            words += [f"--temp-dir={folder}", "--include-dashboard=false"]
        environment = {**os.environ, **token, "TMPDIR": folder}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(words, env=environment, start_new_session=True, **quiet))

    try:
        start(first, folders[0], "--head", f"--node-ip-address={address}", f"--port={PORT}")
        time.sleep(6)
        start(second, folders[1], f"--address={address}:{PORT}", f"--node-ip-address={other}")
        time.sleep(6)
        yield ["ip", "netns", "exec", first, sys.executable, "-m", "dualfed"], f"{address}:{PORT}", token
    finally:
        for process in reversed(started):
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
            for left in psutil.wait_procs(family, timeout=30)[1]:
                left.kill()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def test_two_machines_give_the_numbers_of_one(cluster, machines, tmp_path):
    on_first, address, token = cluster
    (tmp_path / "run.toml").write_text(RUN)

    def call(words, more):
        environment = {**{k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}, **more}
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)

    sick = call([*on_first, "doctor", "--address", address], token)
    assert sick.returncode == 0, sick.stdout + sick.stderr
    assert "2 nodes with 2 CPUs answer" in sick.stdout
    done = call([*on_first, "run", "run.toml", "--address", address, "--out", "two"], token)
    assert done.returncode == 0, done.stdout + done.stderr
    alone = call([sys.executable, "-m", "dualfed", "run", "run.toml", "--engine", "inline", "--out", "one"], {})
    assert alone.returncode == 0, alone.stderr
    one, two = load_result(tmp_path / "one"), load_result(tmp_path / "two")
    np.testing.assert_allclose(one.model, two.model, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(one.metrics.to_numpy(float), two.metrics.to_numpy(float), rtol=1e-5, atol=1e-9)
    assert one.clients["epsilon"].tolist() == two.clients["epsilon"].tolist()

    stranger = call([*on_first, "run", "run.toml", "--address", address, "--out", "x"], {"RAY_AUTH_MODE": "disabled"})
    assert stranger.returncode == 2, stranger.stdout + stranger.stderr
    assert "token" in stranger.stderr
    assert "Traceback" not in stranger.stderr
