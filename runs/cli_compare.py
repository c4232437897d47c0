"""The commands that run many: ``dualfed compare`` and ``dualfed sweep``; and ``dualfed report``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from .terminal import wide_console

if TYPE_CHECKING:
    import pandas as pd

JobsOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Runs at a time, each in a process; default: the CPUs.")
]
EngineName = Annotated[str, typer.Option(metavar="ray|inline", help="Worker processes, or Ray.")]
Share = Annotated[
    float, typer.Option(metavar="SHARE", min=0.01, max=0.9, help="Of every client's records, held out to choose by.")
]


def compare(
    files: Annotated[list[str], typer.Argument(metavar="PRESET|FILE.toml", help="Presets or files, two or more.")],
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="How many, from the files' own seed upwards.")] = 3,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose each method's parameters first, from its table [tune].")
    ] = False,
    validation: Share = 0.2,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("dualfed-out/compare"),
    engine: EngineName = "inline",
    jobs: JobsOption = None,
) -> None:
    """Put methods beside each other. They get the same records, partition, graph, seeds and budget. The same command goes on
    where it was stopped."""
    from .comparison import compare as compared
    from .comparison.write import differences_shown, methods_shown

    _check_engine(engine)
    with stoppable():
        found = compared(
            files, seeds=seeds, tune=tune, validation=validation, out=out, engine=engine, jobs=_jobs(jobs), say=_say
        )
    console = wide_console()
    console.print(_rich(methods_shown(found), "Methods"))
    if len(found.differences):
        console.print(_rich(differences_shown(found), "Paired differences"))
    _end([*found.notes, *found.faults], found.files)


def sweep(
    config: Annotated[str, typer.Argument(metavar="PRESET|FILE.toml", help="A preset or a file.")],
    grid: Annotated[list[str], typer.Option("--grid", metavar="KEY=V,V,…", help="Values to try; may be repeated.")],
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="How many, from the file's own seed upwards.")] = 1,
    validation: Share = 0.2,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path("dualfed-out/sweep"),
    engine: Annotated[
        str | None, typer.Option(metavar="ray|inline", help="Worker processes, or Ray Tune; default: the file's own.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Spread the runs over this Ray cluster; its nodes must all see --out."),
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Run a configuration over a grid of values. Records that clients hold out give the scores. The same command goes on where
    it was stopped."""
    from .comparison.entries import read_one
    from .comparison.sweeping import read_grid
    from .comparison.sweeping import sweep as swept
    from .study.spread import place

    axes = read_grid(grid)
    chosen = engine or read_one(config)[1].engine
    _check_engine(chosen)
    if engine is None and address is None and chosen == "ray":
        from ..actors.trials import missing

        if lacks := missing():
            _say(f"Ray Tune needs {', '.join(lacks)} (pip install 'dualfed[tune]'): taking worker processes instead")
            chosen = "inline"
    with stoppable(), place(chosen, address, jobs) as (where, at_once):
        found = swept(config, axes, seeds=seeds, validation=validation, out=out, engine=where, jobs=at_once, say=_say)
    wide_console().print(_rich(found.table, "Candidates"))
    from .comparison.grid import words

    _end([f"Best: {words(found.best)}.", *found.notes, *found.faults], found.files)


def report(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder or name.")]) -> None:
    """Write a run's report.html anew: one page that stands alone."""
    from .folder import find_run
    from .report import report as written

    typer.echo(str(written(find_run(folder))))


@contextmanager
def stoppable() -> Iterator[None]:
    """End with 130 where somebody stopped a study, saying that the same command goes on."""
    from .study import StudyStopped

    try:
        yield
    except StudyStopped as stopped:
        _say(str(stopped))
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        _say("stopped; nothing that is finished is lost, and the same command goes on")
        raise typer.Exit(130) from None


def _check_engine(engine: str) -> None:
    from ..errors import InvalidValue

    if engine not in ("inline", "ray"):
        raise InvalidValue("--engine", engine, "give inline or ray")


def _jobs(given: int | None) -> int:
    return given or os.cpu_count() or 1


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _rich(frame: pd.DataFrame, title: str) -> Table:
    from .tables import cell

    table = Table(title=title, title_justify="left", title_style="bold")
    for name in frame.columns:
        table.add_column(str(name))
    for row in frame.itertuples(index=False):
        table.add_row(*(cell(value) for value in row))
    return table


def _end(sentences: list[str], files: list[Path]) -> None:
    for sentence in sentences:
        typer.echo(sentence)
    for path in files:
        typer.echo(str(path))
