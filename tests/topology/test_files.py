from __future__ import annotations

import networkx as nx
import pytest
from dualfed.errors import InvalidValue
from dualfed.topology.checks import DisconnectedGraph
from dualfed.topology.graphs import build_graph


def test_edge_list(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("# a ring\n10 2\n2, 3\n\n3\t10  # the last\n10 3\n")
    g = build_graph("edge-list", 3, path=path)
    assert [g.nodes[i]["name"] for i in range(3)] == ["2", "3", "10"]
    assert g.number_of_edges() == 3
    assert build_graph("edge-list", None, path=path).number_of_nodes() == 3


def test_a_name_without_an_edge_is_an_isolated_node(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("a b\nc\n")
    with pytest.raises(DisconnectedGraph) as caught:
        build_graph("edge-list", 3, path=path)
    assert caught.value.isolated == ("c",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a b\nb c 0.5\n", "line 2 is 'b c 0.5'"),
        (b"a,,b\n", "line 1"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"", "0 nodes"),
        (b"a a\na b\n", "self-loop"),
    ],
)
def test_edge_lists_that_are_refused(tmp_path, content, says):
    path = tmp_path / "edges.txt"
    path.write_bytes(content)
    with pytest.raises(InvalidValue, match=says):
        build_graph("edge-list", None, path=path)


def test_graphml(tmp_path):
    path = tmp_path / "g.graphml"
    nx.write_graphml(nx.relabel_nodes(nx.cycle_graph(5), {i: f"site {i}" for i in range(5)}), path)
    g = build_graph("graphml", 5, path=path)
    assert g.number_of_edges() == 5
    assert {g.nodes[i]["name"] for i in range(5)} == {f"site {i}" for i in range(5)}


def test_graphml_that_is_refused(tmp_path):
    path = tmp_path / "g.graphml"
    path.write_text("<graphml><graph")
    with pytest.raises(InvalidValue, match="no GraphML"):
        build_graph("graphml", 5, path=path)
    nx.write_graphml(nx.DiGraph([(0, 1), (1, 2)]), path)
    with pytest.raises(InvalidValue, match="both ways"):
        build_graph("graphml", 3, path=path)


@pytest.mark.parametrize("kind", ["edge-list", "graphml"])
def test_a_file_that_is_not_there(tmp_path, kind):
    with pytest.raises(InvalidValue, match="No such file") as caught:
        build_graph(kind, 3, path=tmp_path / "nowhere")
    assert caught.value.field == "topology.path"
