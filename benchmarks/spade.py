"""SPADE-DFL: what it reaches without and with privacy, the trade-off in τ, and how it grows with the graph.

    python benchmarks/spade.py digits   [--seeds 3]
    python benchmarks/spade.py fashion  [--path DIR] [--raw] [--epsilons 4 8 16 32]
    python benchmarks/spade.py tau      [--out FILE.png]
    python benchmarks/spade.py scale    [--nodes 1000 10000]

One process, one thread, single precision; each prints a table. ``fashion`` needs the Fashion-MNIST idx files.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.events import GaussianEvent
from dualfed.runs.config import parse
from dualfed.runs.data import Dataset, load
from dualfed.runs.plots import save_figure
from dualfed.runs.results import RunResult
from dualfed.runs.simulate import simulate

BASE: dict[str, Any] = {
    "engine": "inline",
    "dtype": "float32",
    "checkpoint_every": 10**9,
    "topology": {"kind": "erdos-renyi"},
    "privacy": {"mode": "none"},
}
STEPS = 20_000
# Pixels divided by 16, a column of ones, no scaling of single records: all public.
DIGITS: dict[str, Any] = {"data": {"name": "digits", "scale": "none"}, "problem": {"record_norm": 10.0}}
TUNED: dict[str, dict[str, Any]] = {
    "baseline": {"chunk": 4, "mu": 0.3, "eta": 0.05},
    "paper": {"chunk": 4, "mu": 0.8, "eta": 0.01},
}


def run(changes: dict[str, Any], dataset: Dataset | None = None, evaluate_every: int = 10**9) -> RunResult:
    return simulate({**BASE, "evaluate_every": evaluate_every, **changes}, keep=False, dataset=dataset)


def digits(arguments: argparse.Namespace) -> None:
    """No privacy: N = 30, 20,000 local steps a client, τ = 20, every estimator with its own step."""
    print(f"digits, N = 30, Erdős–Rényi, softmax, T = {STEPS:,} local steps, τ = 20; {DIGITS['data']}")
    print(
        f"{'estimator':>10} {'H':>3} {'η':>6} {'μ':>5} {'accuracy of the average model, by seed':>40} {'mean':>6} {'clients':>8}"
    )
    for estimator, tuned in TUNED.items():
        found, own = [], []
        for seed in range(arguments.seeds):
            method = {"name": "spade-dfl", "rounds": STEPS // 20, "local_steps": 20, "estimator": estimator, **tuned}
            result = run({**DIGITS, "seed": seed, "partition": {"clients": 30}, "method": method})
            found.append(100 * result.accuracy)
            own.append(100 * float(result.metrics["accuracy_clients"].iloc[-1]))
        chunks = -(-int(result.clients["records"].mean()) // tuned["chunk"])
        each = " ".join(f"{value:.1f}" for value in found)
        mean = statistics.mean(found)
        print(
            f"{estimator:>10} {chunks:3} {tuned['eta']:6g} {tuned['mu']:5g} {each:>30} {mean:6.1f} {statistics.mean(own):8.1f}"
        )


# s = K·τ·η·μ, the length of gradient flow that a run covers, is about the same in all of these.
PRIVATE: dict[str, dict[str, Any]] = {
    "baseline": {"estimator": "baseline", "local_steps": 4000, "mu": 0.2, "eta": 0.015, "chunk": 100},
    "baseline, H = m": {"estimator": "baseline", "local_steps": 4000, "mu": 0.2, "eta": 0.015, "chunk": 1},
    "gradient": {"estimator": "gradient", "local_steps": 120, "mu": 0.2, "eta": 0.5, "chunk": 1},
}
RAW: dict[str, dict[str, Any]] = {
    "baseline": {"estimator": "baseline", "local_steps": 1000, "mu": 0.05, "eta": 0.06, "chunk": 50},
    "gradient": {"estimator": "gradient", "local_steps": 120, "mu": 0.2, "eta": 0.5, "chunk": 1},
}


def fashion(arguments: argparse.Namespace) -> None:
    """Client-level privacy: N = 100, IID, five releases."""
    data: dict[str, Any] = {"name": "idx", "path": arguments.path, "bias": False}
    data |= {} if arguments.raw else {"feature_map": "dct", "features_out": 64}
    dataset = load(parse({"data": data}).data, 0)
    shown = "raw pixels" if arguments.raw else "64 cosine coefficients"
    print(f"Fashion-MNIST, N = 100, IID, {shown}, d = {10 * dataset.train_features.shape[1]}, K = 5, δ = 1e-5")
    print(
        f"{'estimator':>16} {'τ':>5} {'chunk':>5} {'ε':>6} {'zCDP ε':>7} {'z':>6} {'average':>8} {'±':>6} {'clients':>8} "
        f"{'worst':>6} {'r':>5} {'clipped':>8} {'queries':>11} {'s':>5}"
    )
    for name, given in (RAW if arguments.raw else PRIVATE).items():
        if name not in arguments.estimators:
            continue
        for epsilon in [*arguments.epsilons, None]:
            method = {"name": "spade-dfl", "rounds": 5, "clip": 1.5, "mixing_rounds": 10, "final_mixing": 20, **given}
            privacy = {"mode": "none"} if epsilon is None else {"mode": "total", "epsilon": epsilon, "delta": 1e-5}
            began = time.perf_counter()
            config = {"data": data, "partition": {"clients": 100}, "method": method, "privacy": privacy}
            results = [run({**config, "seed": seed}, dataset, evaluate_every=1) for seed in range(arguments.seeds)]
            _private_row(name, method, results, time.perf_counter() - began)


def _private_row(name: str, method: dict[str, Any], results: list[RunResult], seconds: float) -> None:
    """Means over seeds; each seed draws graph, partition, queries and noise anew."""
    z, epsilon = float(results[0].clients["noise_multiplier"].iloc[0]), results[0].epsilon
    account = {GaussianEvent(unit="client", noise_multiplier=z): method["rounds"]}
    classic = Accountant().epsilon(account, 1e-5).alternatives["zcdp"] if z else float("inf")
    last = pd.DataFrame([result.metrics.iloc[-1] for result in results])
    private = pd.concat([result.diagnostics.iloc[1:] for result in results])
    average, own, worst = (100 * last[name].mean() for name in ("accuracy", "accuracy_clients", "accuracy_worst"))
    spread = 100 * last["accuracy"].std() if len(last) > 1 else float("nan")
    print(
        f"{name:>16} {method['local_steps']:5} {method['chunk']:5} {epsilon:6.2f} {classic:7.2f} {z:6.2f} "
        f"{average:7.1f}% {spread:6.1f} {own:7.1f}% "
        f"{worst:5.1f}% {private['common_share'].mean():5.2f} {100 * private['clipped_share'].mean():7.0f}% "
        f"{last['queries'].mean():11,.0f} {seconds / len(results):5.0f}",
        flush=True,
    )


def tau(arguments: argparse.Namespace) -> None:
    """The same local steps in fewer, longer rounds: scalars sent fall as 1/τ, the residual rises."""
    total, rows = 6000, []
    print(f"digits, N = 30, baseline, T = {total:,}; the last fifth of the rounds counts for the residual")
    print(f"{'τ':>5} {'rounds':>7} {'scalars sent':>14} {'× τ / T':>9} {'residual':>10} {'accuracy':>9}")
    for steps in (1, 2, 5, 10, 20, 50, 100, 200):
        method = {
            "name": "spade-dfl",
            "rounds": total // steps,
            "local_steps": steps,
            "chunk": 12,
            "mu": 0.2,
            "eta": 0.05,
        }
        every = max(1, total // steps // 60)
        result = run({**DIGITS, "partition": {"clients": 30}, "method": method}, evaluate_every=every)
        tail = result.diagnostics["residual"].iloc[-max(1, len(result.diagnostics) // 5) :]
        scalars = float(result.metrics["scalars"].iloc[-1])
        rows.append((steps, scalars, float(tail.mean())))
        share = scalars * steps / total
        print(
            f"{steps:5} {total // steps:7} {scalars:14,.0f} {share:9,.0f} {rows[-1][2]:10.4g} {100 * result.accuracy:8.1f}%",
            flush=True,
        )
    for path in save_figure(_tau_figure(np.array(rows)), arguments.out.with_suffix("")):
        print(path)


def _tau_figure(rows: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(rows[:, 0], rows[:, 1], "o-", color="#1f5fa8", label="scalars sent")
    axes.set_xlabel("local steps a round, τ, at fixed T")
    axes.set_ylabel("scalars sent", color="#1f5fa8")
    other = axes.twinx()
    other.loglog(rows[:, 0], rows[:, 2], "s--", color="#b3541e")
    other.set_ylabel("stationarity + consensus residual", color="#b3541e")
    axes.grid(True, color="#e3e3e3")
    axes.set_title("a non-private diagnostic of the simulation", loc="left", fontsize=9, style="italic")
    return figure


def scale(arguments: argparse.Namespace) -> None:
    """Seconds a round and memory of large graphs, d = 650, one host in this process."""
    print(f"{'nodes':>7} {'edges':>7} {'ready s':>8} {'round s':>8} {'in the host':>14} {'peak MiB':>9} {'growth':>7}")
    before = None
    for nodes in arguments.nodes:
        draw = np.random.default_rng(0)
        features = draw.standard_normal((10 * nodes + 100, 65), dtype=np.float32)
        features /= np.linalg.norm(features, axis=1, keepdims=True) * (1 + 1e-6)
        labels = draw.integers(0, 10, len(features))
        split = 10 * nodes
        dataset = Dataset(
            features[:split], labels[:split], features[split:], labels[split:], 10, "random", "unit norm", 1.0
        )
        method = {"name": "spade-dfl", "rounds": 15, "local_steps": 20, "clip": 1.0, "eta": 0.01, "mu": 0.1}
        seconds: list[float] = []
        began, ready = time.perf_counter(), 0.0

        def listen(event: dict[str, Any], seconds: list[float] = seconds) -> None:
            if event["kind"] == "round":
                seconds.append(event["seconds"])

        result = simulate(
            {
                **BASE,
                "evaluate_every": 10**9,
                "partition": {"clients": nodes},
                "topology": {"kind": "random-regular", "degree": 6},
                "method": method,
                "privacy": {"mode": "total", "epsilon": 8.0},
                "actors": {"clients_per_actor": nodes},
            },
            keep=False,
            dataset=dataset,
            listen=listen,
        )
        ready = time.perf_counter() - began - sum(seconds)
        middle, busy = statistics.median(seconds[3:]), float(result.timing["host_seconds"].median())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        growth = "" if before is None else f"{middle / before:6.1f}×"
        before = middle
        print(f"{nodes:7} {3 * nodes:7} {ready:8.1f} {middle:8.3f} {busy:14.3f} {peak:9.0f} {growth:>7}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (digits, fashion, tau, scale):
        command = commands.add_parser(function.__name__, help=(function.__doc__ or "").splitlines()[0])
        command.set_defaults(function=function)
        if function is digits:
            command.add_argument("--seeds", type=int, default=3)
        elif function is fashion:
            command.add_argument("--path", default="/usr/share/datasets/fashion-mnist")
            command.add_argument("--raw", action="store_true", help="pixels in place of the public map")
            command.add_argument("--seeds", type=int, default=1)
            command.add_argument("--estimators", nargs="+", choices=list(PRIVATE), default=list(PRIVATE))
            command.add_argument("--epsilons", type=float, nargs="+", default=[4.0, 8.0, 16.0, 32.0])
        elif function is tau:
            command.add_argument("--out", type=Path, default=Path("spade-tau.png"))
        else:
            command.add_argument("--nodes", type=int, nargs="+", default=[1000, 10000])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())
