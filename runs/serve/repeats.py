"""The same question asked again before anything new is known: answered with the bytes of the first answer."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from .access import Asgi, Receive, Scope, Send
from .watch import Watch

_KEPT = 256

Question = tuple[str, bytes]
"""The path, and what is behind the question mark."""


class Repeats:
    """Keeps what ``app`` answered to GET requests for ``paths``, until ``watch`` has a newer board.

    A page that many look at asks the same things once a second each, and finding out what was asked costs most of an
    answer. ``paths`` are those whose answers are made from the board alone.
    """

    def __init__(self, app: Asgi, watch: Watch, paths: frozenset[str]) -> None:
        self._app, self._watch, self._paths = app, watch, paths
        self._version = -1
        self._answers: dict[Question, list[MutableMapping[str, Any]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        version = self._watch.asked().version
        if version != self._version:
            self._version, self._answers = version, {}
        question = (scope["path"], scope["query_string"])
        if (known := self._answers.get(question)) is not None:
            for message in known:
                await send(dict(message))
            return
        said: list[MutableMapping[str, Any]] = []

        async def listen(message: MutableMapping[str, Any]) -> None:
            said.append(dict(message))
            await send(message)

        await self._app(scope, receive, listen)
        whole = len(said) == 2 and said[0].get("status") == 200 and not said[1].get("more_body")
        if whole and version == self._version and len(self._answers) < _KEPT:
            self._answers[question] = said
