"""LT-ADMM: the published edge form again in numpy, the optimum, and a clip that makes it private."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.keys import noise_key, stream_key
from dualfed.privacy.gate import Bound, Granted, NoiseGate
from dualfed.runs.simulate import simulate

from .graph_runs import CLIENTS, Local, config

STEPS, GAMMA, RHO = 4, 0.15, 0.7


def published(local, rounds, estimate):
    """Edge variables z_ij, one message each way, and τ local steps; ``estimate(t, i, x)`` gives ĝ of the s-th step."""
    method, nodes = local.method, range(local.clients)
    x = np.zeros((local.clients, local.problem.dim))
    z = {(i, j): method.rho * x[j] for i in nodes for j in local.graph[i]}
    found = []
    for t in range(1, rounds + 1):
        new = np.empty_like(x)
        for i in nodes:
            phi = x[i].copy()
            correction = method.rho * local.graph.degree(i) * x[i] - sum(z[i, j] for j in local.graph[i])
            gradient = estimate(t, i, x[i])
            for s in range(method.local_steps):
                step = gradient(s, phi)
                phi = phi - method.gamma * (step + local.weight * x[i]) - method.beta * correction
            new[i] = phi
        x = new
        z = {(i, j): 0.5 * (z[i, j] - z[j, i] + 2 * method.rho * x[j]) for i, j in z}
        found.append(x)
    return np.array(found)


def test_full_gradients_are_the_published_rounds(tmp_path):
    given = config("lt-admm", rounds=8, local_steps=STEPS, gamma=GAMMA, rho=RHO)
    local = Local(given, tmp_path)
    expected = published(local, 8, lambda t, i, x: lambda s, phi: local.gradient(i, phi))
    for per_actor in (1, 4):
        result = simulate({**given, "actors": {"clients_per_actor": per_actor}}, keep=False)
        np.testing.assert_allclose(result.states["x"], expected, rtol=1e-9, atol=1e-11)
    assert np.ptp(expected[-1], axis=0).max() > 1e-3


def test_stochastic_gradients_are_the_published_rounds_on_the_same_records(tmp_path):
    given = config("lt-admm", rounds=5, local_steps=STEPS, gamma=GAMMA, rho=RHO, batch_size=3)
    local = Local(given, tmp_path)
    key = noise_key(given["seed"])

    def estimate(t, i, x):
        granted = Granted(t, np.array([i]), np.array([t - 1]), np.zeros(1))
        gate = NoiseGate(granted, Bound(np.zeros(1)), key)
        drawn = gate.batches("independent", [len(local.records[i][0])], STEPS, 3).numpy()[0].reshape(STEPS, 3)

        def gradient(s, phi):
            features, labels = local.records[i]
            held = local.records[i] = features[drawn[s]], labels[drawn[s]]
            found = local.gradient(i, phi)
            assert len(held[0]) == 3
            local.records[i] = features, labels
            return found

        return gradient

    expected = published(local, 5, estimate)
    result = simulate(given, keep=False)
    np.testing.assert_allclose(result.states["x"], expected, rtol=1e-9, atol=1e-11)


def test_memory_is_the_published_estimator_on_the_same_records(tmp_path):
    """LT-ADMM-VR with the memory of (Z4), single records drawn as SPADE-DFL draws them."""
    from .queries import reference

    given = config("lt-admm", rounds=4, local_steps=STEPS, gamma=GAMMA, rho=RHO, batch_size=2, memory=True)
    local = Local(given, tmp_path)
    key = noise_key(given["seed"])

    def estimate(t, i, x):
        features, labels = local.records[i]
        stream = stream_key(key, "method/queries", i, t, t - 1)
        drawn = reference.batches((stream & ((1 << 64) - 1), stream >> 64), len(labels), STEPS, 2)

        def one(h, phi):
            local.records[i] = features[h : h + 1], labels[h : h + 1]
            found = local.gradient(i, phi)
            local.records[i] = features, labels
            return found

        memory = np.stack([one(h, x) for h in range(len(labels))])

        def gradient(s, phi):
            batch = list(drawn[s])
            fresh = np.stack([one(h, phi) for h in batch])
            found = (fresh - memory[batch]).mean(0) + memory.mean(0)
            memory[batch] = fresh
            return found

        return gradient

    expected = published(local, 4, estimate)
    result = simulate(given, keep=False)
    np.testing.assert_allclose(result.states["x"], expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("more", [{}, {"memory": True, "batch_size": 2}])
def test_it_reaches_the_centralised_optimum(more, tmp_path):
    given = config("lt-admm", rounds=150, local_steps=5, gamma=0.1, weight=0.5, **more) | {"record_states": False}
    x = Local(given, tmp_path).optimum()
    result = simulate(given, keep=False)
    assert np.linalg.norm(result.model - x) < 1e-7
    assert result.metrics["consensus"].iloc[-1] < 1e-12


def test_gradients_of_spade_are_the_same_method():
    """γ = ημ and β of LT-ADMM is αβ of SPADE-DFL, whose ``gradient`` estimator keeps the same memory."""
    spade = config("spade-dfl", rounds=6, local_steps=3, eta=0.3, mu=0.5, estimator="gradient", beta=0.4, clip=0.2)
    own = config("lt-admm", rounds=6, local_steps=3, gamma=0.15, beta=0.06, memory=True, batch_size=1, clip=0.2)
    theirs, mine = (simulate(given, keep=False) for given in (spade, own))
    np.testing.assert_allclose(mine.states["x"], theirs.states["x"], rtol=1e-9, atol=1e-11)
    assert mine.diagnostics["clipped_share"].iloc[-1] == theirs.diagnostics["clipped_share"].iloc[-1] > 0


def test_a_clip_makes_it_private():
    given = config("lt-admm", rounds=5, local_steps=3, clip=0.3, mode="total")
    given["privacy"] |= {"epsilon": 5.0}
    result = simulate(given, keep=False)
    assert 4.9 < result.epsilon <= 5.0
    assert result.clients["releases"].tolist() == [5] * CLIENTS
