"""What stragglers cost under each policy, in simulated seconds; and what simulating them costs in real ones.

    python benchmarks/stragglers.py policies [--out DIR] [--target 0.8]   100 clients, Pareto times, FedSPD-DP, ε = 8
    python benchmarks/stragglers.py ring [--out DIR]                      SPADE-DFL on a ring, one client 10 times slower
    python benchmarks/stragglers.py cost                                  the delay model at N = 10,000, K = 200

``policies`` and ``ring`` draw their plots into DIR. Simulated seconds do not depend on the machine; ``cost`` does, and asks
for a quiet one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dualfed.actors import rounds_in_time
from dualfed.runs.plots import save_figure
from dualfed.runs.plots_time import quality_over_time, time_figures
from dualfed.runs.results import RunResult
from dualfed.runs.simulate import simulate


def federated(policy: dict[str, Any], rounds: int, participants: int | None) -> dict[str, Any]:
    """A run with 100 clients whose times have a heavy tail; each client's whole budget is ε = 8 whatever the policy."""
    return {
        "name": "stragglers",
        "engine": "inline",
        "evaluate_every": 1,
        "checkpoint_every": 10**6,
        "data": {"name": "synthetic", "records": 50_000, "features": 20, "classes": 5, "spread": 2.5},
        "partition": {"scheme": "dirichlet", "clients": 100, "alpha": 1.0, "min_size": 60},
        "method": {
            "name": "fedspd-dp",
            "rounds": rounds,
            "participants": participants,
            "local_steps": 3,
            "batch_size": 20,
            "rho": 0.3,
            "gamma": 0.5,
            "memory": "auto",
        },
        "privacy": {"mode": "total", "epsilon": 8.0},
        "time": {"compute": "pareto", "mean_s": 1.0, "shape": 1.2, "latency_s": 0.05},
        "policy": policy,
    }


POLICIES: dict[str, dict[str, Any]] = {
    "wait for all 100": federated({}, 40, None),
    "wait for K = 20": federated({}, 120, 20),
    "over-select 20 + 10": federated({"kind": "over-select", "extra": 10}, 120, 20),
    "deadline 1.5 s, K = 20": federated({"kind": "deadline", "deadline_s": 1.5}, 120, 20),
    "async, 20 at work, buffer 10": federated({"kind": "async", "buffer": 10, "staleness": 8, "cap": 40}, 240, 20),
}


def policies(out: Path, target: float) -> None:
    """Simulated seconds until the target, at the end, and what was charged."""
    runs: dict[str, RunResult] = {}
    print(
        f"{'policy':30s} {'to target':>10s} {'whole run':>10s} {'accuracy':>9s} {'releases':>9s} {'void':>5s} {'ε max':>6s}"
    )
    for name, config in POLICIES.items():
        run = runs[name] = simulate(config, keep=False)
        void = sum(run.summary["stragglers"].values())
        print(
            f"{name:30s} {run.seconds_to(target):9.1f}s {run.summary['simulated_s']:9.1f}s {100 * run.accuracy:8.1f}% "
            f"{int(run.clients['releases'].sum()):9d} {void:5d} {run.epsilon:6.2f}"
        )
    figure = quality_over_time(
        {name: run.metrics for name, run in runs.items()}, "accuracy", "100 clients, Pareto times"
    )
    save_figure(figure, out / "policies")
    for name, run in runs.items():
        figures = time_figures(run)
        save_figure(figures["clients-time"], out / f"clients-{name.split(',')[0].replace(' ', '-')}")


def ring(out: Path) -> None:
    """Barrier against neighbour-local waiting: the same numbers, other clocks."""
    clients, slow = 20, 7
    found = {}
    for kind in ("barrier", "neighbour"):
        config = {
            "name": "ring",
            "engine": "inline",
            "evaluate_every": 1,
            "data": {"name": "synthetic", "records": 4000, "features": 10, "classes": 3},
            "partition": {"clients": clients},
            "topology": {"kind": "ring"},
            "method": {"name": "spade-dfl", "rounds": 20, "local_steps": 50, "clip": 1.0, "eta": 0.05, "mu": 0.1},
            "privacy": {"mode": "total", "epsilon": 32.0},
            "time": {
                "compute": "exponential",
                "mean_s": 1.0,
                "latency_s": 0.05,
                "speeds": [0.1 if client == slow else 1.0 for client in range(clients)],
            },
            "policy": {"kind": kind},
            "record_states": True,
        }
        run = found[kind] = simulate(config, keep=False)
        last = run.spans.sort_values("round").groupby("client")["end_s"].last()
        others = run.clients[run.clients["client"] != slow]
        print(
            f"{kind:10s} whole run {run.summary['simulated_s']:7.1f} s; mean clock of clients at the end {last.mean():7.1f} s; "
            f"other clients wait {others['waiting_s'].mean():7.1f} s in the mean; accuracy {100 * run.accuracy:.1f} %"
        )
        save_figure(time_figures(run)["clients-time"], out / f"ring-{kind}")
    same = np.array_equal(found["barrier"].states["x"], found["neighbour"].states["x"])
    print("states equal to the last bit" if same else "STATES DIFFER")


def cost(rounds: int) -> None:
    """Real time of a round and of its share for the delay model, N = 10,000, K = 200."""
    torch.set_num_threads(1)
    spent: list[float] = []
    schedule, present = rounds_in_time.RoundsInTime.schedule, rounds_in_time.RoundsInTime.present

    def timed(original: Any) -> Any:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*arguments)
            finally:
                spent.append(time.perf_counter() - began)

        return call

    config = federated({"kind": "over-select", "extra": 40}, rounds, 160)
    config["data"] |= {"records": 400_000}
    config["partition"] = {"clients": 10_000}
    config["method"]["batch_size"] = 5
    config["privacy"] = {"mode": "noise-multiplier", "noise_multiplier": 2.0}
    config["evaluate_every"] = 10**6
    config["time"] |= {"dropout": 0.02, "speed_spread": 0.3, "online_s": 500.0, "offline_s": 20.0}
    rounds_in_time.RoundsInTime.schedule = timed(schedule)  # type: ignore[method-assign]
    rounds_in_time.RoundsInTime.present = timed(present)  # type: ignore[method-assign]
    try:
        run = simulate(config, keep=False)
    finally:
        rounds_in_time.RoundsInTime.schedule = schedule  # type: ignore[method-assign]
        rounds_in_time.RoundsInTime.present = present  # type: ignore[method-assign]
    whole = statistics.median(run.timing["seconds"].iloc[5:])
    share = statistics.median(one + two for one, two in zip(spent[10::2], spent[11::2]))
    print(
        f"N = 10,000, K = 200: {1e3 * whole:.2f} ms a round, of which {1e3 * share:.3f} ms ({100 * share / whole:.1f} %) for time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("show", choices=("policies", "ring", "cost"))
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--target", type=float, default=0.7)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    out = arguments.out or Path(tempfile.mkdtemp(prefix="dualfed-stragglers-"))
    out.mkdir(parents=True, exist_ok=True)
    if arguments.show == "policies":
        policies(out, arguments.target)
    elif arguments.show == "ring":
        ring(out)
    else:
        cost(arguments.rounds)
        return
    print(f"plots in {out}")


if __name__ == "__main__":
    main()
