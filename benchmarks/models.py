"""Networks on images in the layout of MNIST: federated beside central training, and with whole clients protected.

    python benchmarks/models.py /usr/share/datasets/fashion-mnist [--clients 20] [--records 6000] [--rounds 50]

The MLP and the CNN that ship with the package, from the same start on the same records:

* trained centrally by plain SGD on the pooled records, with as many gradient steps (rounds × local steps) on batches as
  large as those of all clients together, at the step size that did best of a few;
* by FedSPD-DP without privacy, all clients in every round, with s = 1 and with s = 0;
* by FedSPD-DP at ε = 8 for a client's whole data set, by clipped increments (Δx̄ = 2C), in a fifth of the rounds.

Of T releases by N clients the model carries noise of norm 4 z C √(T d/N) against T increments of norm C at most: with tens of
clients and ten thousands of parameters the last column is near chance whatever C is, and the number says so.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dualfed.algorithms.problems import ModuleProblem
from dualfed.keys import generator, public_key
from dualfed.runs.config import ProblemConfig
from dualfed.runs.data import Dataset, load
from dualfed.runs.data_config import DataConfig
from dualfed.runs.prepare import build_problem
from dualfed.runs.simulate import simulate

MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [64]},
    "cnn": {"channels": [8, 16], "hidden": 32},
}
CENTRAL_STEPS = (0.05, 0.1)


def subset(data: Dataset, records: int) -> Dataset:
    """The first ``records`` training records in a keyed order, all test records."""
    kept = np.sort(generator(public_key(0), "subset").permutation(len(data.train_labels))[:records])
    return Dataset(
        data.train_features[kept],
        data.train_labels[kept],
        data.test_features,
        data.test_labels,
        data.n_classes,
        data.name,
        data.scaling,
        data.record_norm,
    )


def central(problem: ModuleProblem, data: Dataset, steps: int, batch: int) -> tuple[float, float]:
    """(test accuracy, step size) of SGD on the pooled records, the best of a few constant step sizes."""
    features, labels = torch.as_tensor(data.train_features), torch.as_tensor(data.train_labels)
    test = torch.as_tensor(data.test_features), torch.as_tensor(data.test_labels)
    found = []
    for size in CENTRAL_STEPS:
        x = torch.as_tensor(problem.start(0), dtype=torch.float32)[None]
        draw = generator(public_key(0), "central")
        for _ in range(steps):
            rows = torch.from_numpy(draw.integers(0, len(labels), batch))
            gradient = torch.zeros_like(x)
            problem.add_gradient(gradient, x, features[rows][None], labels[rows][None])
            x = x - size * gradient
        found.append((problem.score(x[0], *test)["accuracy"], size))
    return max(found)


def federated(problem: ModuleProblem, data: Dataset, given: argparse.Namespace, **changes: Any) -> tuple[float, float]:
    """(test accuracy, ε) of FedSPD-DP."""
    private = "increment_clip" in changes
    method = {"name": "fedspd-dp", "rounds": given.rounds, "local_steps": given.steps, "batch_size": given.batch}
    config = {
        "engine": "inline",
        "dtype": "float32",
        "evaluate_every": given.rounds,
        "checkpoint_every": 10**6,
        "partition": {"scheme": "iid", "clients": given.clients},
        "method": {**method, "rho": given.rho, "gamma": given.gamma, **changes},
        "privacy": {"mode": "total", "epsilon": given.epsilon} if private else {"mode": "none"},
    }
    result = simulate(config, dataset=data, problem=problem, keep=False)
    return result.accuracy, result.epsilon


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the folder with the four idx files")
    for name, default in (("clients", 20), ("records", 6000), ("rounds", 50), ("steps", 5), ("batch", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, number in (("rho", 1.0), ("gamma", 10.0), ("epsilon", 8.0), ("clip", 0.1)):
        parser.add_argument(f"--{name}", type=float, default=number)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = subset(load(DataConfig(name="idx", path=given.path, bias=False), 0), given.records)
    steps, batch = given.rounds * given.steps, given.clients * given.batch
    print(
        f"{given.clients} clients × {given.records // given.clients} records, {steps} gradient steps, batches of {batch} in all"
    )
    print(
        f"{'model':6}{'d':>8}{'central':>10}{'s = 1':>9}{'s = 0':>9}{f'ε = {given.epsilon:g}, client':>18}{'seconds':>9}"
    )
    for name, options in MODELS.items():
        began = time.perf_counter()
        problem = build_problem(ProblemConfig(kind="module", model=name, model_options=options), data)
        assert isinstance(problem, ModuleProblem)
        alone, size = central(problem, data, steps, batch)
        together = [federated(problem, data, given, memory=memory)[0] for memory in (1.0, 0.0)]
        private, epsilon = federated(
            problem, data, given, increment_clip=given.clip, memory=0.0, rounds=max(1, given.rounds // 5)
        )
        assert epsilon <= given.epsilon
        seconds = time.perf_counter() - began
        numbers = (
            f"{100 * alone:9.1f}%{100 * together[0]:8.1f}%{100 * together[1]:8.1f}%{100 * private:17.1f}%{seconds:9.0f}"
        )
        print(f"{name:6}{problem.dim:8}{numbers}   (central step {size:g})", flush=True)


if __name__ == "__main__":
    main()
