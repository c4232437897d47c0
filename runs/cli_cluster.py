"""The commands about clusters and runs elsewhere: ``watch``, ``stop``, ``fetch``, ``stage`` and ``doctor``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..errors import InvalidValue

_PATIENCE_S = 600.0

_Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, as `dualfed run` printed it, or its name.")]
_Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="The cluster on whose head the folder is: auto, HOST:PORT or ray://HOST:PORT."
    ),
]


def watch(run: _Run, address: _Address = None) -> None:
    """Show how a run goes on in another process, until it ends. Ctrl-C leaves the run alone."""
    from .progress import watcher

    bar = watcher(Path(run).name or run)
    try:
        if address is not None:
            _watch_there(run, address, bar)
            return
        from .folder import find_run
        from .following import follow
        from .results import load_result
        from .summary import show

        folder = find_run(run)
        follow(folder, bar)
        bar.close()
        show(load_result(folder), None, Console())
    except KeyboardInterrupt:
        bar.close()
        print("The run goes on.", file=sys.stderr)
    finally:
        bar.close()


def _watch_there(run: str, address: str, bar: object) -> None:
    from ..actors.cluster import connected
    from ..actors.held_run import watch_holder

    assert callable(bar)
    with connected(address):
        folder = watch_holder(_holder(run), bar)
    typer.echo(f"The run has ended. Copy its results with: dualfed fetch {folder} --address {address} --to DIR")


def _holder(run: str) -> object:
    from ..actors.held_run import holders

    found = dict(holders())
    if run not in found:
        others = ", ".join(sorted(found)) or "none"
        raise InvalidValue("RUN", run, f"no such run goes on on that cluster; there are: {others}")
    return found[run]


def stop(
    run: _Run,
    address: _Address = None,
    wait: Annotated[bool, typer.Option(help="Return when the run has stopped, rather than at once.")] = True,
) -> None:
    """Ask a run to stop after its round in progress. It leaves a checkpoint; `dualfed resume` goes on with it."""
    if address is not None:
        from ..actors.cluster import connected
        from ..actors.held_run import ask_holder_to_stop

        with connected(address):
            ask_holder_to_stop(_holder(run))
        typer.echo(f"Asked {run} to stop.")
        return
    from .folder import find_run
    from .following import ask_to_stop, wait_for_end

    folder = find_run(run)
    ask_to_stop(folder)
    if not wait:
        typer.echo(f"Asked {run} to stop.")
    elif wait_for_end(folder, _PATIENCE_S):
        typer.echo(f"Stopped. Go on with: dualfed resume {run}")
    else:
        typer.echo(f"Asked {run} to stop; its round goes on still.")
        raise typer.Exit(1)


def fetch(
    run: _Run,
    to: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make here.")],
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The cluster: auto, HOST:PORT or ray://HOST:PORT.")
    ] = "auto",
) -> None:
    """Copy a run's results from the head node of a cluster. Private states stay there."""
    from ..actors.cluster import connected
    from ..actors.folder_reader import copy_folder

    with connected(address):
        size = copy_folder(run, to)
    typer.echo(f"Copied {size / 1e6:.1f} MB to {to}")


def stage(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    source: Annotated[
        str | None, typer.Argument(metavar="PRESET|FILE.toml", help="A configuration to put beside it.")
    ] = None,
) -> None:
    """Make a folder that can be submitted to any cluster. `ray job submit --working-dir DIR -- python -m dualfed run …`
    does so."""
    import tomlkit

    from ..actors.package import stage as put
    from .cli_input import read_source

    if folder.exists() and any(folder.iterdir()):
        raise InvalidValue("DIR", str(folder), "holds files already; give a new folder")
    tables = None if source is None else read_source(source)
    put(folder)
    if tables is None:
        typer.echo(f"Made {folder}; submit it with: ray job submit --working-dir {folder} -- python -m dualfed run …")
        return
    (folder / "run.toml").write_text(tomlkit.dumps(tables))
    typer.echo(
        f"Made {folder}; start it with: ray job submit --address http://HEAD:8265 --working-dir {folder} -- "
        "python -m dualfed run run.toml --address auto"
    )


def doctor(
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Look at a cluster too: auto, HOST:PORT or ray://HOST:PORT.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what is wrong with this installation, or a cluster. Exit code 1 if something is."""
    from .doctor import examine

    findings = examine(address)
    if as_json:
        typer.echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        from .doctor import show_findings

        show_findings(findings, Console())
    raise typer.Exit(1 if any(finding.state == "wrong" for finding in findings) else 0)
