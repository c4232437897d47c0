"""The command that tests whether a method's privacy bound holds: ``dualfed audit METHOD``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .audit_report import Row


def audit(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="fedspd-dp or spade-dfl.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter, such as method.rho=0.5; may be repeated."),
    ] = None,
    rounds: Annotated[int, typer.Option(metavar="T", help="Rounds of the repeated releases.")] = 10,
    noise_multiplier: Annotated[
        float | None, typer.Option(metavar="Z", help="Noise over sensitivity in them; left out: √T/2, so that μ = 2.")
    ] = None,
    delta: Annotated[float, typer.Option(metavar="D", help="δ of every ε.")] = 1e-5,
    trials: Annotated[int, typer.Option(metavar="N", help="Runs on each of the two data sets.")] = 20000,
    confidence: Annotated[float, typer.Option(metavar="C", help="With which the lower bounds hold.")] = 0.99,
    seed: Annotated[int, typer.Option(metavar="N", help="The seed of every draw.")] = 0,
    noise_factor: Annotated[
        float, typer.Option(metavar="F", help="Break the gate: scale its noise, to see the audit notice.")
    ] = 1.0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where audit.csv and the plot go; left out: nowhere.")
    ] = None,
) -> None:
    """Test a method's privacy bound on neighbouring data sets. Exit code 1 if a guaranteed one is exceeded."""
    import torch

    from ..errors import InvalidValue
    from .audit_report import audit as examine
    from .audit_report import write_audit
    from .cli_input import with_settings

    torch.set_num_threads(1)
    tables = with_settings({"method": {}}, settings or [])
    if other := set(tables) - {"method"}:
        raise InvalidValue("--set", min(other), "an audit takes parameters of the method alone, such as method.rho=0.5")
    rows = examine(
        method,
        tables["method"],
        rounds=rounds,
        noise_multiplier=noise_multiplier,
        delta=delta,
        trials=trials,
        confidence=confidence,
        seed=seed,
        noise_factor=noise_factor,
        say=lambda words: typer.echo(f"auditing: {words}", err=True),
    )
    _show(rows)
    if out is not None:
        for path in write_audit(rows, out):
            typer.echo(str(path))
    raise typer.Exit(0 if all(row.consistent for row in rows) else 1)


def _show(rows: list[Row]) -> None:
    from rich.table import Table

    from .audit_report import batches_of
    from .statement import epsilon_text
    from .terminal import wide_console

    table = Table(title=f"Audit of {rows[0].case.method.name}, δ = {rows[0].delta:g}", title_justify="left")
    for column in (
        "case",
        "batches",
        "pair",
        "T",
        "z",
        "ledger's ε",
        "μ / claimed",
        "pair's ε",
        "ε >",
        "μ >",
        "verdict",
    ):
        table.add_column(column, justify="left" if column in ("case", "batches", "pair", "verdict") else "right")
    for row in rows:
        lower = row.lower
        table.add_row(
            row.case.label,
            batches_of(row.case),
            row.case.pairs.words,
            str(row.case.method.rounds),
            f"{row.case.noise_multiplier:.3g}",
            epsilon_text(row.spent.epsilon, row.spent.status),
            f"{_text(row.mu)} / {row.claimed_mu:.2f}",
            _text(row.pair_epsilon),
            "–" if lower is None else _text(lower.epsilon),
            "–"
            if lower is None
            else _text(lower.mu) + ("" if row.mu_epsilon is None else f" (ε {_text(row.mu_epsilon)})"),
            row.verdict,
        )
    console = wide_console()
    console.print(table)
    if any(row.lower is not None for row in rows):
        found = next(row.lower for row in rows if row.lower is not None)
        console.print(
            f"ε > and μ >: lower bounds from {found.trials:,} runs on each data set, together at confidence "
            f"{found.confidence:g}. ε > holds for any mechanism; μ > is about the Gaussian that the account says it is."
        )


def _text(value: float | None) -> str:
    """Lower bounds are rounded down."""
    return "–" if value is None else f"{math.floor(100 * value) / 100:.2f}"
