"""Rounds per second of FedSPD-DP: in one process, on Ray, and a bare loop of the same mathematics, as ratios of one run.

    python benchmarks/rounds.py [--clients 100] [--records 600] [--features 784] [--rounds 60] [--engines inline ray]

N clients × m records × p features, 10 classes, Q = 5, b = 10, evaluation off; with and without privacy, K = N and K = N/5.
The bare loop is what one would write for a single experiment: stacked tensors, records and noise from torch's own
generator, no gate, no ledger, no states on disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from dualfed.actors.job import run_inline
from dualfed.runs.config import parse
from dualfed.runs.data import Dataset
from dualfed.runs.prepare import Given, prepare

CLASSES, Q, B, RHO, GAMMA, Z = 10, 5, 10, 0.5, 1.0, 2.0


def dataset(clients: int, records: int, features: int) -> Dataset:
    """Random records of unit norm with a column of ones, as float32."""
    draw = np.random.default_rng(0)
    total = clients * records
    rows = draw.standard_normal((total + 100, features), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1 + 1e-6)
    rows = np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1)
    labels = draw.integers(0, CLASSES, len(rows))
    return Dataset(rows[:total], labels[:total], rows[total:], labels[total:], CLASSES, "random", "unit norm", 2**0.5)


def config(arguments: argparse.Namespace, participants: int, private: bool, engine: str) -> Any:
    """The run whose rounds are timed; ``inline, all threads`` is the inline engine on all of torch's threads."""
    engine, _, all_threads = engine.partition(", ")
    return parse(
        {
            "engine": engine,
            "actors": {"threads": os.cpu_count() if all_threads else 1},
            "dtype": "float32",
            "evaluate_every": 10**6,
            "checkpoint_every": 10**6,
            "partition": {"clients": arguments.clients},
            "method": {
                "name": "fedspd-dp",
                "rounds": arguments.rounds,
                "participants": participants,
                "local_steps": Q,
                "batch_size": B,
                "rho": RHO,
                "gamma": GAMMA,
            },
            "privacy": {"mode": "noise-multiplier", "noise_multiplier": Z} if private else {"mode": "none"},
        }
    )


def bare(data: Dataset, arguments: argparse.Namespace, participants: int, private: bool) -> list[float]:
    """Seconds of each round of the bare loop."""
    torch.manual_seed(0)
    n, m, p = arguments.clients, arguments.records, arguments.features + 1
    features, labels = torch.from_numpy(data.train_features), torch.from_numpy(data.train_labels)
    x, dual, upload = (torch.zeros(n, CLASSES * p) for _ in range(3))
    total, seconds = torch.zeros(CLASSES * p), []
    kappa, c = GAMMA / (GAMMA + RHO), 2 * 2 / (B * (GAMMA + RHO))
    sigma = Z * c / Q * sum(kappa**k for k in range(Q))
    for _ in range(arguments.rounds):
        began = time.perf_counter()
        chosen = torch.randperm(n)[:participants].sort().values
        everyone = participants == n
        x0 = total / n
        point, own_dual = (x, dual) if everyone else (x[chosen], dual[chosen])
        drawn = torch.randint(0, m, (participants, Q * B)) + chosen[:, None] * m
        rows = features.index_select(0, drawn.view(-1)).view(participants, Q * B, p)
        targets = labels[drawn]
        anchor = (RHO * x0 - own_dual) / (GAMMA + RHO)
        average = torch.zeros_like(anchor)
        for r in range(Q):
            a, t = rows[:, r * B : (r + 1) * B], targets[:, r * B : (r + 1) * B]
            scores = torch.bmm(point.view(-1, CLASSES, p), a.transpose(1, 2)).softmax(1)
            scores.scatter_add_(1, t[:, None], torch.full((), -1.0).expand(participants, 1, B))
            step = torch.add(anchor, point, alpha=kappa)
            step.view(-1, CLASSES, p).baddbmm_(scores, a, alpha=-1 / (B * (GAMMA + RHO)))
            point = step
            average.add_(point, alpha=1 / Q)
        if private:
            average.add_(torch.randn(average.shape), alpha=sigma)
        new_dual = own_dual + RHO * (average - x0)
        new_upload = average + new_dual / RHO
        if everyone:
            total = new_upload.sum(0)
            x, dual, upload = average, new_dual, new_upload
        else:
            total += (new_upload - upload[chosen]).sum(0)
            x[chosen], dual[chosen], upload[chosen] = average, new_dual, new_upload
        seconds.append(time.perf_counter() - began)
    return seconds


