"""The command line. Commands import what they need when they run, so that ``dualfed --help`` is quick."""

from __future__ import annotations

import errno
import io
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import DualfedError
from .cli_audit import audit
from .cli_cluster import doctor, fetch, stage, stop, watch
from .cli_compare import compare, report, sweep
from .cli_conformance import conformance
from .cli_data import data_app
from .cli_ledger import ledger_app
from .cli_reproduce import reproduce
from .cli_serve import serve
from .cli_topology import topology_app
from .cli_usage import Misused, usage_sentence

# As a newcomer meets them.
_ORDER = (
    *("run", "resume", "watch", "stop", "init", "list", "compare", "sweep", "reproduce", "report", "plot"),
    *("ledger", "serve", "audit", "data", "topology", "doctor", "fetch", "stage", "conformance"),
)
# What is wrong with a place that a person named, wherever it is noticed.
_PLACES = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


class _Commands(TyperGroup):
    """Commands in an order of our own: typer's puts groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=_ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would end without a word
            print("interrupted; a run that had begun goes on with `dualfed resume` and its folder", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="dualfed",
    cls=_Commands,
    help="Simulate private primal-dual learning: what a method costs in accuracy, communication, time and privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(data_app, name="data")
app.add_typer(topology_app, name="topology")
app.command()(audit)
app.command()(reproduce)
app.command()(compare)
app.command()(sweep)
app.command()(report)
app.command()(watch)
app.command()(stop)
app.command()(fetch)
app.command()(stage)
app.command()(doctor)
app.command()(conformance)
app.command()(serve)


class Engine(StrEnum):
    """Where clients live: in Ray actors, or all in this process."""

    ray = "ray"
    inline = "inline"


RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, as `dualfed run` printed it, or its name.")
]
EngineOption = Annotated[
    Engine | None,
    typer.Option(metavar="ray|inline", help="Run on Ray actors, or all in this process.", show_default=False),
]

AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on a Ray cluster: auto, HOST:PORT or ray://HOST:PORT.", show_default=False
    ),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Return once the run has begun; `dualfed watch` shows how it goes on.")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dualfed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|FILE.toml", help="A preset (`dualfed list`) or a file (`dualfed init`).")
    ] = "quickstart",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change one value, such as privacy.epsilon=3; may be repeated."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder to make; default: the next dualfed-out/NAME-k.")
    ] = None,
    engine: EngineOption = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What the run is called.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The seed of every draw.")] = None,
    dry: Annotated[
        bool, typer.Option("--dry", help="Only say what the run would take: memory, time, messages, ε.")
    ] = False,
    address: AddressOption = None,
    detach: DetachOption = False,
) -> None:
    """Run a preset or a file and leave a folder with its results."""
    from .cli_run import run as start

    chosen = None if engine is None else engine.value
    raise typer.Exit(start(source, settings or [], out, chosen, name, seed, dry, address, detach))


@app.command()
def resume(
    folder: RunFolder, engine: EngineOption = None, address: AddressOption = None, detach: DetachOption = False
) -> None:
    """Go on with a stopped run, from its last checkpoint."""
    from .cli_run import resume as go_on

    raise typer.Exit(go_on(folder, None if engine is None else engine.value, address, detach))


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("dualfed.toml"),
    method: Annotated[str, typer.Option(metavar="METHOD", help="A method of `dualfed list`.")] = "fedspd-dp",
) -> None:
    """Write a file with every field, its default and its meaning."""
    from .template import write_template

    write_template(file, method)
    typer.echo(f"Wrote {file}; start it with: dualfed run {file}")


@app.command("list")
def list_() -> None:
    """List methods, presets, problems and data sets."""
    from .cli_show import show_list

    show_list()


@app.command("plot")
def plot_(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="A run's folder or name, or several to draw together.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the plots of several runs go.")] = Path(
        "dualfed-out/plots"
    ),
) -> None:
    """Draw a run's plots anew, or several runs in one plot each."""
    from .folder import find_run
    from .plot_runs import plot_runs
    from .plots import plot

    found = [find_run(folder) for folder in folders]
    for path in plot(found[0]) if len(found) == 1 else plot_runs(found, out):
        typer.echo(str(path))


def main() -> None:
    """Entry point: what a person can cause ends in one sentence and exit code 2, a defect in a traceback and 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε shows "?" instead of failing
    try:
        sys.exit(app(prog_name="dualfed", standalone_mode=False))
    except Misused as error:
        if error.format_message().startswith("Usage:"):  # a group without a command: this is its help
            error.show()
        else:
            print("error: " + usage_sentence(error), file=sys.stderr)
        sys.exit(2)
    except MemoryError as error:
        words = " ".join(str(error).split()) or "more is asked for than there is"
        print(f"error: memory: {words}; take fewer records, features, clients or rounds", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in _PLACES:
            raise
        print(
            f"error: {error.filename}: {error.strerror}; give another place, or make this one usable", file=sys.stderr
        )
        sys.exit(2)
    except DualfedError as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
