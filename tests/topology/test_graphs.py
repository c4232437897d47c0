from __future__ import annotations

import random

import networkx as nx
import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.topology.checks import DisconnectedGraph, check_graph
from dualfed.topology.config import TopologyConfig
from dualfed.topology.families import FIXED, RANDOM
from dualfed.topology.graphs import build_graph
from hypothesis import given, settings
from hypothesis import strategies as st

FAMILIES = [*FIXED, *RANDOM]


def edges(g):
    return sorted(tuple(sorted(edge)) for edge in g.edges())


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("n", [1, 2, 4, 16, 64])
def test_every_family_is_connected_simple_and_numbered(kind, n):
    g = build_graph(kind, n, seed=3)
    check_graph(g, n)
    assert list(g.nodes()) == list(range(n))
    assert nx.number_of_selfloops(g) == 0
    assert g.graph["kind"] == kind
    assert [g.nodes[i]["name"] for i in range(n)] == list(range(n))
    if n <= 2:
        assert g.number_of_edges() == n - 1


@pytest.mark.parametrize("kind", ["ring", "path", "star", "complete", "exponential", *RANDOM])
@settings(deadline=None)
@given(n=st.integers(1, 40), seed=st.integers(0, 2**60))
def test_any_size(kind, n, seed):
    check_graph(build_graph(kind, n, seed), n)


@pytest.mark.parametrize("kind", list(RANDOM))
def test_a_seed_gives_one_graph_and_leaves_global_generators_alone(kind):
    before, before_numpy = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second, other = (build_graph(kind, 50, seed) for seed in (5, 5, 6))
    assert edges(first) == edges(second) != edges(other)
    assert random.getstate() == before
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # noqa: NPY002


@pytest.mark.parametrize(
    ("kind", "n", "degrees"),
    [
        ("ring", 7, [2] * 7),
        ("path", 4, [1, 2, 2, 1]),
        ("star", 5, [4, 1, 1, 1, 1]),
        ("complete", 5, [4] * 5),
        ("grid", 9, [2, 3, 2, 3, 4, 3, 2, 3, 2]),
        ("torus", 9, [4] * 9),
        ("hypercube", 8, [3] * 8),
        ("exponential", 12, [7] * 12),  # ±1, ±2, ±4, and ±8 = ∓4
        ("exponential", 16, [7] * 16),  # ±1, ±2, ±4, 8
        ("random-regular", 9, [4] * 9),
    ],
)
def test_degrees(kind, n, degrees):
    if kind == "exponential":
        offsets = {pow(2, k) % n for k in range(n.bit_length()) if 2**k < n}
        degrees = [len({d % n for o in offsets for d in (o, -o)})] * n
    assert [degree for _, degree in build_graph(kind, n).degree()] == degrees


@pytest.mark.parametrize(
    ("kind", "n", "params", "field", "says"),
    [
        ("hypercube", 12, {}, "topology.kind", "8 or 16"),
        ("grid", 13, {}, "topology.kind", "12 or 14"),
        ("torus", 12, {"rows": 5}, "topology.rows", "10 or 15"),
        ("torus", 12, {"cols": 20}, "topology.cols", "take 20 clients"),
        ("grid", 12, {"rows": 5, "cols": 2}, "topology.rows", "12 clients"),
        ("random-regular", 9, {"degree": 3}, "topology.degree", "degree 2 or 4"),
        ("random-regular", 4, {"degree": 4}, "topology.degree", "at most 3"),
        ("random-regular", 8, {"degree": 1}, "topology.degree", "2 or more"),
        ("watts-strogatz", 8, {"degree": 3}, "topology.degree", "even"),
        ("watts-strogatz", 4, {"degree": 4}, "topology.degree", "below the 4"),
        ("barabasi-albert", 4, {"attach": 4}, "topology.attach", "1 to 3"),
        ("ring", 0, {}, "partition.clients", "at least one"),
        ("ring", None, {}, "partition.clients", "number of clients"),
    ],
)
def test_impossible_sizes_name_the_cure(kind, n, params, field, says):
    with pytest.raises(InvalidValue) as caught:
        build_graph(kind, n, **params)
    assert caught.value.field == field
    assert says in str(caught.value)


def test_shapes():
    assert edges(build_graph("grid", 7, rows=1)) == edges(build_graph("path", 7))
    assert edges(build_graph("torus", 7, cols=1)) == edges(build_graph("ring", 7))
    assert build_graph("grid", 12).number_of_edges() == 3 * 3 + 2 * 4
    assert edges(build_graph(TopologyConfig(kind="grid", rows=3), 6)) == edges(build_graph("grid", 6, rows=3, cols=2))


@pytest.mark.parametrize(("kind", "params"), [("erdos-renyi", {"p": 0.01}), ("random-geometric", {"radius": 0.01})])
def test_a_draw_that_is_never_connected_is_refused_with_its_isolated_nodes(kind, params):
    with pytest.raises(DisconnectedGraph) as caught:
        build_graph(kind, 20, 0, **params)
    error = caught.value
    assert sum(error.sizes) == 20
    assert len(error.isolated) > 0
    assert f"raise topology.{next(iter(params))}" in str(error)


def test_a_disconnected_draw_is_drawn_again():
    p, n = 0.18, 20
    first_draws = [nx.is_connected(RANDOM["erdos-renyi"](n, TopologyConfig(p=p), seed)) for seed in range(30)]
    assert not all(first_draws)
    for seed in range(30):
        check_graph(build_graph("erdos-renyi", n, seed, p=p), n)


def test_a_given_graph_is_numbered_and_keeps_its_names():
    g = build_graph(nx.Graph([("b", "a"), ("a", "c")]), 3)
    assert [g.nodes[i]["name"] for i in range(3)] == ["b", "a", "c"]
    assert edges(g) == [(0, 1), (1, 2)]
    whole = build_graph(nx.Graph([(30, 10), (10, 20)]), None)
    assert [whole.nodes[i]["name"] for i in range(3)] == [10, 20, 30]
    assert edges(whole) == [(0, 1), (0, 2)]


def test_a_given_graph_is_not_changed():
    given_graph = nx.DiGraph([(1, 2), (2, 1)])
    g = build_graph(given_graph, 2)
    assert edges(g) == [(0, 1)]
    assert list(given_graph.edges()) == [(1, 2), (2, 1)]
    assert not g.is_directed()


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (nx.DiGraph([(0, 1), (1, 2), (2, 0)]), "links go both ways: add 1→0"),
        (nx.Graph([(0, 1), (1, 1), (1, 2)]), "self-loop"),
        (nx.MultiGraph([(0, 1), (0, 1), (1, 2)]), "one edge at most"),
        (nx.path_graph(4), "there are 3 clients"),
    ],
)
def test_given_graphs_that_are_refused(graph, says):
    with pytest.raises(InvalidValue, match=says) as caught:
        build_graph(graph, 3)
    assert caught.value.field == "topology.graph"


def test_a_given_graph_takes_no_fields():
    with pytest.raises(InvalidValue, match="no further fields"):
        build_graph(nx.path_graph(3), 3, 0, p=0.5)
