"""A question that is asked again gets the first answer's bytes, until something new is known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from dualfed.runs.serve.repeats import Repeats


class Answering:
    """An application that counts what it is asked, and a watch whose board has a version."""

    def __init__(self, status=200):
        self.status, self.asked_for, self.looked = status, [], 0
        self.board = SimpleNamespace(version=1)

    def asked(self):
        self.looked += 1
        return self.board

    async def __call__(self, scope, receive, send):
        self.asked_for.append((scope["path"], scope["query_string"]))
        body = f"{scope['path']}?{scope['query_string'].decode()} at {self.board.version}".encode()
        await send(
            {"type": "http.response.start", "status": self.status, "headers": [(b"content-type", b"text/plain")]}
        )
        await send({"type": "http.response.body", "body": body})


def ask(app, path, query=b"", method="GET"):
    """Status, headers and body; like the layer outside, it changes the messages that it is sent."""
    said = []

    async def send(message):
        if "headers" in message:
            message["headers"] = [*message["headers"], (b"x-added", b"once")]
        said.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query}
    asyncio.run(app(scope, None, send))
    return said[0]["status"], said[0]["headers"], b"".join(message["body"] for message in said[1:])


@pytest.fixture
def answering():
    return Answering()


@pytest.fixture
def app(answering):
    return Repeats(answering, answering, frozenset({"/api/summary", "/api/clients"}))


def test_asked_again_the_answer_is_the_same_and_made_once(app, answering):
    first = ask(app, "/api/clients", b"limit=2")
    assert first == (200, [(b"content-type", b"text/plain"), (b"x-added", b"once")], b"/api/clients?limit=2 at 1")
    assert ask(app, "/api/clients", b"limit=2") == first
    assert ask(app, "/api/clients", b"limit=3")[2] == b"/api/clients?limit=3 at 1"
    assert len(answering.asked_for) == 2
    assert answering.looked == 3, "the run is looked at often as long as somebody asks"


def test_what_is_new_is_told(app, answering):
    ask(app, "/api/summary")
    answering.board = SimpleNamespace(version=2)
    assert ask(app, "/api/summary")[2] == b"/api/summary? at 2"


@pytest.mark.parametrize(("path", "method"), [("/api/clients/3", "GET"), ("/api/summary", "POST")])
def test_everything_else_is_asked_every_time(app, answering, path, method):
    for _ in range(2):
        ask(app, path, method=method)
    assert len(answering.asked_for) == 2


def test_refusals_are_not_kept():
    answering = Answering(status=422)
    app = Repeats(answering, answering, frozenset({"/api/clients"}))
    for _ in range(2):
        assert ask(app, "/api/clients", b"limit=x")[0] == 422
    assert len(answering.asked_for) == 2


def test_no_more_is_kept_than_there_is_room_for(app, answering):
    for k in range(400):
        ask(app, "/api/clients", f"limit={k}".encode())
    assert len(app._answers) == 256
