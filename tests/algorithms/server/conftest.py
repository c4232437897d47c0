"""A server in a few lines, for tests of methods alone: every client in every round, or those that are listed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dualfed.algorithms.method import Cohort
from dualfed.algorithms.problems import make_problem
from dualfed.algorithms.shards import Shards
from dualfed.keys import generator, noise_key
from dualfed.privacy.gate import Bound, Granted, NoiseGate

P, CLASSES, SIZES = 4, 3, (11, 14, 20)


def softmax_world(seed=0, regulariser=None, sizes=SIZES, spread=0.0):
    """A softmax problem and shards of unit records; ``spread`` pulls each client's labels towards its own class."""
    draw = generator(b"test", "world", round=seed)
    total = sum(sizes)
    features = draw.standard_normal((total, P))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = draw.integers(0, CLASSES, total)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.where(draw.random(total) < spread, owner % CLASSES, labels)
    shards = Shards.from_flat(features, labels, np.concatenate([[0], np.cumsum(sizes)]))
    return make_problem("softmax", P, CLASSES, 1.0, *([] if regulariser is None else [regulariser])), shards


def cohort_of(problem, shards, clients=None, weights=None):
    sizes = shards.sizes.numpy()
    ids = np.arange(len(sizes)) if clients is None else np.asarray(clients)
    return Cohort(
        problem, shards, torch.from_numpy(ids), ids, sizes[ids], np.ones(len(ids)) if weights is None else weights
    )


def open_gate(method, cohort, t, z=0.0, gate_class=NoiseGate):
    n = len(cohort)
    if method.event(cohort.problem, int(cohort.sizes[0]), 1.0, t) is None:
        nothing = np.zeros(n)
        return gate_class(Granted(t, cohort.clients, np.full(n, -1), nothing), Bound(nothing, parts=0), noise_key(5))
    bound = method.bound(cohort.problem, cohort.sizes, cohort.weights, t)
    return gate_class(Granted(t, cohort.clients, np.full(n, t), np.full(n, z)), bound, noise_key(5))


def play(method, problem, shards, rounds, z=0.0, participants=None, record=None):
    """The model ``[d]`` after some rounds; ``record`` gets every round's model."""
    n = len(shards.sizes)
    start = torch.from_numpy(problem.start(0)).to(shards.features.dtype)
    rows = {name: row.expand(n, -1).clone() for name, row in method.init(start).items()}
    server, total = method.server_start(start.numpy()), method.upload(rows).sum(0).numpy()
    if method.opens:
        everyone = cohort_of(problem, shards)
        features, labels = method.open(everyone, open_gate(method, everyone, 0, z))
        shards = Shards.from_flat(features.numpy(), labels.numpy(), shards.offsets.numpy())
    for t in range(1, rounds + 1):
        received = torch.from_numpy(method.broadcast(total if server is None else server, n))
        chosen = np.arange(n) if participants is None else participants[(t - 1) % len(participants)]
        cohort, where = cohort_of(problem, shards, chosen), torch.as_tensor(chosen)
        old = {name: row[where] for name, row in rows.items()}
        new = method.local_round(old, received, cohort, open_gate(method, cohort, t, z), t)
        for name, row in rows.items():
            row[where] = new[name]
        total = method.upload(new if method.uploads == "fresh" else rows).sum(0).numpy()
        if server is not None:
            server = method.serve(server, total, len(chosen), n)
        if record is not None:
            record.append(method.model(torch.from_numpy(method.broadcast(total if server is None else server, n))))
    return method.model(torch.from_numpy(method.broadcast(total if server is None else server, n))).numpy()


def objective(problem, shards, x):
    """H of (P1) at ``x`` ``[d]``."""
    point = torch.from_numpy(np.asarray(x))
    return float(problem.client_losses(point, shards).mean() + problem.regulariser.value(point))


def optimum(problem, shards):
    """The minimiser of H by an optimiser that knows nothing of clients; a smooth regulariser."""
    from scipy.optimize import minimize

    slots = torch.arange(len(shards.sizes))

    def slope(x):
        point = torch.from_numpy(x)
        gradient = problem.full_gradient(point.expand(len(slots), -1).contiguous(), shards, slots).mean(0)
        return (gradient + problem.regulariser.subgradient(point)).numpy()

    found = minimize(
        lambda x: objective(problem, shards, x),
        np.zeros(problem.dim),
        jac=slope,
        method="BFGS",
        options={"gtol": 1e-10},
    )
    return found.x


@pytest.fixture(scope="module")
def server():
    """What this file holds."""
    return SimpleNamespace(
        world=softmax_world, cohort=cohort_of, gate=open_gate, play=play, objective=objective, optimum=optimum
    )
