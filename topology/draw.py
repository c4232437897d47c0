"""A picture of a graph, its nodes coloured by a number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidValue

_LABELLED = 40
_ON_A_CIRCLE = ("ring", "complete", "exponential", "watts-strogatz")
_PLAIN = "#4c78a8"
_MISSING = "#c8c8c8"


def positions(g: nx.Graph) -> NDArray[np.float64]:
    """Where to draw each node of 0..N−1, ``[N, 2]`` within the unit square; the same each time."""
    n = g.number_of_nodes()
    kind = g.graph.get("kind")
    given = [g.nodes[i].get("pos") for i in range(n)]
    if n <= 2:
        return np.array([[0.5, 0.5]]) if n == 1 else np.array([[0.0, 0.5], [1.0, 0.5]])
    if all(_is_point(point) for point in given):
        where = np.array(given, dtype=np.float64)
    elif kind == "grid" or (kind == "torus" and min(g.graph["rows"], g.graph["cols"]) > 1):
        where = _rectangle(g.graph["rows"], g.graph["cols"], bow=0.0 if kind == "grid" else 0.8)
    elif kind == "path":
        where = _folded(n)
    elif kind in _ON_A_CIRCLE or kind == "torus":
        where = _circle(n)
    elif kind == "star":
        where = np.concatenate([np.zeros((1, 2)), _circle(n - 1)])
    else:
        where = _springs(g)
    low, high = where.min(axis=0), where.max(axis=0)
    size = float(np.max(high - low)) or 1.0
    centred: NDArray[np.float64] = (where - (low + high) / 2) / size + 0.5
    return centred


def _is_point(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, int | float) for part in value)


def _circle(n: int) -> NDArray[np.float64]:
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / max(n, 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _rectangle(rows: int, cols: int, bow: float) -> NDArray[np.float64]:
    """Row by row; bowed, so that the edges which close a torus' rows and columns lie beside the others."""
    row, col = np.divmod(np.arange(rows * cols, dtype=np.float64), cols)
    right = bow * np.sin(np.pi * row / max(1, rows - 1))
    up = bow * np.sin(np.pi * col / max(1, cols - 1))
    return np.stack([col + right, up - row], axis=1)


def _folded(n: int) -> NDArray[np.float64]:
    """A line laid out in rows that run to and fro."""
    cols = n if n <= 12 else math.ceil(math.sqrt(2 * n))
    row, col = np.divmod(np.arange(n), cols)
    return np.stack([np.where(row % 2 == 0, col, cols - 1 - col), -row], axis=1).astype(np.float64)


def _springs(g: nx.Graph) -> NDArray[np.float64]:
    n = g.number_of_nodes()
    start = nx.spectral_layout(g) if 3 <= n <= 300 else None
    layout = nx.spring_layout(g, pos=start, seed=0, iterations=100 if n <= 300 else 30, method="force")
    return np.array([layout[i] for i in range(n)], dtype=np.float64)


def _numbers(n: int, values: ArrayLike | Mapping[int, float] | None) -> NDArray[np.float64] | None:
    if values is None:
        return None
    if isinstance(values, Mapping):
        return np.array([values.get(i, math.nan) for i in range(n)], dtype=np.float64)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n,):
        raise InvalidValue("values", array.shape, f"give one number for each of the {n} nodes")
    return array


def draw(
    g: nx.Graph,
    path: str | Path,
    values: ArrayLike | Mapping[int, float] | None = None,
    *,
    label: str = "",
    title: str = "",
    limits: tuple[float, float] | None = None,
) -> Path:
    """Save a picture of a graph on 0..N−1 as PNG or SVG, by the ending of ``path``.

    Node sizes and line widths shrink with N, so that 2 to about 1000 nodes stay readable; up to 40 nodes carry their
    original names. Touches no global state of matplotlib.

    Args:
        values: a number for each node, ``[N]`` or by node, such as the ε spent or the share of a class; NaN and nodes
            that are left out are grey. One colour for all where left out.
        label: what the numbers are, beside the colour bar.
        title: above the picture.
        limits: numbers at the two ends of the colour bar; by default the smallest and the largest.

    Raises:
        InvalidValue: an ending other than .png and .svg, a path that cannot be written, or the wrong number of values.
    """
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise InvalidValue("--out", str(path), "end the name in .png or .svg")
    numbers = _numbers(g.number_of_nodes(), values)
    figure = Figure(figsize=(6.4 if numbers is None else 7.2, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06))
    where = positions(g)
    _draw_edges(axes, where, np.array(list(g.edges()), dtype=np.int64).reshape(-1, 2))
    light = _draw_nodes(figure, axes, where, numbers, label, limits)
    if len(where) <= _LABELLED:
        for i, point in enumerate(where):
            name = str(g.nodes[i].get("name", i))
            ink, size = "black" if light[i] else "white", 8 if len(name) < 4 else 6
            axes.text(point[0], point[1], name, ha="center", va="center", fontsize=size, color=ink, zorder=3)
    if title:
        axes.set_title(title)
    try:
        figure.savefig(target, dpi=150, format=target.suffix[1:].lower())
    except OSError as error:
        raise InvalidValue("--out", str(path), f"the picture cannot be written: {error.strerror}") from None
    return target


def _draw_edges(axes: Axes, where: NDArray[np.float64], edges: NDArray[np.int64]) -> None:
    crowd = max(1.0, len(edges) / 150)
    width, alpha = max(0.4, 1.2 / crowd**0.5), max(0.25, 0.8 / crowd**0.4)
    axes.add_collection(LineCollection(list(where[edges]), colors="#666666", linewidths=width, alpha=alpha))


def _draw_nodes(
    figure: Figure,
    axes: Axes,
    where: NDArray[np.float64],
    numbers: NDArray[np.float64] | None,
    label: str,
    limits: tuple[float, float] | None,
) -> NDArray[np.bool_]:
    """Draws the nodes and the colour bar; says which nodes are light, so that their names are written in black."""
    n = len(where)
    style: dict[str, Any] = {
        "s": float(np.clip(9000 / n, 10, 420)),
        "edgecolors": "#222222",
        "linewidths": 0.8 if n <= 150 else 0.2,
        "zorder": 2,
    }
    if numbers is None:
        axes.scatter(where[:, 0], where[:, 1], color=_PLAIN, **style)
        return np.zeros(n, dtype=bool)
    known = np.isfinite(numbers)
    if limits is None:
        limits = (float(numbers[known].min()), float(numbers[known].max())) if known.any() else (0.0, 1.0)
    low, high = limits
    high = high if high > low else low + 1
    scale = Normalize(low, high)
    axes.scatter(where[~known, 0], where[~known, 1], color=_MISSING, **style)
    shown = axes.scatter(where[known, 0], where[known, 1], c=numbers[known], cmap="viridis", norm=scale, **style)
    figure.colorbar(shown, ax=axes, label=label, shrink=0.8)
    return ~known | (np.where(known, numbers, low) > low + 0.6 * (high - low))
