from __future__ import annotations

import time

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.topology import placement as module
from dualfed.topology.graphs import build_graph
from dualfed.topology.placement import SLACK, boundary, cut_edges, owners, place, server_placement
from dualfed.topology.spectrum import adjacency
from hypothesis import given, settings
from hypothesis import strategies as st

kinds = st.sampled_from(["ring", "star", "complete", "erdos-renyi", "barabasi-albert"])


def is_a_partition(hosts, n):
    return np.array_equal(np.sort(np.concatenate(hosts)), np.arange(n)) and all(
        len(nodes) and np.all(np.diff(nodes) > 0) for nodes in hosts
    )


@settings(deadline=None)
@given(n=st.integers(1, 200), data=st.data())
def test_server_blocks_are_contiguous_and_even(n, data):
    hosts = server_placement(n, data.draw(st.integers(1, n)))
    assert np.array_equal(np.concatenate(hosts), np.arange(n))
    sizes = [len(nodes) for nodes in hosts]
    assert max(sizes) - min(sizes) <= 1 <= min(sizes)


@pytest.mark.parametrize("metis", [True, False])
@settings(deadline=None)
@given(kind=kinds, n=st.integers(1, 40), seed=st.integers(0, 99), heavy=st.booleans(), data=st.data())
def test_every_client_has_one_host_and_work_is_even(metis, kind, n, seed, heavy, data):
    g = build_graph(kind, n, seed)
    n_hosts = data.draw(st.integers(1, n))
    work = np.random.default_rng(seed).pareto(1.0, n) if heavy else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_HAS_METIS", metis and module._HAS_METIS)
        hosts = place(g, n_hosts, work)
        again = place(g, n_hosts, work)
    assert len(hosts) == n_hosts
    assert is_a_partition(hosts, n)
    assert all(np.array_equal(one, other) for one, other in zip(hosts, again))
    if work is None:
        assert max(len(nodes) for nodes in hosts) <= SLACK * n / n_hosts + 1


@pytest.mark.parametrize("metis", [True, False])
def test_unequal_work_is_balanced(monkeypatch, metis):
    monkeypatch.setattr(module, "_HAS_METIS", metis and module._HAS_METIS)
    g = build_graph("random-geometric", 400, 1)
    work = np.random.default_rng(0).exponential(1.0, 400)
    loads = [work[nodes].sum() for nodes in place(g, 4, work)]
    assert max(loads) <= SLACK * work.sum() / 4 + work.max()


@pytest.mark.parametrize(("kind", "share"), [("erdos-renyi", 0.85), ("random-geometric", 0.15), ("ring", 0.05)])
def test_cuts_fewer_edges_than_chance(kind, share):
    g = build_graph(kind, 1000, 0)
    links = adjacency(g)
    chance = cut_edges(links, np.random.default_rng(0).permutation(1000) % 4)
    found = cut_edges(links, owners(place(g, 4)))
    assert found <= (share if module._HAS_METIS else 1.0) * chance


def test_ten_thousand_clients():
    g = build_graph("random-geometric", 10_000, 0)
    started = time.perf_counter()
    hosts = place(g, 8)
    sent = boundary(g, hosts)
    assert time.perf_counter() - started < 5
    assert is_a_partition(hosts, 10_000)
    assert sum(map(len, sent.values())) < 8_000


@settings(deadline=None)
@given(kind=kinds, n=st.integers(1, 30), seed=st.integers(0, 99), data=st.data())
def test_boundary_is_what_a_loop_finds(kind, n, seed, data):
    g = build_graph(kind, n, seed)
    hosts = place(g, data.draw(st.integers(1, n)))
    owner = owners(hosts)
    expected: dict[tuple[int, int], set[int]] = {}
    for u, v in g.edges():
        for source, target in ((u, v), (v, u)):
            if owner[source] != owner[target]:
                expected.setdefault((int(owner[source]), int(owner[target])), set()).add(source)
    found = boundary(g, hosts)
    assert list(found) == sorted(found)
    assert {pair: set(nodes.tolist()) for pair, nodes in found.items()} == expected
    assert all(np.all(np.diff(nodes) > 0) for nodes in found.values())


@pytest.mark.parametrize(
    ("n_hosts", "work"), [(0, None), (4, None), (2, [1, 2]), (2, [1, -1, 1]), (2, [1, float("nan"), 1])]
)
def test_refuses(n_hosts, work):
    with pytest.raises(InvalidValue):
        place(build_graph("ring", 3), n_hosts, work)


def test_work_of_zero_counts_as_equal():
    assert [len(nodes) for nodes in place(build_graph("ring", 4), 2, np.zeros(4))] == [2, 2]
