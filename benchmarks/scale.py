"""Time and memory of FedSPD-DP against the number of clients and of participants, with fitted exponents.

    python benchmarks/scale.py [--sizes 100 1000 10000 100000] [--participants 100 200 400] [--engine inline|ray]

Digits-sized records (64 features, 10 classes), ten a client; a round's time is the median over the run, evaluation off.
Each run is a process of its own, so that memory is its own too: the peak of its whole tree, shared pages counted once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np
from dualfed.runs.config import parse
from dualfed.runs.data import Dataset
from dualfed.runs.simulate import simulate
from rounds import Memory, dataset

RECORDS, FEATURES = 10, 64


def data(clients: int) -> Dataset:
    """Ten records a client."""
    return dataset(clients, RECORDS, FEATURES)


def one(clients: int, participants: int, rounds: int, engine: str) -> dict[str, float]:
    """Run once in this process; seconds a round, seconds in all, peak memory in MiB."""
    memory = Memory()
    memory.start()
    began = time.perf_counter()
    config = parse(
        {
            "engine": engine,
            "dtype": "float32",
            "evaluate_every": rounds,
            "checkpoint_every": rounds,
            "partition": {"clients": clients},
            "method": {
                "name": "fedspd-dp",
                "rounds": rounds,
                "participants": participants,
                "local_steps": 2,
                "batch_size": 3,
                "rho": 0.5,
            },
            "privacy": {"mode": "total", "epsilon": 8.0},
        }
    )
    result = simulate(config, keep=False, dataset=data(clients))
    total = time.perf_counter() - began
    time.sleep(0.3)
    memory.over.set()
    assert result.ending == "completed"
    assert result.clients["releases"].sum() == participants * rounds
    median = float(result.timing["seconds"].iloc[rounds // 5 :].median())
    return {"round_s": median, "total_s": total, "memory_mib": memory.peak / 2**20}


def measured(clients: int, participants: int, arguments: argparse.Namespace) -> dict[str, float]:
    """``one`` in a process of its own, the median of the repeats."""
    found = []
    for _ in range(arguments.repeats):
        command = [sys.executable, __file__, "--one", str(clients), str(participants)]
        command += ["--rounds", str(arguments.rounds), "--engine", arguments.engine]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(said.strip().splitlines()[-1]))
    row = {name: statistics.median(each[name] for each in found) for name in found[0]}
    figures = f"{1e3 * row['round_s']:11.2f} {row['total_s']:9.1f} {row['memory_mib']:11.0f}"
    print(f"{clients:8} {participants:6} {figures}", flush=True)
    return row


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope of log value against log size."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000, 10_000, 100_000])
    parser.add_argument("--participants", type=int, nargs="+", default=[100, 200, 400, 800])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--engine", default="ray", choices=["inline", "ray"])
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one, arguments.rounds, arguments.engine)))
        return
    print(f"{'N':>8} {'K':>6} {'ms a round':>11} {'s in all':>9} {'memory MiB':>11}   ({arguments.engine})")
    fixed_k = min(200, *arguments.sizes)
    by_n = [measured(n, fixed_k, arguments) for n in arguments.sizes]
    fixed_n = 10_000
    by_k = [measured(fixed_n, k, arguments) for k in arguments.participants]
    for name, unit in (("round_s", "time a round"), ("memory_mib", "memory")):
        in_n = exponent(arguments.sizes, [row[name] for row in by_n])
        in_k = exponent(arguments.participants, [row[name] for row in by_k])
        print(f"{unit}: exponent {in_n:.2f} in N at K = {fixed_k}, {in_k:.2f} in K at N = {fixed_n}")


if __name__ == "__main__":
    main()
