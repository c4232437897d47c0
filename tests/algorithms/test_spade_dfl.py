"""SPADE-DFL through the hosts: the equations, the optimum, stability, the price of a release."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dualfed.keys import noise_key, stream_key
from dualfed.runs.config import parse
from dualfed.runs.prepare import Given, prepare
from dualfed.runs.simulate import simulate
from dualfed.topology.exchange import EdgeExchange
from scipy.optimize import minimize

from .queries import reference

N = 6


def config(**method):
    return {
        "seed": 2,
        "engine": "inline",
        "evaluate_every": 1000,
        "record_states": True,
        "data": {"name": "synthetic", "records": 90, "features": 4, "classes": 3},
        "partition": {"clients": N, "scheme": "dirichlet", "alpha": 2.0, "min_size": 6},
        "topology": {"kind": "erdos-renyi"},
        "method": {"name": "spade-dfl", "rounds": 10, "local_steps": 5, "eta": 0.3, "mu": 0.2, **method},
        "privacy": {"mode": "none"},
    }


def literally(given, tmp_path):
    """(Z2)–(Z9) with edge variables, client by client: states ``[K, N, d]``."""
    prepared = prepare(parse(given), tmp_path, Given())
    method, job, problem = prepared.method, prepared.job, prepared.problem
    shard_of = {}
    for spec, shard in zip(job.specs, job.shards):
        for row, client in enumerate(spec.clients):
            rows = slice(shard.offsets[row], shard.offsets[row + 1])
            shard_of[int(client)] = shard.features[rows], shard.labels[rows]
    steps, batch = method.per_client("local_steps", N), method.per_client("batch_size", N)
    alpha, weight = method.eta * method.mu, given.get("problem", {}).get("weight", 0.0)
    x = np.zeros((N, problem.dim))
    exchange = EdgeExchange(prepared.graph, method.rho, x)
    key, found = noise_key(given["seed"]), []
    for t in range(1, method.rounds + 1):
        correction = exchange.correction(x)
        new = np.empty_like(x)
        for i in range(N):
            drift = alpha * (method.beta * correction[i] + weight * x[i])
            stream = stream_key(key, "queries", i, t, t - 1)
            delta, _ = reference.local_stage(
                reference.losses("softmax"),
                *shard_of[i],
                problem.n_outputs,
                x[i],
                drift,
                estimator=method.estimator,
                direction_kind=method.direction,
                eta=method.eta,
                mu=method.mu,
                steps=steps[i],
                batch=batch[i],
                chunk=method.chunk,
                noise=method.query_noise,
                key=(stream & ((1 << 64) - 1), stream >> 64),
                weight=1.0,
            )
            if method.clip is not None:
                delta = delta * min(1.0, method.clip / np.linalg.norm(delta))
            new[i] = x[i] - steps[i] * drift + delta
        exchange.advance(new)
        x = new
        found.append(x)
    return np.array(found)


@pytest.mark.parametrize("estimator", ["paper", "baseline", "two-point", "gradient"])
def test_rounds_are_the_equations_as_written(estimator, tmp_path):
    given = config(estimator=estimator, local_steps=[5, 1, 3, 7, 2, 4], batch_size=[1, 2, 3, 1, 2, 1])
    expected = literally(given, tmp_path)
    for per_actor in (1, 4):
        result = simulate({**given, "actors": {"clients_per_actor": per_actor}}, keep=False)
        np.testing.assert_allclose(result.states["x"], expected, rtol=1e-9, atol=1e-9)
    assert np.ptp(expected[-1], axis=0).max() > 1e-3, "clients differ, so that the exchange was tested"


def test_the_equations_with_clip_chunks_and_regulariser(tmp_path):
    given = config(clip=0.05, chunk=2, direction="sphere", query_noise=0.01, eta=0.5)
    given["problem"] = {"regulariser": "l2", "weight": 0.3}
    result = simulate(given, keep=False)
    np.testing.assert_allclose(result.states["x"], literally(given, tmp_path), rtol=1e-9, atol=1e-9)
    assert result.diagnostics["clipped_share"].iloc[-1] > 0


def optimum(prepared, weight):
    """x* of (P1) by a Newton method on the records of all clients together."""
    problem = prepared.problem
    features, labels = (np.concatenate([getattr(s, name) for s in prepared.job.shards]) for name in ("features", "labels"))
    owner = np.concatenate(
        [np.repeat(1 / (N * np.diff(s.offsets)), np.diff(s.offsets)) for s in prepared.job.shards]
    )
    hot = np.eye(problem.n_outputs)[labels]

    def value(x):
        s = features @ x.reshape(problem.n_outputs, -1).T
        s = s - s.max(1, keepdims=True)
        p = np.exp(s) / np.exp(s).sum(1, keepdims=True)
        loss = owner @ -np.log((p * hot).sum(1)) + weight / 2 * x @ x
        return loss, ((p - hot) * owner[:, None]).T.dot(features).ravel() + weight * x

    def hessian(x):
        s = features @ x.reshape(problem.n_outputs, -1).T
        p = np.exp(s - s.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        each = np.einsum("ij,jk->ijk", p, np.eye(p.shape[1])) - p[:, :, None] * p[:, None, :]
        return np.einsum("i,ikl,ip,iq->kplq", owner, each, features, features).reshape(len(x), -1) + weight * np.eye(len(x))

    x = minimize(value, np.zeros(problem.dim), jac=True, method="BFGS", options={"gtol": 1e-6}).x
    for _ in range(8):
        x = x - np.linalg.solve(hessian(x), value(x)[1])
    assert np.linalg.norm(value(x)[1]) < 1e-13
    return x


WEIGHT = 0.5
ETA = {1: 0.6, 5: 0.3, 20: 0.1}
ROUNDS = {1: 400, 5: 400, 20: 400}


@pytest.mark.parametrize("tau", [1, 5, 20])
@pytest.mark.parametrize("kind", ["ring", "erdos-renyi"])
def test_exact_gradients_reach_the_centralised_optimum(kind, tau, tmp_path):
    given = config(estimator="gradient", local_steps=tau, rounds=ROUNDS[tau], eta=ETA[tau], mu=0.5)
    given |= {"record_states": False, "topology": {"kind": kind}, "problem": {"regulariser": "l2", "weight": WEIGHT}}
    given["partition"] = {"clients": N, "scheme": "dirichlet", "alpha": 0.5, "min_size": 6}
    x = optimum(prepare(parse(given), tmp_path, Given()), WEIGHT)
    result = simulate(given, keep=False)
    worst = math.sqrt(result.metrics["consensus"].iloc[-1] * N) + np.linalg.norm(result.model - x)
    assert worst < 1e-8
    assert result.diagnostics["stationarity"].iloc[-1] < 1e-16
