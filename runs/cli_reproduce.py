"""The commands that make a paper's figure anew: ``dualfed reproduce spade-rate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

reproduce_app = typer.Typer(help="Make a paper's figure anew: table, plot and a paragraph.", no_args_is_help=True)


@reproduce_app.callback()
def _group() -> None:
    """A group of commands, though it has one."""


@reproduce_app.command("spade-rate")
def spade_rate(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("dualfed-out/spade-rate"),
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Seeds 0 to N−1.")] = 3,
    budgets: Annotated[
        str, typer.Option(metavar="T,T,…", help="Local steps in all, separated by commas.")
    ] = "300,1000,3000,10000,30000",
) -> None:
    """How SPADE-DFL's residual and rounds go with the number of local steps, by its non-private schedule."""
    import torch

    from ..errors import InvalidValue
    from .reproduce import spade_rate as run

    torch.set_num_threads(1)
    try:
        chosen = [int(part) for part in budgets.split(",")]
    except ValueError:
        raise InvalidValue("--budgets", budgets, "give whole numbers separated by commas") from None
    found = run(out, seeds=range(seeds), budgets=chosen, say=typer.echo)
    typer.echo(found.paragraph())
    for path in found.files:
        typer.echo(str(path))
