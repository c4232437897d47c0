from __future__ import annotations

import pickle

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.topology.exchange import LaplacianExchange
from dualfed.topology.graphs import build_graph
from dualfed.topology.spectrum import laplacian
from dualfed.topology.stability import LIMIT, UnstablePenalty, check_stability, curvature_warning

GRAPHS = [("ring", 9), ("star", 12), ("grid", 12), ("hypercube", 16), ("erdos-renyi", 20)]


def disagreement(matrix, rho, gains, rounds, slope=0.0):
    """Of x after ``rounds`` of x ← x − a_i (ρℒx + y) − slope·x, relative to the start."""
    n = matrix.shape[0]
    x = np.random.default_rng(0).standard_normal((n, 2))
    x -= x.mean(axis=0)
    start = np.linalg.norm(x)
    exchange = LaplacianExchange(matrix, rho, 2)
    for _ in range(rounds):
        x = x - np.broadcast_to(gains, n)[:, None] * exchange.correction(x) - slope * x
        exchange.advance(x)
    return np.linalg.norm(x - x.mean(axis=0)) / start


@pytest.mark.parametrize(("kind", "n"), GRAPHS)
@pytest.mark.parametrize("unequal", [False, True])
def test_consensus_converges_below_eight_thirds_and_diverges_above(kind, n, unequal):
    matrix = laplacian(build_graph(kind, n, seed=2))
    rho = 0.7
    shape = np.random.default_rng(1).uniform(0.2, 2.0, n) if unequal else np.ones(n)
    reach = check_stability(matrix, rho, shape * 1e-3).largest_a / 1e-3
    edge = reach * 1e-3 * shape / shape.max()
    below = check_stability(matrix, rho, 0.999 * edge)
    assert below.largest == pytest.approx(0.999 * LIMIT)
    assert below.largest_a == pytest.approx(edge.max())
    assert disagreement(matrix, rho, 0.999 * edge, 8000) < 1e-4
    assert disagreement(matrix, rho, 1.001 * edge, 8000) > 1e4
    with pytest.raises(UnstablePenalty) as caught:
        check_stability(matrix, rho, 1.001 * edge)
    assert caught.value.largest_a == pytest.approx(edge.max())


@pytest.mark.parametrize(("kind", "n"), GRAPHS)
def test_the_simple_bound_is_sufficient(kind, n):
    matrix = laplacian(build_graph(kind, n, seed=2))
    gains = np.random.default_rng(4).uniform(0.1, 1.0, n)
    facts = check_stability(matrix, 1e-3, gains)
    assert facts.largest <= 1e-3 * gains.max() * facts.lambda_max * (1 + 1e-12)


def test_the_error_names_lambda_max_and_the_largest_gain():
    matrix = laplacian(build_graph("complete", 8))
    with pytest.raises(UnstablePenalty) as caught:
        check_stability(matrix, 0.5, 1.0)
    error = caught.value
    assert (error.largest, error.lambda_max, error.rho, error.a) == pytest.approx((4.0, 8.0, 0.5, 1.0))
    assert error.largest_a == pytest.approx(2 / 3)
    assert "λ_max = 8" in str(error)
    assert "below 0.666667" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.largest_a, str(again)) == (error.largest_a, str(error))


def test_the_limit_itself_is_refused_and_one_client_is_always_stable():
    pair = laplacian(build_graph("path", 2))
    with pytest.raises(UnstablePenalty):
        check_stability(pair, 1.0, LIMIT / 2)
    assert check_stability(pair, 1.0, 1.33).largest == pytest.approx(2.66)
    alone = check_stability(laplacian(build_graph("path", 1)), 1.0, 1e9)
    assert (alone.largest, alone.largest_a) == (0.0, float("inf"))


@pytest.mark.parametrize(
    ("rho", "a", "field"),
    [
        (0.0, 1.0, "method.rho"),
        (float("nan"), 1.0, "method.rho"),
        (1.0, 0.0, "method.a"),
        (1.0, [0.1, 0.0, 0.1], "method.a"),
        (1.0, [0.1, float("inf"), 0.1], "method.a"),
        (1.0, [0.1, 0.1], "method.a"),
    ],
)
def test_refuses_what_is_not_positive(rho, a, field):
    with pytest.raises(InvalidValue) as caught:
        check_stability(laplacian(build_graph("path", 3)), rho, a)
    assert caught.value.field == field


@pytest.mark.parametrize(("kind", "n"), GRAPHS)
def test_curvature_condition_is_exact_at_one_step(kind, n):
    matrix = laplacian(build_graph(kind, n, seed=2))
    alpha, smoothness = 0.2, 3.0
    room = LIMIT - 4 / 3 * alpha * smoothness
    unit = check_stability(matrix, 1.0, 1e-6).lambda_max
    for share, stable in ((0.998, True), (1.002, False)):
        gain = share * room / unit
        largest = check_stability(matrix, 1.0, gain).largest
        assert (curvature_warning(largest, 1, alpha, smoothness) is None) == stable
        apart = disagreement(matrix, 1.0, gain, 8000, slope=alpha * smoothness)
        assert apart < 1e-3 if stable else apart > 1e3


def test_the_warning_says_what_to_change():
    assert curvature_warning(1.0, 10, 0.01, 1.0) is None
    assert "L = 20" in curvature_warning(1.0, 10, 0.01, 20.0)
