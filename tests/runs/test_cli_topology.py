"""``dualfed topology describe``: its numbers, its picture, and what it refuses."""

from __future__ import annotations

import networkx as nx
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.cli import app
from typer.testing import CliRunner


def call(*arguments):
    return CliRunner().invoke(app, ["topology", "describe", *arguments])


def figures(text):
    rows = [line.strip("│ \n").split("│") for line in text.splitlines() if line.startswith("│")]
    return {row[0].strip(): row[1].strip() for row in rows}


def test_a_ring_in_numbers():
    found = figures(call("--kind", "ring", "--clients", "8").output)
    assert found["nodes"] == found["edges"] == "8"
    assert found["λ_max of the Laplacian"] == "4"
    assert found["a·ρ = τ·α·β·ρ must stay below, 8/(3 λ_max)"] == "0.666667"
    assert found["vectors sent in one exchange, 2|E|"] == "16"


def test_the_graph_of_a_preset_and_of_a_file(tmp_path):
    assert figures(call("quickstart").output)["nodes"] == "10"
    assert figures(call("quickstart", "--kind", "star", "--clients", "5").output)["largest degree"] == "4"
    nx.write_edgelist(nx.path_graph(4), tmp_path / "graph.edges", data=False)
    found = call("--kind", "edge-list", "--set", f"topology.path={tmp_path / 'graph.edges'}")
    assert figures(found.output)["nodes"] == "4"


def test_the_same_seed_draws_the_same_graph():
    drawn = [call("--kind", "erdos-renyi", "--clients", "20", "--seed", str(seed)).output for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture(tmp_path, ending):
    target = tmp_path / f"graph.{ending}"
    assert f"Wrote {target}" in call("--kind", "grid", "--clients", "12", "--out", str(target)).output.replace("\n", "")
    assert target.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give --kind and --clients"),
        (["--kind", "ring"], "needs the number of nodes"),
        (["--kind", "wheel", "--clients", "5"], "topology.kind = 'wheel'"),
        (["--kind", "edge-list"], "needs the path of its file"),
        (["--kind", "ring", "--clients", "5", "--out", "graph.pdf"], "end the name in .png or .svg"),
    ],
)
def test_what_it_refuses(arguments, sentence):
    error = call(*arguments).exception
    assert isinstance(error, InvalidValue)
    assert sentence in str(error)
