"""Small cohorts for the tests of this folder."""

from __future__ import annotations

import numpy as np
import torch
from dualfed.algorithms.problems import LeastSquaresProblem, LogisticProblem, SoftmaxProblem
from dualfed.algorithms.queries import local_stage, split_keys
from dualfed.algorithms.shards import Shards
from dualfed.keys import public_key, stream_key


def keys(clients, round=1, seed=5):
    return split_keys([stream_key(public_key(seed), "queries", client, round) for client in range(clients)])


def cohort(kind, sizes, p=7, classes=3, dtype=torch.float64, seed=0):
    """Problem, shards, start points ``[C, d]`` and corrections ``[C, d]``."""
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    features = rng.standard_normal((total, p))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    k = classes if kind == "softmax" else 1
    labels = rng.standard_normal(total) if kind == "least-squares" else rng.integers(0, max(k, 2), total)
    problem = {"softmax": SoftmaxProblem, "logistic": LogisticProblem, "least-squares": LeastSquaresProblem}[kind](
        p, k, 1.0
    )
    shards = Shards.from_arrays(features, labels, np.split(np.arange(total), np.cumsum(sizes)[:-1]), dtype)
    x0 = torch.from_numpy(rng.standard_normal((len(sizes), problem.dim))).to(dtype)
    drift = torch.from_numpy(1e-3 * rng.standard_normal((len(sizes), problem.dim))).to(dtype)
    return problem, shards, x0, drift


def stage(case, slots=None, **given):
    """The local stage of some clients of a cohort, with defaults for what a test does not care for."""
    problem, shards, x0, drift = case
    slots = torch.arange(shards.n_clients) if slots is None else torch.as_tensor(slots)
    n = shards.n_clients
    defaults = {"estimator": "paper", "direction": "rademacher", "eta": 0.05, "mu": 0.1, "keys": keys(n)}
    options = {**defaults, **given}
    for name, value in (("steps", 6), ("batch", 1)):
        options[name] = np.broadcast_to(options.get(name, value), (n,))
    chosen = slots.numpy()
    for name in ("steps", "batch", "keys", "weights"):
        if options.get(name) is not None:
            options[name] = np.asarray(options[name])[chosen]
    return local_stage(problem, shards, slots, x0[slots], drift[slots], **options)
