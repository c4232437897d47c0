"""Methods over Metropolis weights: their equations again in numpy, the optimum or the known bias, references refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.errors import InvalidValue
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import simulate

from .graph_runs import CLIENTS, Local, config

ROUNDS = 12


def dsgd(local, alpha):
    w, x, found = local.metropolis(), np.zeros((local.clients, local.problem.dim)), []
    for _ in range(ROUNDS):
        x = w @ x - alpha * local.stacked(x)
        found.append(x)
    return np.array(found)


def gradient_tracking(local, alpha):
    """As published, from y⁰ = ∇O(x⁰); ours makes that tracker in its first round."""
    w, x = local.metropolis(), np.zeros((local.clients, local.problem.dim))
    y, found = local.stacked(x), [x]
    for _ in range(ROUNDS - 1):
        new = w @ x - alpha * y
        y = w @ y + local.stacked(new) - local.stacked(x)
        x = new
        found.append(x)
    return np.array(found)


def extra(local, alpha):
    w = local.metropolis()
    half = (np.eye(len(w)) + w) / 2
    before = np.zeros((local.clients, local.problem.dim))
    x = w @ before - alpha * local.stacked(before)
    found = [x]
    for _ in range(ROUNDS - 1):
        new = x + w @ x - half @ before - alpha * (local.stacked(x) - local.stacked(before))
        before, x = x, new
        found.append(x)
    return np.array(found)


PUBLISHED = {"dsgd": dsgd, "gradient-tracking": gradient_tracking, "extra": extra}


@pytest.mark.parametrize("name", PUBLISHED)
def test_rounds_are_the_equations_as_published(name, tmp_path):
    given = config(name, rounds=ROUNDS, alpha=0.2)
    expected = PUBLISHED[name](Local(given, tmp_path), 0.2)
    for per_actor in (1, 4, CLIENTS):
        result = simulate({**given, "actors": {"clients_per_actor": per_actor}}, keep=False)
        np.testing.assert_allclose(result.states["x"], expected, rtol=1e-9, atol=1e-11)
    assert np.ptp(expected[-1], axis=0).max() > 1e-3, "clients differ, so that the exchange was tested"


@pytest.mark.parametrize("name", ["gradient-tracking", "extra"])
def test_exact_references_reach_the_centralised_optimum(name, tmp_path):
    given = config(name, rounds=600, alpha=0.35) | {"record_states": False}
    x = Local(given, tmp_path).optimum()
    result = simulate(given, keep=False)
    assert np.linalg.norm(result.model - x) < 1e-8
    assert result.metrics["consensus"].iloc[-1] < 1e-16


def test_dsgd_reaches_its_known_fixed_point(tmp_path):
    """(I − W)x + α∇O(x) = 0, an O(α) away from the optimum."""
    distances = []
    for alpha in (0.2, 0.1):
        given = config("dsgd", rounds=500, alpha=alpha, weight=0.5)
        local = Local(given, tmp_path / str(alpha))
        x = simulate(given, keep=False).states["x"][-1]
        left = x - local.metropolis() @ x + alpha * local.stacked(x)
        assert np.abs(left).max() < 1e-8
        distances.append(np.linalg.norm(x - local.optimum(), axis=1).max())
    assert distances[1] > 1e-3
    assert distances[1] == pytest.approx(distances[0] / 2, rel=0.25)


PAIRS = {
    "dp-dsgd": ("dsgd", {"eta": 0.4, "mu": 0.5}),
    "dp-gt": ("gradient-tracking", {"eta": 0.4, "mu": 0.5}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_without_noise_a_private_method_is_its_reference(name):
    reference, steps = PAIRS[name]
    own = config(name, rounds=ROUNDS, local_steps=1, estimator="gradient", clip=1e9, **steps)
    theirs = config(reference, rounds=ROUNDS, alpha=0.2)
    mine, other = (simulate(given, keep=False).states["x"] for given in (own, theirs))
    np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PAIRS)
def test_mixing_rounds_average_once_more_and_do_not_move(name, tmp_path):
    given = config(name, rounds=4, local_steps=1, estimator="gradient", clip=1e9, eta=0.4, mu=0.5, mixing_rounds=2)
    local = Local(given, tmp_path)
    w, x = local.metropolis(), np.zeros((local.clients, local.problem.dim))
    y = before = np.zeros_like(x)
    for states in simulate(given, keep=False).states["x"]:
        if name == "dp-dsgd":
            x = w @ x - 0.2 * local.stacked(x)
        else:
            x = w @ x - 0.2 * y
            y, before = w @ y + local.stacked(x) - before, local.stacked(x)
            y = w @ w @ y
        x = w @ w @ x
        np.testing.assert_allclose(states, x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PAIRS)
def test_values_alone_come_near_the_gradients(name):
    """Many queries a round at a hardly moving point, averaged, are the gradient within their noise."""
    common = {"rounds": 6, "mu": 1e-3, "eta": 1e-2, "local_steps": 3000}
    common |= {"alpha": 0.2} if name == "dp-gt" else {}
    found = {
        estimator: simulate(config(name, estimator=estimator, **common), keep=False).model
        for estimator in ("gradient", "baseline", "two-point")
    }
    for estimator in ("baseline", "two-point"):
        gap = np.linalg.norm(found[estimator] - found["gradient"]) / np.linalg.norm(found["gradient"])
        assert gap < 0.3, (estimator, gap)


def test_a_tracked_step_of_its_own_goes_further_than_the_local_path():
    short, long = (
        simulate(config("dp-gt", rounds=5, local_steps=2, estimator="gradient", eta=0.01, mu=0.5, **more), keep=False)
        for more in ({}, {"alpha": 0.5})
    )
    assert np.linalg.norm(long.model) > 10 * np.linalg.norm(short.model)


@pytest.mark.parametrize("name", ["dp-dsgd", "dp-gt"])
def test_the_charge_is_a_gaussian_of_two_clips_a_round(name, tmp_path):
    given = config(name, rounds=7, local_steps=3, clip=0.4, mode="total") | {"record_states": False}
    given["privacy"] |= {"epsilon": 6.0}
    result = simulate(given, out=tmp_path / "run")
    ledger = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite")
    try:
        (event,) = ledger.events
        assert (event.kind, event.unit, event.status) == ("gaussian", "client", "guaranteed")
        assert ledger.counts.tolist() == [[7]] * CLIENTS
    finally:
        ledger.close()
    spade = {**given, "method": {"name": "spade-dfl", "rounds": 7, "local_steps": 3, "clip": 0.4}}
    assert result.epsilon == pytest.approx(simulate(spade, keep=False).epsilon)
    with pytest.raises(InvalidValue, match=r"method\.clip"):
        simulate({**given, "method": {**given["method"], "clip": None}}, keep=False)


@pytest.mark.parametrize("name", ["dp-dsgd", "dp-gt", "lt-admm"])
def test_neighbouring_clients_release_increments_at_most_two_clips_apart(name, tmp_path):
    """One client's whole data set replaced, from the same released state: rounds 1 and 2 of the real methods."""
    from dualfed.algorithms.conformance import play_graph
    from dualfed.algorithms.conformance_world import world
    from dualfed.algorithms.registry import make_method
    from dualfed.privacy.gate import NoiseGate

    clip = 0.01
    steps = {"local_steps": 4, "clip": clip}
    steps |= {"gamma": 0.5} if name == "lt-admm" else {"eta": 1.0, "mu": 0.5}
    method = make_method({"name": name, "rounds": 2, **steps})
    gaps, seen = [], []

    class Watching(NoiseGate):
        def release(self, value, part=0):
            found = super().release(value, part)
            seen.append(found.clone())
            return found

    for seed in (1, 2):
        problem, shards = world(torch.float64, None, seed)
        play_graph(method, problem, shards, [0, 1, 2], 1, gate_class=Watching)
    gaps = torch.linalg.vector_norm(seen[0] - seen[1], dim=1)
    assert (gaps <= 2 * clip).all()
    assert (gaps > 0.5 * clip).all(), "clipped, and data sets differ: the bound is approached"


