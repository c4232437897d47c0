"""``dualfed conformance``: what of the conformance suite each method passes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class TableFormat(StrEnum):
    """How the matrix is written."""

    text = "text"
    md = "md"
    csv = "csv"


def conformance(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="METHOD", help="Names, or my_file.py:MyMethod; left out: all there are."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A method's own parameter, such as local_steps=1; may be repeated."
        ),
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Also compare the engines, which starts a cluster.")] = False,
    format: Annotated[
        TableFormat,
        typer.Option(
            "--format", metavar="text|md|csv", help="A table for the terminal, markdown, or csv with every sentence."
        ),
    ] = TableFormat.text,
) -> None:
    """Check that methods keep what every method must. Shapes, clients, seeds, layouts, the gate, charges, resuming, clients
    that are lost or late. Exit code 1 if one fails."""
    import torch

    from .cli_input import with_settings
    from .conformance import COLUMNS, all_methods, conformance_matrix, failures, sentences, shown
    from .tables import aligned, markdown

    torch.set_num_threads(1)
    matrix = conformance_matrix(names or all_methods(), with_settings({}, settings or []), ray)
    if format is TableFormat.csv:
        typer.echo(matrix.to_csv(index=False), nl=False)
    else:
        write = markdown if format is TableFormat.md else aligned
        bullet = "* " if format is TableFormat.md else ""
        typer.echo(write(shown(matrix)))
        for sentence in [*(f"{name}: {meaning}" for name, meaning in COLUMNS.items()), *sentences(matrix)]:
            typer.echo(f"{bullet}{sentence}")
    if count := failures(matrix):
        typer.echo(f"{count} of {matrix.shape[0] * (matrix.shape[1] - 1)} checks fail", err=True)
        raise typer.Exit(1)
