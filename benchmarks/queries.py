"""Queries per second of SPADE-DFL's local stage, against stacked torch with Gaussian directions.

    python benchmarks/queries.py [--clients 20] [--records 600] [--steps 600] [--repeats 5]

Both sides ask the same number of function values of the same softmax model on the same records, one query a client and
step, and both update every client's parameters by ``baseline``'s rule. The torch side stacks the clients: ``randn`` for
all directions of a step, one gather of records, one batched product. Both sides run one thread, as a host does; torch
once more with all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch


def torch_stage(
    features: torch.Tensor, labels: torch.Tensor, x0: torch.Tensor, steps: int, eta: float, mu: float
) -> int:
    """``baseline`` of features ``[C, m, p]``, labels ``[C, m]`` and states ``[C, k, p]``. Returns the queries made."""
    clients, records, _ = features.shape
    rows = torch.arange(clients)
    generator = torch.Generator().manual_seed(1)

    def values(x: torch.Tensor, a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(torch.bmm(x, a.unsqueeze(2)).squeeze(2), y, reduction="none")

    x, seen = x0.clone(), torch.stack([values(x0, features[:, j], labels[:, j]) for j in range(records)], 1)
    for _ in range(steps):
        h = torch.randint(records, (clients,), generator=generator)
        u = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        value = values(torch.add(x, u, alpha=mu), features[rows, h], labels[rows, h])
        x.addcmul_(u, (value - seen[rows, h])[:, None, None], value=-eta)
        seen[rows, h] = value
    return clients * (records + steps)


def rate(run: Callable[[], int], threads: int = 1) -> float:
    """Queries per second with a number of torch threads."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    queries = run()
    elapsed = time.perf_counter() - start
    torch.set_num_threads(1)
    return queries / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("clients", 20), ("records", 600), ("steps", 600), ("features", 785), ("classes", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="compile anew in an empty cache folder")
    given = parser.parse_args()
    if given.cold:
        os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp()
    from dualfed.algorithms.problems import SoftmaxProblem
    from dualfed.algorithms.queries import DirectionKind, Estimator, local_stage
    from dualfed.algorithms.shards import Shards

    clients, records, steps, p, k = given.clients, given.records, given.steps, given.features, given.classes
    cpus, rng = torch.get_num_threads(), np.random.default_rng(0)
    features = rng.standard_normal((clients * records, p), dtype=np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = rng.integers(0, k, clients * records)
    shards = Shards.from_flat(features, labels, np.arange(clients + 1) * records)
    wide = Shards.from_flat(features.astype(np.float64), labels, np.arange(clients + 1) * records)
    problem = SoftmaxProblem(p, k, 1.0)
    keys = rng.integers(0, 2**63, (clients, 2)).astype(np.uint64)
    eta, mu = 1e-3, 1e-2
    print(f"C = {clients}, H = {records}, τ = {steps}, b = 1, d = {problem.dim}; python {sys.version.split()[0]}")

    def ours(estimator: Estimator, direction: DirectionKind, dtype: torch.dtype = torch.float32) -> Callable[[], int]:
        x0 = torch.zeros(clients, problem.dim, dtype=dtype)
        correction = torch.full_like(x0, 1e-6)
        data = shards if dtype == torch.float32 else wide

        def run() -> int:
            done = local_stage(
                problem,
                data,
                torch.arange(clients),
                x0,
                correction,
                estimator=estimator,
                direction=direction,
                eta=eta,
                mu=mu,
                steps=np.full(clients, steps),
                batch=np.ones(clients, np.int64),
                keys=keys,
            )
            return int(done.queries.sum())

        return run

    def stacked() -> int:
        shape = (clients, records)
        start = torch.zeros(clients, k, p)
        return torch_stage(shards.features.view(*shape, p), shards.labels.view(shape), start, steps, eta, mu)

    torch.set_num_threads(1)
    for estimator in ("baseline", "paper", "gradient"):
        start = time.perf_counter()
        ours(estimator, "rademacher")()
        print(f"first call, {estimator}: {time.perf_counter() - start:.2f} s, compiling or loading included")
    print(f"{f'torch, gaussian, {cpus} threads':38s}{rate(stacked, cpus):12,.0f} queries/s")
    cases: list[tuple[Estimator, DirectionKind, torch.dtype]] = [
        ("baseline", "rademacher", torch.float32),
        ("baseline", "rademacher", torch.float64),
        ("baseline", "gaussian", torch.float32),
        ("baseline", "sphere", torch.float32),
        ("paper", "rademacher", torch.float32),
        ("paper", "gaussian", torch.float32),
        ("two-point", "rademacher", torch.float32),
        ("gradient", "rademacher", torch.float32),
    ]
    for estimator, direction, dtype in cases:
        run = ours(estimator, direction, dtype)
        run()
        # In turns, since a shared machine is busier at one time than at another; the best of each counts.
        turns = [(rate(run), rate(stacked)) for _ in range(given.repeats)]
        mine, torch_rate = (max(side) for side in zip(*turns, strict=True))
        name = f"{estimator}, {direction}, {str(dtype).removeprefix('torch.')}"
        print(f"{name:38s}{mine:12,.0f} queries/s, torch {torch_rate:8,.0f}, {mine / torch_rate:6.1f} times")


if __name__ == "__main__":
    main()
