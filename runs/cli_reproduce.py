"""The command that makes a paper's figure anew: ``dualfed reproduce NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .cli_compare import stoppable


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; --list shows them.")] = None,
    scale: Annotated[str, typer.Option(metavar="small|full", help="A few minutes, or what the paper ran.")] = "small",
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Seeds 0 to N−1; left out: the reproduction's own number.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go; default: dualfed-out/NAME-SCALE.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Runs at a time, each in a process; default: the CPUs.")
    ] = None,
    engine: Annotated[str, typer.Option(metavar="ray|inline", help="Ray Tune, or worker processes.")] = "inline",
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Spread the runs over this Ray cluster; its nodes must all see --out."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="Take data, problem and partition of this file or preset."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Put this into every run; may be repeated.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say what can be reproduced.")] = False,
) -> None:
    """Make a paper's figure anew: runs, table, plot, a paragraph. The same command goes on where it was stopped."""
    from ..errors import InvalidValue
    from .reproductions import reproduce as carried_out
    from .reproductions import reproductions
    from .study.spread import place

    if listed:
        for each in reproductions().values():
            typer.echo(f"{each.name:<22}{each.title} ({each.source})")
        return
    if name is None:
        raise InvalidValue("NAME", None, f"give one of {', '.join(reproductions())}")
    folder = out or Path("dualfed-out") / f"{name}-{scale}"
    with stoppable(), place(engine, address, jobs) as (chosen, at_once):
        found = carried_out(
            name,
            folder,
            scale=scale,
            seeds=seeds,
            jobs=at_once,
            engine=chosen,
            data=data,
            settings=settings or [],
            say=lambda line: typer.echo(line, err=True),
        )
    typer.echo(found.conclusion.paragraph())
    for path in found.files:
        typer.echo(str(path))
