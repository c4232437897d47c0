from __future__ import annotations

import time

import networkx as nx
import numpy as np
import pytest
from dualfed.topology import spectrum as module
from dualfed.topology.families import RANDOM
from dualfed.topology.graphs import build_graph
from dualfed.topology.spectrum import laplacian, metropolis_weights, spectrum
from hypothesis import given, settings
from hypothesis import strategies as st

kinds = st.sampled_from(["ring", "path", "star", "complete", *RANDOM])
graphs = st.builds(build_graph, kinds, st.integers(1, 30), st.integers(0, 999))


@settings(deadline=None)
@given(g=graphs)
def test_laplacian_is_psd_with_rows_that_sum_to_zero(g):
    matrix = laplacian(g).toarray()
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix.sum(axis=1), np.zeros(len(g)))
    values = np.linalg.eigvalsh(matrix)
    assert values[0] > -1e-10
    assert len(g) == 1 or values[1] > 1e-6
    assert np.array_equal(matrix, nx.laplacian_matrix(g, nodelist=range(len(g)), weight=None).toarray())


@settings(deadline=None)
@given(g=graphs)
def test_metropolis_is_doubly_stochastic_and_contracts_by_the_gap(g):
    weights = metropolis_weights(g).toarray()
    assert np.array_equal(weights, weights.T)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)
    values = np.sort(np.abs(np.linalg.eigvalsh(weights)))
    if len(g) > 1:
        assert spectrum(g).spectral_gap == pytest.approx(1 - values[-2], abs=1e-10)
        assert spectrum(g).spectral_gap > 0


@pytest.mark.parametrize(
    ("kind", "n", "second", "largest", "diameter"),
    [
        ("ring", 10, 2 - 2 * np.cos(2 * np.pi / 10), 4, 5),
        ("path", 10, 2 - 2 * np.cos(np.pi / 10), 2 + 2 * np.cos(np.pi / 10), 9),
        ("star", 10, 1, 10, 2),
        ("complete", 10, 10, 10, 1),
        ("hypercube", 16, 2, 8, 4),
        ("path", 1, 0, 0, 0),
        ("ring", 2, 2, 2, 1),
    ],
)
def test_closed_forms(kind, n, second, largest, diameter):
    facts = spectrum(build_graph(kind, n))
    assert facts.n == n
    assert facts.lambda_2 == pytest.approx(second, abs=1e-12)
    assert facts.lambda_max == pytest.approx(largest, abs=1e-12)
    assert facts.diameter == diameter
    assert facts.spectral_gap == pytest.approx({1: 1.0, 2: 1.0}.get(n, facts.spectral_gap))


SPARSE = ["ring", "star", "torus", "complete", "erdos-renyi", "random-geometric", "barabasi-albert"]


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_agrees_with_dense(monkeypatch, kind):
    g = build_graph(kind, 256, seed=1)
    dense = spectrum(g)
    monkeypatch.setattr(module, "DENSE_LIMIT", 1)
    sparse = spectrum(g)
    assert module.second_eigenvalue(laplacian(g)) == pytest.approx(sparse.lambda_2, rel=1e-12)
    assert sparse.lambda_2 == pytest.approx(dense.lambda_2, rel=1e-8)
    assert sparse.lambda_max == pytest.approx(dense.lambda_max, rel=1e-8)
    assert sparse.spectral_gap == pytest.approx(dense.spectral_gap, rel=1e-8)


@pytest.mark.parametrize(
    ("kind", "second"),
    [
        ("ring", 2 - 2 * np.cos(2 * np.pi / 10_000)),
        ("path", 2 - 2 * np.cos(np.pi / 10_000)),
        ("grid", 2 - 2 * np.cos(np.pi / 100)),
        ("star", 1.0),
    ],
)
def test_ten_thousand_nodes(kind, second):
    started = time.perf_counter()
    facts = spectrum(build_graph(kind, 10_000))
    assert time.perf_counter() - started < 20  # a few seconds, with room for a busy machine
    assert facts.lambda_2 == pytest.approx(second, rel=1e-7)
    assert facts.diameter is None


def test_where_no_solver_converges_the_bound_is_an_upper_one(monkeypatch):
    def never(*_args, **_kwargs):
        raise module.ArpackError(1)

    matrix = laplacian(build_graph("erdos-renyi", 600, 0))
    exact = module.largest_eigenvalue(matrix)
    monkeypatch.setattr(module, "eigsh", never)
    assert exact <= module.largest_eigenvalue(matrix) == 2 * matrix.diagonal().max()


@settings(deadline=None, max_examples=20)
@given(g=graphs, seed=st.integers(0, 99))
def test_gossip_shrinks_disagreement_by_the_gap(g, seed):
    x = np.random.default_rng(seed).standard_normal((len(g), 3))
    mixed = metropolis_weights(g) @ x
    np.testing.assert_allclose(mixed.mean(axis=0), x.mean(axis=0), atol=1e-12)
    apart = np.linalg.norm(x - x.mean(axis=0))
    assert np.linalg.norm(mixed - x.mean(axis=0)) <= (1 - spectrum(g).spectral_gap) * apart + 1e-9
