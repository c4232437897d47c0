"""The command that shows a run while it goes on: ``dualfed serve RUN``."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidValue

if TYPE_CHECKING:
    from .serve.access import Asgi

_LOAD = 0.03  # of a core, for computing ε; a run on the same machine should hardly feel that it is watched
"""The share of one core that keeping ε up to date may take."""
_NICENESS = 10
"""Where the machine is busy, the run comes first."""


def serve(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder or name.")],
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to listen; beyond this machine needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", envvar="DUALFED_TOKEN", help="What a request must bring; made if it must be there."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Ask the ledger on this Ray cluster instead of the folder: auto, HOST:PORT or ray://HOST:PORT.",
        ),
    ] = None,
) -> None:
    """Show a run in the browser, and its numbers over HTTP. It only reads."""
    from .ledger_client import Ledger
    from .serve.access import token_for
    from .serve.app import create_app
    from .serve.watch import Watch

    secret = token_for(host, token)
    ledger = Ledger.connect(run, address, load=_LOAD)
    try:
        watch = Watch(ledger)
        folder = Path(watch.board.facts.folder or run)
        with listening(host, port) as sock:
            typer.echo(f"Serving {watch.board.facts.name} ({watch.board.state}) at {_link(host, sock, secret)}")
            typer.echo("End with Ctrl-C; the run goes on.")
            with contextlib.suppress(OSError):
                os.nice(_NICENESS)
            _answer(create_app(watch, folder, secret), sock)
    finally:
        ledger.close()


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens there. Raises InvalidValue where that cannot be."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidValue("--host", host, f"is no address of this machine: {error.strerror}") from None
    with socket.socket(family, kind, protocol) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(where)
            sock.listen(128)
        except OSError as error:
            field, value = ("--host", host) if error.errno == errno.EADDRNOTAVAIL else ("--port", port)
            cure = f"cannot be listened on: {(error.strerror or str(error)).lower()}; give another, or --port 0"
            raise InvalidValue(field, value, cure) from None
        yield sock


def _link(host: str, sock: socket.socket, token: str | None) -> str:
    """The page's address. A token goes behind the #, which browsers keep to themselves."""
    shown = host if host not in ("0.0.0.0", "::") else socket.gethostname()
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{sock.getsockname()[1]}/" + (f"#token={token}" if token else "")


def _answer(app: Asgi, sock: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[sock])
