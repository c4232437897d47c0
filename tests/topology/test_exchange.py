from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dualfed.topology.exchange import EdgeExchange, LaplacianExchange
from dualfed.topology.graphs import build_graph
from dualfed.topology.placement import boundary, host_rows, owners, place
from dualfed.topology.spectrum import laplacian
from dualfed.topology.stability import check_stability
from hypothesis import given, settings
from hypothesis import strategies as st

GRAPHS = [("ring", 10), ("star", 12), ("torus", 12), ("erdos-renyi", 20), ("barabasi-albert", 15)]


def release(x, correction, gain, t, lost=()):
    """x_{k+1} = x_k − τ_i α β c + Δ̃ (Z8), Δ̃ random, 0 for clients that are lost."""
    increment = np.random.default_rng((7, t)).standard_normal(x.shape) * 0.1
    increment[list(lost)] = 0
    return x - gain * correction + increment


@pytest.mark.parametrize(("kind", "n"), GRAPHS)
@pytest.mark.parametrize("common_start", [True, False])
def test_edges_and_laplacian_agree_over_fifty_rounds(kind, n, common_start):
    g, rho = build_graph(kind, n, seed=1), 0.4
    x = np.random.default_rng(0).standard_normal((1 if common_start else n, 5))
    x = np.ascontiguousarray(np.broadcast_to(x, (n, 5)))
    gain = 0.5 * check_stability(laplacian(g), rho, 1e-6).largest_a
    edge, fast = EdgeExchange(g, rho, x), LaplacianExchange(laplacian(g), rho, 5)
    other = x
    for t in range(50):
        c, d = edge.correction(x), fast.correction(other)
        np.testing.assert_allclose(d, c, rtol=0, atol=1e-10)
        x, other = (release(state, part, gain, t, lost=[t % n]) for state, part in ((x, c), (other, d)))
        edge.advance(x)
        fast.advance(other)
        np.testing.assert_allclose(other, x, rtol=0, atol=1e-10)
    assert np.abs(x).max() < 50


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 12), seed=st.integers(0, 999), rho=st.floats(0.01, 10), d=st.integers(1, 4))
def test_agree_on_any_graph_and_any_path_of_states(n, seed, rho, d):
    g = build_graph("erdos-renyi", n, seed)
    states = np.random.default_rng(seed).standard_normal((6, n, d))
    edge, fast = EdgeExchange(g, rho, states[0]), LaplacianExchange(laplacian(g), rho, d)
    for now, then in pairwise(states):
        np.testing.assert_allclose(fast.correction(now), edge.correction(now), atol=1e-10 * max(1, rho) * n)
        edge.advance(then)
        fast.advance(then)


def test_edges_by_hand():
    """Two clients, d = 1, ρ = 1, one round written out."""
    edge = EdgeExchange(build_graph("path", 2), 1.0, np.array([[1.0], [3.0]]))
    assert edge.z.tolist() == [[3.0], [1.0]]
    assert edge.correction(np.array([[1.0], [3.0]])).tolist() == [[-2.0], [2.0]]
    after = np.array([[2.0], [2.5]])
    assert edge.messages(after).tolist() == [[2 * 2.0 - 3.0], [2 * 2.5 - 1.0]]
    edge.advance(after)
    assert edge.z.tolist() == [[0.5 * (3.0 + 4.0)], [0.5 * (1.0 + 1.0)]]


@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_clients(n):
    g = build_graph("ring", n)
    x = np.arange(n, dtype=float)[:, None]
    edge, fast = EdgeExchange(g, 1.0, x), LaplacianExchange(laplacian(g), 1.0, 1)
    assert np.array_equal(edge.correction(x), fast.correction(x))
    if n == 1:
        assert edge.correction(x).tolist() == [[0.0]]


def test_corrections_sum_to_zero_so_the_average_moves_by_data_alone():
    g = build_graph("erdos-renyi", 15, 3)
    fast = LaplacianExchange(laplacian(g), 0.3, 4)
    for t in range(10):
        c = fast.correction(np.random.default_rng(t).standard_normal((15, 4)))
        np.testing.assert_allclose(c.sum(axis=0), 0, atol=1e-12)
        fast.advance()


def test_asking_twice_changes_nothing_and_advance_needs_a_correction():
    g = build_graph("ring", 5)
    x = np.random.default_rng(0).standard_normal((5, 2))
    fast = LaplacianExchange(laplacian(g), 0.5, 2)
    assert np.array_equal(fast.correction(x), fast.correction(x))
    fast.advance()
    np.testing.assert_allclose(fast.y, 0.25 * (laplacian(g) @ x))
    with pytest.raises(RuntimeError, match="follows correction"):
        fast.advance()


def test_states_stay_in_their_precision():
    g = build_graph("ring", 6)
    x = np.ones((6, 2), dtype=np.float32)
    edge, fast = EdgeExchange(g, 0.1, x), LaplacianExchange(laplacian(g), 0.1, 2, np.float32)
    edge.advance(x)
    assert edge.correction(x).dtype == fast.correction(x).dtype == edge.z.dtype == fast.y.dtype == np.float32


@pytest.mark.parametrize("hosts", [1, 3])
def test_hosts_with_their_rows_and_boundary_vectors_give_the_whole(hosts):
    g, rho = build_graph("erdos-renyi", 30, 5), 0.2
    placement = place(g, hosts)
    parts, wires, owner = host_rows(laplacian(g), placement), boundary(g, placement), owners(placement)
    whole = LaplacianExchange(laplacian(g), rho, 3)
    locals_ = [LaplacianExchange(part.laplacian, rho, 3) for part in parts]
    x = np.random.default_rng(0).standard_normal((30, 3))
    for t in range(5):
        c = whole.correction(x)
        for host, (part, local) in enumerate(zip(parts, locals_)):
            arriving = [nodes for (_, target), nodes in wires.items() if target == host]
            assert np.array_equal(np.sort(np.concatenate([*arriving, part.own[:0]])), part.ghosts)
            assert np.all(owner[part.ghosts] != host)
            seen = np.concatenate([x[part.own], x[part.ghosts]])
            np.testing.assert_allclose(local.correction(seen), c[part.own], atol=1e-12)
            local.advance()
        x = release(x, c, 0.1, t)
        whole.advance()
