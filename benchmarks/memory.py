"""``memory = "auto"`` of FedSPD-DP against s = 1 and s = 0, over privacy budgets and partitions of scikit-learn's digits.

    python benchmarks/memory.py [--clients 10] [--rounds 60] [--rho 0.3] [--gamma 1.0] [--seeds 3]

Every cell is a budget ε (∞: no noise), a partition and a choice of memory; the seeds move split, partition, batches and
noise, which all three choices of a cell share. Prints mean test accuracies, their mean over the grid, and the cell where
``auto`` is furthest below the better of the other two.

With s = 0 the model moves twice as far a round as with s = 1, so at one penalty ρ a choice of memory is also a choice of
step size. Several ρ give each cell at the best of them (of the mean over the seeds, for all three alike).
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import torch
from dualfed.actors.planning import Noise, make_plan
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.algorithms.method import Cohort
from dualfed.algorithms.problems import SoftmaxProblem
from dualfed.algorithms.shards import Shards
from dualfed.keys import noise_key
from dualfed.privacy.gate import Granted, NoiseGate
from dualfed.runs.data import Dataset, load
from dualfed.runs.data_config import DataConfig, PartitionConfig
from dualfed.runs.partition import partition

DELTA = 1e-5
BUDGETS = (1.0, 3.0, 8.0, math.inf)
MEMORIES: tuple[float | str, ...] = (1.0, 0.0, "auto")


def multipliers(method: FedSPDDP, cohort: Cohort, epsilon: float) -> np.ndarray:
    """z_i ``[N]`` with which all rounds of every client together cost (ε, δ)."""
    noise = Noise("none") if math.isinf(epsilon) else Noise("total", epsilon, DELTA)
    everyone = [np.arange(len(cohort))] * method.rounds
    return make_plan(method, cohort.problem, cohort.sizes, cohort.weights, everyone, noise).noise_multipliers


def train(method: FedSPDDP, cohort: Cohort, z: np.ndarray, seed: int) -> torch.Tensor:
    """The model ``[d]`` after all rounds, every client in each (S1)–(C4)."""
    clients, start = len(cohort), torch.zeros(cohort.problem.dim, dtype=cohort.shards.features.dtype)
    state = {name: row.expand(clients, -1) for name, row in method.init(start).items()}
    for t in range(1, method.rounds + 1):
        x0 = method.upload(state).mean(0)
        bound = method.bound(cohort.problem, cohort.sizes, cohort.weights, t)
        gate = NoiseGate(Granted(t, cohort.clients, np.full(clients, t), z), bound, noise_key(seed))
        state = method.local_round(state, x0, cohort, gate, t)
    return method.upload(state).mean(0)


def make_cohort(data: Dataset, scheme: PartitionConfig, seed: int) -> Cohort:
    """All clients of a partition of the training records."""
    rows = partition(data.train_labels, scheme, seed)
    shards = Shards.from_arrays(data.train_features, data.train_labels, rows, torch.float32)
    ids = np.arange(shards.n_clients)
    problem = SoftmaxProblem(data.n_features, data.n_classes, data.record_norm)
    return Cohort(problem, shards, torch.from_numpy(ids), ids, shards.sizes.numpy(), np.ones(len(ids)))


def cell(
    common: dict[str, Any], penalties: list[float], scheme: PartitionConfig, epsilon: float, seed: int
) -> np.ndarray:
    """Test accuracy in % by penalty and memory."""
    data = load(DataConfig(name="digits"), seed)
    cohort = make_cohort(data, scheme, seed)
    test = torch.as_tensor(data.test_features, dtype=torch.float32), torch.as_tensor(data.test_labels)
    found = np.empty((len(penalties), len(MEMORIES)))
    for row, rho in enumerate(penalties):
        z = multipliers(FedSPDDP(**common, rho=rho), cohort, epsilon)
        for column, memory in enumerate(MEMORIES):
            model = train(FedSPDDP(**common, rho=rho, memory=memory), cohort, z, seed)
            found[row, column] = 100 * cohort.problem.score(model, *test)["accuracy"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("clients", 10),
        ("rounds", 60),
        ("steps", 5),
        ("batch", 20),
        ("seeds", 3),
        ("first-seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.3])
    parser.add_argument("--gamma", type=float, default=1.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    least = given.steps * given.batch
    schemes = {
        "iid": PartitionConfig(scheme="iid", clients=given.clients, min_size=least),
        "dirichlet 0.1": PartitionConfig(scheme="dirichlet", alpha=0.1, clients=given.clients, min_size=least),
        "2 classes": PartitionConfig(
            scheme="pathological", classes_per_client=2, clients=given.clients, min_size=least
        ),
    }
    common = {"rounds": given.rounds, "local_steps": given.steps, "batch_size": given.batch, "gamma": given.gamma}
    table: dict[tuple[float, str], np.ndarray] = {}
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    print(f"digits, N = {given.clients}, {common}, best of ρ = {given.rho}, seeds {[*seeds]}; test accuracy in %")
    print(f"{'ε':>4} {'partition':14} {'s = 1':>7} {'s = 0':>7} {'auto':>7}   best ρ of each")
    for epsilon in BUDGETS:
        for name, scheme in schemes.items():
            found = np.stack([cell(common, given.rho, scheme, epsilon, seed) for seed in seeds]).mean(0)
            table[epsilon, name] = found.max(0)
            chosen = " ".join(f"{given.rho[best]:g}" for best in found.argmax(0))
            numbers = " ".join(f"{value:7.1f}" for value in table[epsilon, name])
            print(f"{epsilon:4g} {name:14} {numbers}   {chosen}", flush=True)
    means = np.mean(list(table.values()), axis=0)
    print(f"{'mean over the grid':19} " + " ".join(f"{value:7.1f}" for value in means))
    worst = min(table, key=lambda cell: table[cell][2] - table[cell][:2].max())
    gap = table[worst][2] - table[worst][:2].max()
    print(f"worst cell of auto: ε = {worst[0]:g}, {worst[1]}: {gap:+.1f} points to the better of s = 1 and s = 0")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
