"""``dualfed conformance``: what of the conformance suite each method passes."""

from __future__ import annotations

from typing import Annotated

import typer


def conformance(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD…]", help="Names, or my_file.py:MyMethod; left out: all there are."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A method's own parameter, such as local_steps=1; may be repeated."
        ),
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Also compare the engines, which starts a cluster.")] = False,
) -> None:
    """Check methods: shapes, clients, determinism, layouts, the gate, charges, resuming. Exit code 1 if one fails."""
    import torch

    from .cli_input import with_settings
    from .conformance import all_methods, conformance_matrix, failures
    from .tables import markdown

    torch.set_num_threads(1)
    matrix = conformance_matrix(names or all_methods(), with_settings({}, settings or []), ray)
    typer.echo(markdown(matrix), nl=False)
    if count := failures(matrix):
        typer.echo(f"{count} of {matrix.shape[0] * (matrix.shape[1] - 1)} checks fail", err=True)
        raise typer.Exit(1)
