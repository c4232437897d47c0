"""A picture of who holds what: sizes, and class proportions of each client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from ..errors import InvalidValue
from .holdings import Holdings

# More clients than this are too thin for a bar each.
_BARS = 200
_NAMED = 40
_LEGEND = 20
_INK, _SIZES = "#333333", "#7a8794"


def draw_holdings(held: Holdings, target: Path) -> list[Path]:
    """Save the picture as ``target`` with the endings .png and .svg; the files written.

    Above, the records of each client. Below, the shares of the classes among them: stacked bars for up to 200 clients;
    beyond that a heat map, clients sorted by the class that they hold most of. Touches no global state of matplotlib.

    Raises:
        InvalidValue: the files cannot be written.
    """
    figure = Figure(figsize=(9.0, 5.2), layout="constrained")
    sizes = np.asarray(held.frame["records"], dtype=float)
    many = len(sizes) > _BARS
    order = _order(held.proportions, sizes) if many else np.arange(len(sizes))
    if held.proportions.shape[1]:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2.2])
        if many:
            _heat_map(figure, below, held, order)
        else:
            _bars(figure, below, held)
    else:
        above = below = figure.subplots()
    _draw_sizes(above, sizes[order], many)
    _name_clients(below, held, many)
    figure.suptitle(
        f"{held.dataset.name}: {int(sizes.sum()):,} training records of {len(sizes):,} clients",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return _save(figure, target)
    except OSError as error:
        raise InvalidValue("--out", str(target.parent), f"cannot be written: {error.strerror}") from None


def _save(figure: Figure, target: Path) -> list[Path]:
    png, svg = target.with_name(f"{target.name}.png"), target.with_name(f"{target.name}.svg")
    with rc_context({"svg.hashsalt": "dualfed", "svg.fonttype": "none"}):
        FigureCanvasAgg(figure).print_figure(png, format="png", dpi=150, metadata={"Software": "dualfed"})
        FigureCanvasSVG(figure).print_figure(svg, format="svg", metadata={"Date": None, "Creator": "dualfed"})
    return [png, svg]


def _draw_sizes(axes: Axes, sizes: NDArray[np.float64], many: bool) -> None:
    if many:
        axes.fill_between(np.arange(len(sizes)), sizes, step="mid", color=_SIZES, linewidth=0)
    else:
        axes.bar(np.arange(len(sizes)), sizes, width=_width(len(sizes)), color=_SIZES)
    axes.set_ylabel("records")
    if sizes.max() > 30 * sizes.min():
        axes.set_yscale("log")
        axes.set_ylim(max(0.8, 0.7 * sizes.min()), 1.3 * sizes.max())
        wide = sizes.max() > 300 * sizes.min()
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, axis="y", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)


def _bars(figure: Figure, axes: Axes, held: Holdings) -> None:
    clients, classes = held.proportions.shape
    colours = _colours(classes)
    bottom = np.zeros(clients)
    for code, name in enumerate(held.class_names):
        share = held.proportions[:, code]
        label = name if len(name) <= 24 else f"{name[:23]}…"
        axes.bar(np.arange(clients), share, _width(clients), bottom, color=colours[code], linewidth=0, label=label)
        bottom += share
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of each class")
    axes.spines[["top", "right"]].set_visible(False)
    if classes <= _LEGEND:
        figure.legend(
            *axes.get_legend_handles_labels(),
            loc="outside right upper",
            frameon=False,
            title="class",
            reverse=True,
            fontsize=9,
        )
    else:
        axes.set_ylabel(f"share of each of {classes} classes")


def _heat_map(figure: Figure, axes: Axes, held: Holdings, order: NDArray[np.int64]) -> None:
    clients, classes = held.proportions.shape
    # Pictures have few hundred columns: neighbours are averaged to fit, rather than left out.
    shares = held.proportions[order]
    step = -(-clients // 1500)
    starts = np.arange(0, clients, step)
    blocks = np.add.reduceat(shares, starts) / np.diff(np.append(starts, clients))[:, None]
    shown = axes.imshow(
        blocks.T,
        aspect="auto",
        interpolation="nearest",
        cmap="viridis",
        vmin=0,
        vmax=1,
        origin="lower",
        extent=(-0.5, clients - 0.5, -0.5, classes - 0.5),
    )
    if classes <= _LEGEND:
        axes.set_yticks(np.arange(classes), held.class_names)
    axes.set_ylabel("class")
    figure.colorbar(shown, ax=axes, label="share among a client's records", pad=0.01)


def _name_clients(axes: Axes, held: Holdings, many: bool) -> None:
    clients = len(held.names)
    named = any(name != str(client) for client, name in enumerate(held.names))
    axes.set_xlim(-0.6, clients - 0.4)
    if clients <= _NAMED and (named or clients <= 20):
        long = max(map(len, held.names)) * clients > 90
        labels = [name if len(name) <= 18 else f"{name[:17]}…" for name in held.names]
        axes.set_xticks(
            np.arange(clients), labels, rotation=60 if long else 0, ha="right" if long else "center", fontsize=9
        )
    else:
        axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True))
    sorted_by = (
        "" if not many else " (sorted by the class they hold most of)" if held.proportions.size else " (sorted by size)"
    )
    axes.set_xlabel(f"clients{sorted_by}")


def _order(proportions: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    if not proportions.shape[1]:
        return np.argsort(-sizes, kind="stable")
    return np.lexsort((-proportions.max(axis=1), proportions.argmax(axis=1)))


def _colours(classes: int) -> list[Any]:
    if classes <= 10:
        return list(colormaps["tab10"].colors)[:classes]  # type: ignore[attr-defined]
    if classes <= 20:
        return list(colormaps["tab20"].colors)[:classes]  # type: ignore[attr-defined]
    return list(colormaps["turbo"](np.linspace(0.03, 0.97, classes)))


def _width(clients: int) -> float:
    return 0.8 if clients <= 60 else 1.0
