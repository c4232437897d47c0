"""Runs on a cluster of three nodes whose hosts, nodes, coordinator, holder and driver are killed at random moments.

Usage: python benchmarks/storm.py [--runs 20] [--kills 3] [--rounds 600] [--seed 1] [--json FILE]

Every run has to complete, by itself or by `dualfed resume`. A witness outside the runs keeps every release: the gate of
every process writes (client, round, grant) to a file when it has released a value and before anyone gets it. Afterwards the
journal must hold every release that was seen, no grant may have been used twice, and no process that was started may be
left. Only processes that this script started are killed, by their process ids.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"}
NOTICE_SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
TARGETS = ("host", "node", "coordinator", "holder", "driver")
PATIENCE_S = 300.0
RUN = """
name = "storm"
seed = 11
evaluate_every = 50
checkpoint_every = 20
[data]
name = "synthetic"
records = 900
features = 8
classes = 3
[partition]
clients = 9
min_size = 40
[method]
name = "fedspd-dp"
rounds = {rounds}
participants = 6
local_steps = 2
batch_size = 10
[privacy]
mode = "noise-multiplier"
noise_multiplier = 4.0
[actors]
clients_per_actor = 2
"""
# Put before every interpreter: wraps the gate as soon as its module is there, and no other module.
WITNESS = """
import importlib.abc, importlib.util, os, sys

class _Loader(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader
    def create_module(self, spec):
        return self._loader.create_module(spec)
    def exec_module(self, module):
        self._loader.exec_module(module)
        plain = module.NoiseGate.release
        def release(gate, value, part=0):
            released = plain(gate, value, part)
            granted = gate._granted
            with open(os.path.join(os.environ["STORM_WITNESS"], f"{os.getpid()}.txt"), "a") as file:
                for client, number in zip(granted.clients.tolist(), granted.numbers.tolist()):
                    file.write(f"{client} {granted.round} {number}\\n")
            return released
        module.NoiseGate.release = release

class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "dualfed.privacy.gate":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        spec.loader = _Loader(spec.loader)
        return spec

sys.meta_path.insert(0, _Finder())
"""


class Storm:
    """One cluster, and the processes that belong to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        from ray.cluster_utils import Cluster

        self.folder, self.witness = folder, folder / "witness"
        self.witness.mkdir()
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(WITNESS)
        paths = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
        os.environ.update(QUIET, PYTHONPATH=paths, STORM_WITNESS=str(self.witness))
        self._draw = random.Random(seed)
        self._family: dict[int, psutil.Process] = {}
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": NOTICE_SOON}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._fill()

    def _fill(self) -> None:
        while len(self._cluster.list_all_nodes()) < 3:
            self._cluster.add_node(num_cpus=1)

    def _look(self) -> None:
        for process in psutil.Process().children(recursive=True):
            self._family.setdefault(process.pid, process)

    def start(self, run: Path, first: bool) -> subprocess.Popen[bytes]:
        """The driver of a run, from its beginning or from its last checkpoint."""
        what = ["run", str(self.folder / "storm.toml"), "--out", str(run)] if first else ["resume", str(run)]
        with open(f"{run}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dualfed", *what, "--address", self._cluster.address],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self, run: Path, driver: subprocess.Popen[bytes]) -> str:
        """Kill something of a run that goes on; what it was."""
        self._look()
        target = self._draw.choice(TARGETS if driver.poll() is None else TARGETS[:-1])
        facts = json.loads((run / "run.json").read_text())
        processes = facts["processes"]
        if target == "node":
            others = self._cluster.list_all_nodes()[1:]
            self._cluster.remove_node(self._draw.choice(others), allow_graceful=False)
            self._fill()
            return target
        if target == "driver":
            driver.kill()
            return target
        if target == "holder":
            pid = facts["driver"]["pid"]
        elif target == "coordinator":
            pid = processes.get("coordinator", 0)
        else:
            pid = self._draw.choice([each for each in processes.get("hosts", [0]) if each] or [0])
        self._look()
        known = self._family.get(pid)
        if known is None or not known.is_running():  # not one of ours, or gone already
            return f"no {target}"
        known.send_signal(signal.SIGKILL)
        return target

    def pause(self) -> None:
        time.sleep(self._draw.uniform(0.3, 2.5))

    def end(self) -> int:
        """End the cluster; how many processes that belonged to it are left."""
        self._look()
        self._cluster.shutdown()
        _, left = psutil.wait_procs(list(self._family.values()), timeout=60)
        return len(left)


