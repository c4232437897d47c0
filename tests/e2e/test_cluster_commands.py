"""The commands about runs elsewhere, through the installed command: on a cluster that others keep, and alone."""

from __future__ import annotations

import json
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
from dualfed.runs.folder import user_of

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
rounds = 400
participants = 3
local_steps = 2
batch_size = 10
[privacy]
mode = "total"
epsilon = 8.0
[actors]
clients_per_actor = 3
"""
ALONE = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"}


@pytest.fixture(scope="module")
def address():
    """A cluster of a head and another node; ``(address, address for those elsewhere)``."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, value in ALONE.items():
            patch.setenv(name, value)
        port = 20_000 + os.getpid() % 20_000
        head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=1)
        yield made.address, f"ray://127.0.0.1:{port}"
        made.shutdown()


@pytest.fixture
def call(tmp_path):
    """``call("run", …)``: the finished command, run in the test's folder, where ``run.toml`` is."""
    (tmp_path / "run.toml").write_text(RUN)

    def run(*arguments, check=True, **more):
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env={**os.environ, **ALONE, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def wait_for_rounds(folder, t):
    for _ in range(600):
        if (folder / "events.jsonl").exists() and f'"round":{t}' in (folder / "events.jsonl").read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"no round {t} within a minute")


def complete(folder, rounds=400):
    assert json.loads((folder / "summary.json").read_text())["ending"] == "completed"
    assert pd.read_parquet(folder / "timing.parquet")["round"].tolist() == list(range(1, rounds + 1))
    ledger = Ledger.open_readonly(folder / "ledger.sqlite")
    try:
        assert max(spent.epsilon for spent in ledger.epsilon()) <= 8.0
        return int(ledger.participations.sum())
    finally:
        ledger.close()


def test_a_run_alone_is_watched_stopped_and_resumed_and_leaves_no_process(call, tmp_path):
    said = call("run", "run.toml", "--detach", "--out", "out", "--set", "method.rounds=2000").stdout
    out = tmp_path / "out"
    assert said.splitlines()[0] == str(out)
    user = user_of(out)
    family = [psutil.Process(user["pid"]), *psutil.Process(user["pid"]).children(recursive=True)]
    wait_for_rounds(out, 20)
    watching = subprocess.Popen([*COMMAND, "watch", "out"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert "round" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    assert "The run goes on." in watching.communicate(timeout=60)[1]
    assert user_of(out) is not None, "Ctrl-C of the watcher leaves the run alone"
    assert "dualfed resume" in call("stop", "out").stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary["ending"] == "stopped"
    assert 20 <= summary["rounds_done"] < 2000
    refused = call("stop", "out", check=False)
    assert refused.returncode == 2
    assert "nothing to stop" in refused.stderr

    call("resume", "out", "--detach")
    watched = call("watch", "out")
    assert "round 2000/2000" in watched.stderr
    assert "completed" in watched.stdout
    assert complete(out, 2000) == 3 * 2000
    _, left = psutil.wait_procs(family, timeout=60)
    assert left == []
    assert not list(Path("/tmp").glob(f"dualfed-{user['pid']}-*"))


def test_a_run_that_cannot_begin_alone_says_why(call, tmp_path):
    refused = call("run", "run.toml", "--detach", "--out", "out", "--set", "method.batch_size=10000", check=False)
    assert refused.returncode == 2
    assert "method.batch_size" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "out").exists()


def test_a_driver_killed_on_a_cluster_leaves_its_run_going(address, call, tmp_path):
    driver = subprocess.Popen(
        [*COMMAND, "run", "run.toml", "--address", address[0], "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, **ALONE},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_for_rounds(tmp_path / "out", 20)
    driver.kill()
    driver.wait()
    assert "completed" in call("watch", "out").stdout
    assert complete(tmp_path / "out") == 3 * 400


def test_two_runs_side_by_side_are_stopped_resumed_and_fetched(address, call, tmp_path):
    near, far = address
    for name, where in (("a", near), ("b", far)):
        call("run", "run.toml", "--address", where, "--detach", "--out", name, "--set", "method.rounds=3000")
    users = {name: user_of(tmp_path / name) for name in "ab"}
    assert users["a"]["actor"] != users["b"]["actor"]
    for name in "ab":
        wait_for_rounds(tmp_path / name, 20)
    going = call("fetch", str(tmp_path / "a"), "--address", near, "--to", "copy", check=False)
    assert going.returncode == 2
    assert "still goes on" in going.stderr
    assert "Stopped" in call("stop", "a").stdout
    call("stop", str(tmp_path / "b"), "--address", far)
    call("watch", "b", check=False)
    for name in "ab":
        assert json.loads((tmp_path / name / "summary.json").read_text())["ending"] == "stopped"
    call("fetch", str(tmp_path / "b"), "--address", far, "--to", "copy")
    for path in ("summary.json", "ledger.sqlite", "metrics.parquet", "model.safetensors"):
        assert (tmp_path / "copy" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()
    missing = call("fetch", "/nowhere", "--address", near, "--to", "other", check=False)
    assert missing.returncode == 2
    assert "holds no run" in missing.stderr


def test_what_does_not_fit_is_refused_with_what_would(address, call, tmp_path):
    for setting, words in (
        ("actors.cpus=9", "the cluster has 2 CPUs on 2 nodes; give at most 2"),
        ("actors.gpus_per_actor=1", "no node has a GPU"),
    ):
        refused = call("run", "run.toml", "--address", address[0], "--out", "x", "--set", setting, check=False)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        assert words in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not (tmp_path / "x").exists()


def test_no_cluster_there_is_one_sentence(call):
    for where in ("127.0.0.1:1", "ray://127.0.0.1:1", "somewhere"):
        refused = call("run", "run.toml", "--address", where, check=False)
        assert refused.returncode == 2
        assert refused.stderr.startswith("error: --address")


def test_many_runs_are_spread_over_a_cluster_with_the_numbers_of_this_machine(address, call, tmp_path):
    (tmp_path / "run.toml").write_text(RUN.replace("rounds = 400", "rounds = 20"))
    sweep = ["sweep", "run.toml", "--grid", "privacy.epsilon=2,8"]
    call(*sweep, "--engine", "inline", "--jobs", "1", "--out", "here")
    call(*sweep, "--address", address[0], "--out", "there")
    here, there = (pd.read_csv(tmp_path / name / "sweep.csv").drop(columns="seconds") for name in ("here", "there"))
    pd.testing.assert_frame_equal(here, there, check_exact=True)
    tradeoff = ["reproduce", "spade-tradeoff", "--set", "partition.clients=4", "--set", "method.local_steps=2"]
    call(*tradeoff, "--set", "method.rounds=2", "--set", "evaluate_every=1", "--address", address[0], "--out", "trade")
    assert len(pd.read_csv(tmp_path / "trade" / "spade-tradeoff-runs.csv")) == 13