@pytest.mark.parametrize("name", ["dsgd", "gradient-tracking", "extra"])
def test_a_reference_takes_no_budget_and_shows_no_small_epsilon(name):
    given = config(name, rounds=2)
    with pytest.raises(InvalidValue, match=rf"privacy\.mode = 'total': {name} is a reference without privacy") as told:
        simulate({**given, "privacy": {"mode": "total", "epsilon": 1.0}}, keep=False)
    assert "\n" not in str(told.value)
    result = simulate(given, keep=False)
    assert result.epsilon == float("inf")


@pytest.mark.parametrize("name", ["dsgd", "gradient-tracking", "extra"])
def test_stochastic_gradients_go_the_same_way(name):
    full, drawn = (
        simulate(config(name, rounds=60, alpha=0.1, **more), keep=False).diagnostics["objective"].iloc[-1]
        for more in ({}, {"batch_size": 5})
    )
    assert drawn == pytest.approx(full, abs=0.1)


@pytest.mark.parametrize(
    ("name", "field", "value", "told"),
    [
        ("dsgd", "alpha", 0.0, "finite number > 0"),
        ("extra", "batch_size", 0, "whole number ≥ 1"),
        ("gradient-tracking", "batch_size", 1000, "records; lower it"),
        ("dp-dsgd", "batch_size", 1000, "components; lower it"),
        ("dp-gt", "alpha", -1.0, "finite number > 0"),
        ("dp-dsgd", "query_noise", -1.0, "number ≥ 0"),
        ("lt-admm", "gamma", 0.0, "finite number > 0"),
        ("lt-admm", "batch_size", 1000, "records; lower it"),
    ],
)
def test_wrong_values_are_one_sentence(name, field, value, told):
    with pytest.raises(InvalidValue, match=rf"method\.{field}") as caught:
        simulate(config(name, **{field: value}), keep=False)
    assert told in str(caught.value)
