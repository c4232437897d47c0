"""The web application: one watch, its answers, the stream of changes and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from ... import __version__
from ...errors import DualfedError, InvalidValue
from .access import Asgi, Doorkeeper
from .page import FOLDER
from .prometheus import CONTENT_TYPE, exposition
from .repeats import Repeats
from .routes import FROM_THE_BOARD, make_router
from .views import tick
from .watch import Watch

_HEARTBEAT_S = 5.0
_LEAST_GAP_S = 0.25
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
OPEN_PATHS = ("/assets/", "/docs")
_ABOUT = """A run of dualfed, read while it goes on. Nothing here changes the run.

Every answer states the round that it is exact as of: the round of the last charge in the ledger's journal that its ε
includes. Infinite numbers are null; the text beside them says what that means. An ε is never to be shown without its
status: guaranteed, or claimed."""


def create_app(watch: Watch, folder: Path, token: str | None) -> Asgi:
    """The application that answers about the run that ``watch`` reads; ``token`` is what a request must bring."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watch.start()
        yield
        await asyncio.to_thread(watch.close)

    app = FastAPI(
        title="dualfed", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    app.include_router(make_router(watch, folder))
    _add_errors(app)
    _add_stream(app, watch)
    _add_page(app)

    @app.get("/metrics", response_class=PlainTextResponse, tags=["prometheus"])
    async def prometheus() -> Response:
        """The run's numbers as Prometheus reads them."""
        return Response(exposition(watch.asked()), media_type=CONTENT_TYPE)

    return Doorkeeper(Repeats(app, watch, FROM_THE_BOARD), token, OPEN_PATHS)


def _add_errors(app: FastAPI) -> None:
    def sentence(status: int, text: str) -> Response:
        return JSONResponse({"error": " ".join(text.split())}, status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or "request"
        return sentence(422, f"{field} = {first.get('input')!r}: {first['msg'][0].lower()}{first['msg'][1:]}")

    @app.exception_handler(DualfedError)
    async def refused(_: Request, error: DualfedError) -> Response:
        return sentence(422 if isinstance(error, InvalidValue) else 503, str(error))

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        text = (
            f"there is no {request.url.path} here; /docs lists what there is" if error.detail == "Not Found" else None
        )
        return sentence(error.status_code, text or str(error.detail))


def _add_stream(app: FastAPI, watch: Watch) -> None:
    @app.get("/api/stream", tags=["live"], response_class=StreamingResponse)
    async def stream() -> Response:
        """Server-sent events: one ``changed`` at every change, at most four a second, and a ``:`` every five seconds."""
        return StreamingResponse(
            _changes(watch),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )


async def _changes(watch: Watch) -> AsyncIterator[str]:
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(changed.set)

    stop: Callable[[], None] = watch.listen(tell)
    sent = -1
    try:
        while True:
            board = watch.asked()
            changed.clear()
            if board.version != sent:
                sent = board.version
                yield f"event: changed\ndata: {json.dumps(tick(board))}\n\n"
                await asyncio.sleep(_LEAST_GAP_S)
            try:
                await asyncio.wait_for(changed.wait(), _HEARTBEAT_S)
            except TimeoutError:
                yield ": still here\n\n"
    finally:
        stop()


def _add_page(app: FastAPI) -> None:
    def file(name: str) -> Response:
        return FileResponse(FOLDER / name, media_type=_TYPES[Path(name).suffix], headers={"cache-control": "no-cache"})

    served = {path.name for path in FOLDER.iterdir() if path.suffix in _TYPES}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return file("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return file("docs.html")

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in served:
            raise HTTPException(404)
        return file(name)
