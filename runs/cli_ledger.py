"""``dualfed ledger``: what each client has spent, while a run goes on, after its end and after a crash."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ledger_app = typer.Typer(help="What each client has spent of its budget, at any time.", no_args_is_help=True)


class ExportFormat(StrEnum):
    """How accounts are written."""

    csv = "csv"
    json = "json"
    parquet = "parquet"


RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's folder or name; with --address also its id, as run.json states it."),
]
ClientOption = Annotated[int | None, typer.Option("--client", metavar="I", help="One client alone.")]
DeltaOption = Annotated[float | None, typer.Option("--delta", metavar="D", help="Another δ than the run's.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Ask the ledger on this Ray cluster instead of the folder: auto, HOST:PORT or ray://HOST:PORT.",
    ),
]


@ledger_app.command()
def show(run: RunName, client: ClientOption = None, delta: DeltaOption = None, address: AddressOption = None) -> None:
    """Show each client's releases and ε, or all accounts of one."""
    from .ledger_commands import show

    show(run, address, client, delta)


@ledger_app.command()
def watch(
    run: RunName,
    client: ClientOption = None,
    delta: DeltaOption = None,
    address: AddressOption = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once instead of until the run ends.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Seconds between two looks.")] = 1.0,
    top: Annotated[int, typer.Option("--top", metavar="N", help="How many clients to show, largest ε first.")] = 20,
) -> None:
    """Follow a run until it ends. ε against budget, rounds, refusals and losses."""
    from .ledger_commands import watch

    watch(run, address, client, delta, once, interval, top)


@ledger_app.command()
def history(
    run: RunName,
    client: ClientOption = None,
    address: AddressOption = None,
    last: Annotated[int, typer.Option("--last", metavar="N", help="Only the newest N charges; 0 shows all.")] = 0,
) -> None:
    """Show every charge: when, for which round, and for what."""
    from .ledger_commands import history

    history(run, address, client, last)


@ledger_app.command("what-if")
def what_if(
    run: RunName,
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="N", help="This many more rounds.")] = None,
    noise: Annotated[
        float | None, typer.Option("--noise", metavar="Z", help="With this noise multiplier instead of the last one.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="E", help="Into this ε instead of each client's budget.")
    ] = None,
    client: ClientOption = None,
    delta: DeltaOption = None,
    address: AddressOption = None,
) -> None:
    """Say what more rounds would cost. How many fit at this noise; what ε comes to after so many; which noise would make them
    fit."""
    from .ledger_commands import what_if

    what_if(run, address, client, delta, rounds, noise, budget)


@ledger_app.command()
def export(
    run: RunName,
    format: Annotated[
        ExportFormat, typer.Option("--format", metavar="csv|json|parquet", help="How to write it.")
    ] = ExportFormat.csv,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to; default: the screen.")] = None,
    charges: Annotated[bool, typer.Option("--history", help="Every charge instead of every account.")] = False,
    client: ClientOption = None,
    delta: DeltaOption = None,
    address: AddressOption = None,
) -> None:
    """Write all accounts, or all charges, for other programs."""
    from .ledger_export import export

    export(run, address, client, delta, format.value, out, charges)
