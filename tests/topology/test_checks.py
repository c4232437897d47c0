from __future__ import annotations

import pickle

import networkx as nx
import pytest
from dualfed.errors import InvalidValue
from dualfed.topology.checks import DisconnectedGraph, check_graph
from dualfed.topology.graphs import build_graph


def test_names_parts_and_isolated_nodes():
    g = nx.Graph([("ann", "bob"), ("cat", "dan"), ("dan", "eve")])
    g.add_node("zoe")
    with pytest.raises(DisconnectedGraph) as caught:
        build_graph(g, 6)
    error = caught.value
    assert error.components == (("cat", "dan", "eve"), ("ann", "bob"), ("zoe",))
    assert error.sizes == (3, 2, 1)
    assert error.isolated == ("zoe",)
    assert "3 parts: 3 nodes (cat, dan, eve), 2 nodes (ann, bob), 1 isolated node (zoe)" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.components, str(again)) == (error.components, str(error))


def test_the_sentence_stays_short():
    g = nx.empty_graph(5000)
    with pytest.raises(DisconnectedGraph) as caught:
        check_graph(g, 5000)
    assert len(caught.value.isolated) == 5000
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("graph", "n", "says"),
    [
        (nx.path_graph(3), 4, "there are 4 clients"),
        (nx.Graph([(1, 2), (2, 3)]), 3, "number the nodes"),
        (nx.DiGraph([(0, 1), (1, 2)]), 3, "both ways"),
        (nx.Graph([(0, 1), (0, 0)]), 2, "self-loop"),
    ],
)
def test_refuses(graph, n, says):
    with pytest.raises(InvalidValue, match=says):
        check_graph(graph, n)


def test_one_node_is_connected():
    check_graph(nx.empty_graph(1), 1)
    check_graph(nx.DiGraph([(0, 1), (1, 0)]), 2)
