from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.topology.draw import draw, positions
from dualfed.topology.families import FIXED, RANDOM
from dualfed.topology.graphs import build_graph


@pytest.mark.parametrize("kind", [*FIXED, *RANDOM])
@pytest.mark.parametrize("n", [1, 2, 64])
def test_positions_fill_the_unit_square_and_part_the_nodes(kind, n):
    g = build_graph(kind, n, 1)
    where = positions(g)
    assert where.shape == (n, 2)
    assert where.min() >= -1e-9
    assert where.max() <= 1 + 1e-9
    assert len(np.unique(where.round(6), axis=0)) == n
    assert np.array_equal(where, positions(g))


@pytest.mark.parametrize(
    ("kind", "n"), [("erdos-renyi", 1), ("erdos-renyi", 2), ("erdos-renyi", 300), ("random-geometric", 1000)]
)
def test_png(tmp_path, kind, n):
    path = draw(build_graph(kind, n, 0), tmp_path / "g.png", np.linspace(0, 8, n), label="ε spent")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_svg_with_missing_numbers_and_names(tmp_path):
    g = build_graph("ring", 5)
    path = draw(g, tmp_path / "g.svg", {0: 0.2, 3: 0.9}, label="share of class 1", title="who", limits=(0, 1))
    text = path.read_text()
    assert text.startswith("<?xml")
    assert "share of class 1" in text


def test_all_missing_or_all_equal(tmp_path):
    g = build_graph("star", 4)
    drawn = [draw(g, tmp_path / "a.png", np.full(4, np.nan)), draw(g, tmp_path / "b.png", np.ones(4))]
    drawn.append(draw(g, tmp_path / "c.png"))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


@pytest.mark.parametrize(("name", "values"), [("g.gif", None), ("nowhere/g.png", None), ("g.png", [1.0, 2.0])])
def test_refuses(tmp_path, name, values):
    with pytest.raises(InvalidValue):
        draw(build_graph("ring", 3), tmp_path / name, values)


def test_pyplot_stays_out(tmp_path):
    code = (
        "import sys; from dualfed.topology.draw import draw; from dualfed.topology.graphs import build_graph; "
        f"draw(build_graph('erdos-renyi', 20), {str(tmp_path / 'g.png')!r}, range(20)); "
        "assert not {'matplotlib.pyplot', 'torch', 'ray'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