def in_use(run: Path) -> bool:
    from dualfed.runs.folder import user_of

    return user_of(run) is not None


def ending(run: Path) -> str:
    try:
        summary = json.loads((run / "summary.json").read_text())
    except (OSError, ValueError):
        return "unfinished"
    return str(summary["ending"])


def one_run(storm: Storm, run: Path, kills: int) -> dict[str, Any]:
    """Carry a run through its kills to its end."""
    driver, killed, resumes = storm.start(run, True), list[str](), 0
    deadline = time.monotonic() + PATIENCE_S
    while ending(run) != "completed" and time.monotonic() < deadline:
        going = in_use(run)
        if going and len(killed) < kills and (run / "run.json").exists() and _rounds(run) > 0:
            storm.pause()
            if in_use(run):
                killed.append(storm.kill(run, driver))
        elif not going and driver.poll() is not None and ending(run) != "completed":
            driver, resumes = storm.start(run, not (run / "config.toml").exists()), resumes + 1
            time.sleep(1.0)
        else:
            time.sleep(0.3)
    if driver.poll() is None:
        try:
            driver.wait(timeout=60)
        except subprocess.TimeoutExpired:
            driver.kill()
    return {"killed": killed, "resumes": resumes, "ending": ending(run), **_results(run)}


def _rounds(run: Path) -> int:
    feed = run / "events.jsonl"
    return feed.read_text().count('"kind":"round"') if feed.exists() else 0


def _results(run: Path) -> dict[str, Any]:
    import pandas as pd

    if ending(run) != "completed":
        return {"accuracy": float("nan"), "lost": 0}
    metrics = pd.read_parquet(run / "metrics.parquet")
    return {"accuracy": float(metrics["accuracy"].iloc[-1]), "lost": int(metrics["lost"].iloc[-1])}


def account(run: Path, witness: Path) -> dict[str, int]:
    """Releases seen, those that nobody was charged for, and grants used twice; charges that stand."""
    seen = Counter(
        (int(client), int(number))
        for path in witness.glob("*.txt")
        for client, _, number in (line.split() for line in path.read_text().splitlines())
    )
    with sqlite3.connect(f"file:{run / 'ledger.sqlite'}?mode=ro", uri=True) as journal:
        charged = set(journal.execute("SELECT client, number FROM charges"))
        voided = set(journal.execute("SELECT client, number FROM voids"))
    standing = charged - voided
    return {
        "seen": len(seen),
        "charged": len(standing),
        "uncharged": len(set(seen) - standing),
        "twice": sum(times > 1 for times in seen.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    (folder / "storm.toml").write_text(RUN.format(rounds=chosen.rounds))
    storm, rows = Storm(folder, chosen.seed), list[dict[str, Any]]()
    # In place of the handler that Ray has just put in: the cluster is ended on this way out too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for number in range(chosen.runs + 1):  # the first is left undisturbed
            run = folder / f"run-{number}"
            row = one_run(storm, run, chosen.kills if number else 0) | account(run, storm.witness)
            for path in storm.witness.glob("*.txt"):
                path.unlink()
            rows.append(row)
            print(number, json.dumps(row), flush=True)
    finally:
        left = storm.end()
        shutil.rmtree(folder, ignore_errors=True)
    stormy = rows[1:]
    result = {
        "runs": len(stormy),
        "completed": sum(row["ending"] == "completed" for row in stormy),
        "resumes": sum(row["resumes"] for row in stormy),
        "kills": dict(Counter(kill for row in stormy for kill in row["killed"])),
        "uncharged": sum(row["uncharged"] for row in rows),
        "twice": sum(row["twice"] for row in rows),
        "charges_without_release": sum(row["charged"] - row["seen"] for row in stormy),
        "orphans": left,
        "accuracy_undisturbed": rows[0]["accuracy"],
        "accuracy": [row["accuracy"] for row in stormy],
    }
    print(json.dumps(result, indent=2))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
