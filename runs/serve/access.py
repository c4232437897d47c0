"""Who may ask. Without the right token every question gets the same answer, whatever it was about."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ...errors import InvalidValue

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_LEAST_TOKEN = 16
_REFUSAL = b'{"error":"this server answers only with its token, as Authorization: Bearer TOKEN"}'
_WRONG_HOST = b'{"error":"this server answers on its own address alone"}'
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_for(host: str, token: str | None) -> str | None:
    """The token that a server at ``host`` demands: the one given, a new one off loopback, None on it.

    Raises InvalidValue for a token that is too short to be a secret, or that no header can carry.
    """
    if token is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        cure = f"give at least {_LEAST_TOKEN} letters, digits or signs without spaces, or leave it out to get one made"
        raise InvalidValue("--token", "…" if token else token, cure)
    return token


class Doorkeeper:
    """Lets a request through to ``app`` if it may be answered; adds the headers that every answer carries.

    Args:
        token: what a request must bring; None where only this machine can ask.
        open_paths: beginnings of paths that hold nothing of a run: the page's own files.

    Without a token, requests that name another host than this machine's are refused, so that a web page elsewhere
    cannot have its own name resolved to here and read the answers.
    """

    def __init__(self, app: Asgi, token: str | None, open_paths: tuple[str, ...]) -> None:
        self._app, self._open = app, open_paths
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._token is None:
            if not is_loopback(_host_name(headers.get(b"host", b"").decode("latin-1"))):
                await _refuse(send, 400, _WRONG_HOST)
                return
        elif not (scope["path"] == "/" or scope["path"].startswith(self._open)) and not self._knows(headers):
            await _refuse(send, 401, _REFUSAL)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers)

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        assert self._token is not None
        kind, _, brought = headers.get(b"authorization", b"").partition(b" ")
        return hmac.compare_digest(brought.strip(), self._token) and kind.lower() == b"bearer"


def _host_name(header: str) -> str:
    """The host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header


async def _refuse(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *_HEADERS]})
    await send({"type": "http.response.body", "body": body})