def timed(
    data: Dataset, arguments: argparse.Namespace, participants: int, private: bool, engine: str
) -> tuple[Any, ...]:
    """(seconds of each round, seconds before the first round)."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(config(arguments, participants, private, engine), Path(folder), Given(dataset=data))
        rounds: list[float] = []
        first: list[float] = []
        began = time.perf_counter()

        def listen(event: dict[str, Any]) -> None:
            if event["kind"] == "round":
                rounds.append(event["seconds"])
                if not first:
                    first.append(time.perf_counter() - began - event["seconds"])

        if engine.startswith("inline"):
            run_inline(prepared.job, listen)
        else:
            from dualfed.actors.ray_run import run_ray

            run_ray(prepared.job, listen, os.cpu_count() or 1)
    return rounds, first[0]


class Memory(threading.Thread):
    """The largest memory of this process and all it started, shared pages counted once where the system tells."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.over = 0, threading.Event()

    def run(self) -> None:
        root = psutil.Process()
        while not self.over.wait(0.2):
            used = 0
            for process in [root, *root.children(recursive=True)]:
                try:
                    used += process.memory_full_info().pss
                except (psutil.Error, AttributeError):
                    continue
            self.peak = max(self.peak, used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("clients", 100), ("records", 600), ("features", 784), ("rounds", 60), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--engines", nargs="+", default=["inline", "ray"], choices=["inline", "ray"])
    arguments = parser.parse_args()
    data = dataset(arguments.clients, arguments.records, arguments.features)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    warm = arguments.rounds // 5
    print(f"N = {arguments.clients}, m = {arguments.records}, p = {arguments.features}, Q = {Q}, b = {B}, float32")
    print(f"{'K':>5} {'privacy':>8} {'engine':>8} {'ms a round':>11} {'of bare':>8} {'rounds/s':>9} {'start s':>8}")
    for participants in (arguments.clients, arguments.clients // 5):
        for private in (False, True):
            engines = [e for e in (*arguments.engines, "inline, all threads") if e.split(",")[0] in arguments.engines]
            times: dict[str, list[float]] = {"bare": [], "bare, all threads": []} | {e: [] for e in engines}
            starts: dict[str, float] = {}
            for _ in range(arguments.repeats):  # in turn, so that a drift of the machine meets all alike
                times["bare"].append(statistics.median(bare(data, arguments, participants, private)[warm:]))
                torch.set_num_threads(threads)
                times["bare, all threads"].append(
                    statistics.median(bare(data, arguments, participants, private)[warm:])
                )
                torch.set_num_threads(1)
                for engine in engines:
                    rounds, starts[engine] = timed(data, arguments, participants, private, engine)
                    times[engine].append(statistics.median(rounds[warm:]))
            best = min(statistics.median(times["bare"]), statistics.median(times["bare, all threads"]))
            for engine, values in times.items():
                middle = statistics.median(values)
                start = f"{starts[engine]:8.1f}" if engine in starts else " " * 8
                word = "yes" if private else "no"
                print(
                    f"{participants:5} {word:>8} {engine:>18} {1e3 * middle:9.2f} {middle / best:8.2f} {1 / middle:9.0f} {start}"
                )
    memory = Memory()
    memory.start()
    for engine in arguments.engines:
        memory.peak = 0
        timed(data, arguments, arguments.clients, True, engine)
        print(
            f"peak memory, {engine}: {memory.peak / 2**20:.0f} MiB, data {data.train_features.nbytes / 2**20:.0f} MiB of it"
        )
    memory.over.set()


if __name__ == "__main__":
    main()
