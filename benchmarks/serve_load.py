"""What a run feels of people who ask: HTTP queries at a steady rate on loopback, beside a run in a process of its own.

Runs alternate between "nobody asks" and "--rate queries a second", and their speeds are compared; then the rate is
raised until an answer fails or comes late.

    python benchmarks/serve_load.py                  # three pairs of 60 s, then the highest rate
    python benchmarks/serve_load.py --seconds 10 --pairs 1 --highest 0
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import httpx

RUN = """
name = "load"
engine = "inline"
seed = 1
evaluate_every = 10
checkpoint_every = 100000
[data]
name = "synthetic"
records = 20000
features = 40
classes = 10
[partition]
clients = 100
min_size = 60
[method]
name = "fedspd-dp"
rounds = 1000000
participants = 20
local_steps = 2
batch_size = 30
[privacy]
mode = "noise-multiplier"
noise_multiplier = 30.0
budget = 8.0
"""
QUERIES = (
    "/api/summary",
    "/api/clients?sort=share&order=desc&limit=20",
    "/api/overview",
    "/api/events",
    "/api/clients/17",
    "/api/metrics",
)
LATE_S = 5.0


@contextmanager
def process(*arguments: str, out: int = subprocess.DEVNULL):
    """The installed command, ended by its own process id."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen([sys.executable, "-m", "dualfed", *arguments], stdout=out, text=True, env=environment)
    try:
        yield started
    finally:
        if started.poll() is None:
            os.kill(started.pid, signal.SIGKILL)
        started.wait()


def rounds_done(folder: Path) -> int:
    """The last round in the run's feed."""
    with open(folder / "events.jsonl", "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 20000))
        rounds = [json.loads(line) for line in file.read().split(b"\n")[1:-1]]
    return max((event["round"] for event in rounds if event["kind"] == "round"), default=0)


async def ask(url: str, rate: float, seconds: float) -> tuple[int, int, float]:
    """(answers, failures, slowest answer in seconds) of queries sent on time, whatever earlier ones take."""
    waits: list[float] = []
    failures = 0

    async def one(client: httpx.AsyncClient, path: str) -> None:
        nonlocal failures
        began = time.perf_counter()
        try:
            answer = await client.get(url + path)
            failures += answer.status_code != 200
        except httpx.HTTPError:
            failures += 1
        waits.append(time.perf_counter() - began)

    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(limits=limits, timeout=LATE_S) as client, asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for k in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + k / rate - time.perf_counter()))
            group.create_task(one(client, QUERIES[k % len(QUERIES)]))
    return len(waits), failures, max(waits)


def speed(seconds: float, rate: float, folder: Path) -> tuple[float, tuple[int, int, float]]:
    """(rounds a second, what ``ask`` found) of one fresh run."""
    (folder / "run.toml").write_text(RUN)
    with process("run", str(folder / "run.toml"), "--out", str(folder / "out")):
        while not (folder / "out" / "events.jsonl").exists() or rounds_done(folder / "out") < 20:
            time.sleep(0.2)
        with process("serve", str(folder / "out"), out=subprocess.PIPE) as server:
            url = server.stdout.readline().split()[-1].rstrip("/")
            time.sleep(1.0)
            first, began = rounds_done(folder / "out"), time.perf_counter()
            found = asyncio.run(ask(url, rate, seconds)) if rate else (0, 0, 0.0)
            time.sleep(max(0.0, began + seconds - time.perf_counter()))
            last, ended = rounds_done(folder / "out"), time.perf_counter()
    return (last - first) / (ended - began), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run's measurement")
    parser.add_argument("--rate", type=float, default=100.0, help="queries a second")
    parser.add_argument("--pairs", type=int, default=3, help="runs without and with queries, in turn")
    parser.add_argument("--highest", type=float, default=1600.0, help="where to stop raising the rate; 0: do not")
    given = parser.parse_args()
    ratios = []
    for pair in range(given.pairs):
        speeds = {}
        # The order alternates, so that a machine that warms up or slows down favours neither.
        for rate in (0.0, given.rate) if pair % 2 == 0 else (given.rate, 0.0):
            with tempfile.TemporaryDirectory(prefix="dualfed-load-") as folder:
                speeds[rate], found = speed(given.seconds, rate, Path(folder))
            asked = f"; {found[0]} answers, {found[1]} failures, slowest {found[2]:.3f} s" if rate else ""
            print(f"{rate:g} queries/s: {speeds[rate]:.1f} rounds/s{asked}", flush=True)
        ratios.append(speeds[0.0] / speeds[given.rate])
    print(f"slow-down of the run: {statistics.median(ratios):.3f} (median of {', '.join(f'{r:.3f}' for r in ratios)})")
    best, rate = 0.0, 2 * given.rate
    while rate <= given.highest:
        with tempfile.TemporaryDirectory(prefix="dualfed-load-") as folder:
            _, (answers, failures, slowest) = speed(min(10.0, given.seconds), rate, Path(folder))
        print(f"{rate:g} queries/s: {answers} answers, {failures} failures, slowest {slowest:.3f} s", flush=True)
        if failures:
            break
        best, rate = rate, rate * 1.5
    if given.highest:
        print(f"highest rate without failures: {best or given.rate:g} queries/s")


if __name__ == "__main__":
    main()
