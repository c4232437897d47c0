"""SPADE-DFL through the hosts: the equations, the optimum, stability, the price of a release."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dualfed.algorithms.registry import make_method, method_table
from dualfed.algorithms.spade_dfl import SPADEDFL
from dualfed.errors import InvalidValue
from dualfed.keys import noise_key, stream_key
from dualfed.privacy.accountants import Accountant
from dualfed.runs.config import parse
from dualfed.runs.prepare import Given, prepare
from dualfed.runs.simulate import simulate
from dualfed.topology.exchange import EdgeExchange
from dualfed.topology.stability import UnstablePenalty
from scipy.optimize import minimize
from scipy.stats import norm

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
            stream = stream_key(key, "method/queries", i, t, t - 1)
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
    features, labels = (
        np.concatenate([getattr(s, name) for s in prepared.job.shards]) for name in ("features", "labels")
    )
    owner = np.concatenate([np.repeat(1 / (N * np.diff(s.offsets)), np.diff(s.offsets)) for s in prepared.job.shards])
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
        return np.einsum("i,ikl,ip,iq->kplq", owner, each, features, features).reshape(len(x), -1) + weight * np.eye(
            len(x)
        )

    x = minimize(value, np.zeros(problem.dim), jac=True, method="BFGS", options={"gtol": 1e-6}).x
    for _ in range(8):
        x = x - np.linalg.solve(hessian(x), value(x)[1])
    assert np.linalg.norm(value(x)[1]) < 1e-13
    return x


WEIGHT = 0.5
ETA = {1: 0.6, 5: 0.2, 20: 0.05}
ROUNDS = {1: 160, 5: 90, 20: 90}


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
    assert result.diagnostics["stationarity"].iloc[-1] < 1e-15


def test_a_regulariser_without_a_gradient_is_refused():
    with pytest.raises(InvalidValue, match=r"problem\.regulariser = 'L1'.*give none or l2"):
        simulate({**config(), "problem": {"regulariser": "l1", "weight": 0.1}}, keep=False)


def test_the_regulariser_costs_no_clip_and_no_privacy():
    """What R adds is public, so a clip that no release of f reaches is not reached with R either."""
    given = config(clip=10.0, rounds=2)
    plain = simulate(given, keep=False)
    heavy = simulate({**given, "problem": {"regulariser": "l2", "weight": 5.0}}, keep=False)
    assert not np.allclose(plain.model, heavy.model)
    assert heavy.diagnostics["clipped_share"].max() == 0


def test_stability_is_a_matter_of_one_sentence():
    base = config(rounds=3)
    alpha = 0.3 * 0.2
    lambda_max = 4.0  # a ring of six nodes
    for factor, refused in ((1.001, True), (0.999, False)):
        beta = factor * (8 / 3) / (5 * alpha * 1.0 * lambda_max)
        given = {**base, "topology": {"kind": "ring"}, "method": {**base["method"], "beta": beta}}
        if refused:
            with pytest.raises(
                UnstablePenalty, match=r"consensus diverges.*λ_max = 4\).*take β or ρ smaller"
            ) as caught:
                simulate(given, keep=False)
            assert "\n" not in str(caught.value)
        else:
            assert simulate(given, keep=False).ending == "completed"


def test_unequal_steps_are_judged_by_the_matrix():
    """ρ·max a·λ_max is above 8/3 here, the eigenvalues of ρA^{1/2}ℒA^{1/2} are below it: allowed."""
    base = config(rounds=3, local_steps=[1, 1, 20, 1, 1, 1])
    alpha, lambda_max = 0.3 * 0.2, 4.0
    beta = 1.1 * (8 / 3) / (20 * alpha * lambda_max)
    given = {**base, "topology": {"kind": "ring"}, "method": {**base["method"], "beta": beta}}
    assert simulate(given, keep=False).ending == "completed"
    with pytest.raises(UnstablePenalty):
        simulate({**given, "method": {**given["method"], "beta": 2.5 * beta}}, keep=False)


def test_the_curvature_warning_is_in_the_summary():
    quiet, loud = (simulate(config(eta=eta, rounds=2), keep=False) for eta in (0.3, 3.0))
    assert quiet.summary["warnings"] == []
    assert len(loud.summary["warnings"]) == 1
    assert "the run may diverge" in loud.summary["warnings"][0]


def test_every_client_may_have_its_own_steps():
    steps = [5, 1, 3, 7, 2, 4]
    result = simulate(config(local_steps=steps), keep=False)
    sizes = result.clients["records"].sum()
    assert result.metrics["queries"].iloc[-1] == 10 * (sizes + sum(steps))
    for wrong in ([1, 2, 3], [0] * N, []):
        with pytest.raises(InvalidValue, match=r"method\.local_steps"):
            simulate(config(local_steps=wrong), keep=False)
    with pytest.raises(InvalidValue, match=r"method\.batch_size.*components"):
        simulate(config(batch_size=1000), keep=False)


def gaussian_epsilon(mu, delta):
    """The ε of a Gaussian mechanism with parameter μ at δ (Balle & Wang 2018, theorem 8)."""
    low, high = 0.0, 500.0
    for _ in range(200):
        epsilon = (low + high) / 2
        spent = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        low, high = (epsilon, high) if spent > delta else (low, epsilon)
    return high


def test_the_price_of_a_release(tmp_path):
    """K releases of sensitivity 2C at noise σ are one Gaussian of μ = 2C√K/σ; the classic bound is among the accounts."""
    rounds, clip, delta = 7, 0.4, 1e-5
    given = config(rounds=rounds, clip=clip) | {"record_states": False, "privacy": {"mode": "total", "epsilon": 6.0}}
    prepared = prepare(parse(given), tmp_path, Given())
    event = prepared.job.plan.events[0]
    bound = prepared.method.bound(prepared.problem, prepared.sizes, np.ones(N), 1)
    assert (event.unit, event.status) == ("client", "guaranteed")
    assert bound.clip == clip
    assert bound.sensitivity.tolist() == [2 * clip] * N
    sigma = prepared.job.plan.noise_multipliers[0] * 2 * clip
    result = simulate(given, keep=False)
    tight = gaussian_epsilon(2 * clip * math.sqrt(rounds) / sigma, delta)
    assert result.epsilon == pytest.approx(tight, rel=1e-4)
    assert result.epsilon <= 6.0
    rho = rounds * (2 * clip) ** 2 / (2 * sigma**2)
    accounts = Accountant().epsilon({event: rounds}, delta).alternatives
    assert accounts["zcdp"] == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / delta)), rel=1e-9)
    assert accounts["zcdp"] > result.epsilon
    with pytest.raises(InvalidValue, match=r"method\.clip"):
        simulate({**given, "method": {**given["method"], "clip": None}}, keep=False)


def test_noise_from_a_zcdp_budget():
    given = config(rounds=5, clip=0.4) | {"privacy": {"mode": "zcdp", "rho_z": 2.0}}
    sigma = simulate(given, keep=False).clients["noise_multiplier"] * 0.8
    assert sigma.tolist() == pytest.approx([math.sqrt(2 * 0.4**2 * 5 / 2.0)] * N)


def test_the_rate_schedule():
    """SPEC section 3: η = η₀T^{−1/2}, μ = μ₀T^{−1/6}, τ = ⌈τ₀T^{1/3}⌉, K = T/τ, and once only."""
    method = SPADEDFL(schedule="rate", budget=8000, eta=2.0, mu=3.0, tau0=1.5)
    assert (method.local_steps, method.rounds) == (30, 267)
    assert method.eta == pytest.approx(2 / 8000**0.5)
    assert method.mu == pytest.approx(3 / 8000 ** (1 / 6))
    assert make_method(method_table(method)) == method
    with pytest.raises(InvalidValue, match=r"method\.budget"):
        SPADEDFL(schedule="rate")
    result = simulate(config(schedule="rate", budget=216, rounds=1, local_steps=1), keep=False)
    assert result.summary["rounds_done"] == 36
    assert result.config["method"]["local_steps"] == 6


def test_the_share_of_the_common_direction():
    """r of one round from Δ_i themselves, as the diagnostic has it; exact gradients agree more than queries do."""
    found = {}
    for estimator in ("gradient", "baseline"):
        result = simulate(config(estimator=estimator, rounds=1, mu=0.01, eta=0.5), keep=False)
        delta = result.states["x"][0]
        unit = delta / np.linalg.norm(delta, axis=1, keepdims=True)
        cosines = (unit @ unit.T)[~np.eye(N, dtype=bool)]
        found[estimator] = result.diagnostics["common_share"].iloc[-1]
        assert found[estimator] == pytest.approx(math.sqrt(max(0.0, cosines.mean())), abs=1e-9)
    assert found["gradient"] > found["baseline"]


def test_a_run_may_use_single_precision():
    given = config(rounds=4) | {"dtype": "float32"}
    single, double = simulate(given, keep=False), simulate(config(rounds=4), keep=False)
    assert single.states["x"].dtype == np.float32
    np.testing.assert_allclose(single.model, double.model, atol=1e-4)
