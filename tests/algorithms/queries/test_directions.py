"""E u = 0, E[uuᵀ] = I, and independence of directions with different names."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.algorithms.queries import draw_directions
from scipy import stats

from . import cases, reference

KINDS = ["rademacher", "gaussian", "sphere"]
SHAPES = [(1, 1), (7, 3), (1100, 3), (5, 40)]


def drawn(kind, p=6, k=2, n=20000, key=0, component=None, visit=None):
    keys = np.broadcast_to(cases.keys(2)[key], (n, 2))
    component = np.arange(n) % 250 if component is None else np.full(n, component)
    visit = np.arange(n) // 250 if visit is None else np.full(n, visit)
    return draw_directions(kind, p, k, keys, component, visit)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_zero_covariance_identity(kind):
    u = drawn(kind)
    n = len(u)
    assert np.abs(u.mean(0)).max() < 4.5 / np.sqrt(n)
    # A product of two coordinates has variance at most 2 (a Gaussian's square).
    assert np.abs(u.T @ u / n - np.eye(12)).max() < 4.5 * np.sqrt(2 / n)


@pytest.mark.parametrize("kind", KINDS)
def test_components_visits_and_clients_are_independent(kind):
    n = 20000
    component, visit = np.arange(n) % 250, np.arange(n) // 250
    keys = np.broadcast_to(cases.keys(2)[:, None], (2, n, 2))
    u = draw_directions(kind, 6, 2, keys[0], component, visit)
    others = [
        draw_directions(kind, 6, 2, keys[0], component + 1, visit),
        draw_directions(kind, 6, 2, keys[0], component, visit + 1),
        draw_directions(kind, 6, 2, keys[1], component, visit),
    ]
    for other in others:
        assert np.abs(u.T @ other / n).max() < 4.5 * np.sqrt(1 / n) * 1.1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_reference(kind, shape):
    keys = cases.keys(1)
    found = draw_directions(kind, *shape, keys, np.array([3]), np.array([8]))[0]
    np.testing.assert_allclose(found, reference.direction(kind, *shape, keys[0], 3, 8), rtol=1e-12, atol=1e-14)
    single = draw_directions(kind, *shape, keys, np.array([3]), np.array([8]), dtype=np.float32)[0]
    np.testing.assert_allclose(single, found, rtol=1e-6)


def test_rademacher_is_plus_or_minus_one():
    assert set(np.unique(drawn("rademacher", n=500))) == {-1.0, 1.0}


def test_the_sphere_has_radius_root_d():
    np.testing.assert_allclose(np.linalg.norm(drawn("sphere", n=2000), axis=1), np.sqrt(12), rtol=1e-13)


def test_gaussian_tails():
    u = draw_directions("gaussian", 400_000, 1, cases.keys(1), np.array([0]), np.array([0]))[0]
    assert stats.kstest(u, "norm").pvalue > 1e-3
    assert 4 < np.abs(u).max() < 6.8
