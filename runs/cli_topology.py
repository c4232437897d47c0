"""The command that looks at a graph before anything runs on it: ``dualfed topology describe``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidValue

if TYPE_CHECKING:
    import networkx as nx

topology_app = typer.Typer(help="Look at a graph before anything runs on it.", no_args_is_help=True)

_WORDS = {
    "n": "nodes",
    "edges": "edges",
    "degree_min": "smallest degree",
    "degree_mean": "mean degree",
    "degree_max": "largest degree",
    "diameter": "diameter, edges",
    "lambda_2": "λ₂ of the Laplacian",
    "lambda_max": "λ_max of the Laplacian",
    "spectral_gap": "spectral gap of the Metropolis matrix",
    "largest_a_rho": "a·ρ = τ·α·β·ρ must stay below, 8/(3 λ_max)",
    "messages_per_round": "vectors sent in one exchange, 2|E|",
}


@topology_app.callback()
def _group() -> None:
    """A group of commands, though it has one."""


@topology_app.command()
def describe(
    source: Annotated[
        str | None, typer.Argument(metavar="PRESET|FILE.toml", help="Whose graph; or give --kind and --clients.")
    ] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="A family, such as ring or erdos-renyi.")] = None,
    clients: Annotated[int | None, typer.Option(metavar="N", help="The number of nodes.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one value, such as topology.p=0.2; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the picture goes, .png or .svg; left out: none is drawn.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The seed of a random family.")] = None,
) -> None:
    """Print a graph's size, degrees and spectrum, and draw it. Also the largest stable gain."""
    from ..topology.describe import describe as measure

    graph = _graph(source, kind, clients, settings or [], seed)
    _show(measure(graph))
    if out is not None:
        from ..topology.draw import draw

        title = f"{graph.graph['kind']}, {len(graph)} nodes"
        typer.echo(f"Wrote {draw(graph, out, title=title)}")


def _graph(
    source: str | None, kind: str | None, clients: int | None, settings: list[str], seed: int | None
) -> nx.Graph:
    from ..topology.graphs import build_graph
    from .cli_input import absolute_data_path, read_source, with_settings
    from .config import parse

    if source is None and kind is None:
        raise InvalidValue(
            "--kind", None, "name a preset or a file, or give --kind and --clients, such as --kind ring --clients 8"
        )
    tables: dict[str, Any] = {} if source is None else read_source(source)
    if kind is not None:
        # Another kind takes other fields: what a file says of its own goes.
        tables["topology"] = {"kind": kind}
    tables = with_settings(tables, settings)
    if clients is not None:
        tables = with_settings(tables, [f"partition.clients={clients}"])
    tables |= {} if seed is None else {"seed": seed}
    config = parse(absolute_data_path(tables))
    from_file = config.topology.kind in ("edge-list", "graphml")
    given = clients is not None or source is not None or any(text.startswith("partition.clients") for text in settings)
    if not given and not from_file:
        raise InvalidValue("--clients", None, f"topology.kind = {config.topology.kind!r} needs the number of nodes")
    return build_graph(config.topology, config.partition.clients if given else None, config.seed)


def _show(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Graph: {facts['kind']}", title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, words in _WORDS.items():
        value = facts[name]
        text = "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
        table.add_row(words, text)
    Console().print(table)
