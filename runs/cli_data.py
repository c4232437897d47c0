"""The command that looks at data before anything runs: ``dualfed data describe``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from .config import RunConfig
    from .holdings import Holdings

data_app = typer.Typer(help="Look at data before anything runs.", no_args_is_help=True)

# So many clients and classes get a row and a column each; of more, the table shows quantiles.
_ROWS = 40
_COLUMNS = 10


@data_app.callback()
def _group() -> None:
    """A group of commands, though it has one."""


@data_app.command()
def describe(
    source: Annotated[str, typer.Argument(metavar="PRESET|FILE.toml", help="A preset or a configuration.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one value, such as partition.alpha=0.1."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the picture goes; default: dualfed-out/NAME-data.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The seed of the split and the partition.")] = None,
) -> None:
    """Show who holds what: sizes, class shares, norms. Also what was done to the features."""
    from .cli_input import absolute_data_path, read_source, with_settings
    from .config import parse
    from .draw_holdings import draw_holdings
    from .holdings import holdings

    tables = with_settings(read_source(source), settings or [])
    tables |= {} if seed is None else {"seed": seed}
    config = parse(absolute_data_path(tables))
    held = holdings(config)
    show(held, config)
    folder = Path("dualfed-out") / f"{config.name}-data" if out is None else out
    for path in draw_holdings(held, folder / "clients"):
        typer.echo(str(path))


def show(held: Holdings, config: RunConfig) -> None:
    """Print the figures of ``held``."""

    from .terminal import wide_console

    console = wide_console()
    console.print(_facts(held, config))
    if held.dataset.constants:
        console.print(_constants(held))
    console.print(_clients(held) if len(held.members) <= _ROWS else _quantiles(held))


def _facts(held: Holdings, config: RunConfig) -> Table:
    from rich.table import Table
    from rich.text import Text

    data, facts = held.dataset, Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    counts = f"{len(data.train_labels):,} training and {len(data.test_labels):,} test records"
    facts.add_row("data", Text(f"{data.name}: {counts}"))
    facts.add_row("features", f"{data.n_features}, norm at most {data.record_norm:.4g}")
    facts.add_row("scaling", Text(data.scaling))
    if data.statistics == "private":
        words = "private: they depend on the training records, and no ε accounts for that"
        facts.add_row("statistics", Text(words, style="bold red"))
    else:
        facts.add_row("statistics", "public: no constant was computed from the records")
    facts.add_row("labels", Text(_labels(held)))
    facts.add_row("partition", f"{config.partition.scheme}, {len(held.members):,} clients" + _left_out(held))
    if "distance" in held.frame:
        skew = float((held.frame["distance"] * held.frame["records"]).sum() / held.frame["records"].sum())
        facts.add_row(
            "label skew", f"{skew:.3f} (0: all clients alike; mean distance of a client's shares from everybody's)"
        )
    return facts


def _labels(held: Holdings) -> str:
    names = held.class_names
    if not names:
        return "real targets"
    return f"{len(names)} classes" + (
        ": " + ", ".join(names) if held.dataset.class_names and len(names) <= _COLUMNS else ""
    )


def _left_out(held: Holdings) -> str:
    if not held.left_out:
        return ""
    clients = len(held.dataset.client_names) - len(held.members)
    return f"; {clients:,} small clients with {held.left_out:,} training records left out"


def _constants(held: Holdings) -> Table:
    from rich.markup import escape

    table = _table("Columns", "column", "mapped by")
    for column, words in held.dataset.constants:
        table.add_row(escape(column), words)
    return table


def _clients(held: Holdings) -> Table:
    from rich.markup import escape

    shares = held.class_names if held.proportions.shape[1] <= _COLUMNS else []
    numbers = list(held.frame.columns[2:])
    if shares:
        numbers = [column for column in numbers if column not in ("classes", "largest_share")]
    table = _table(
        "Who holds what", "client", *(_titles(column) for column in numbers), *(f"% {escape(name)}" for name in shares)
    )
    for position, row in enumerate(held.frame.itertuples(index=False)):
        cells = [_number(getattr(row, column), column) for column in numbers]
        cells += [f"{100 * share:.1f}" for share in held.proportions[position, : len(shares)]]
        table.add_row(escape(str(row.name)), *cells)
    return table


def _quantiles(held: Holdings) -> Table:
    numbers: pd.DataFrame = held.frame.drop(columns=["client", "name"])
    table = _table(f"Who holds what: {len(held.members):,} clients", "", *(_titles(str(column)) for column in numbers))
    for name, level in (("least", 0.0), ("10 %", 0.1), ("median", 0.5), ("90 %", 0.9), ("most", 1.0)):
        at = numbers.quantile(level, interpolation="nearest")
        table.add_row(name, *(_number(float(at[str(column)]), str(column)) for column in numbers))
    return table


def _titles(column: str) -> str:
    return column.replace("_", " ")


def _number(value: float, column: str) -> str:
    return f"{int(value):,}" if column in ("records", "classes") else f"{value:.3f}"


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 or column == "mapped by" else "right")
    return table
