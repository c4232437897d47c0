"""A short way to an actor for who is on its machine: a socket of the kernel's in place of a call through Ray.

A call through Ray costs asker and actor half a millisecond of computing each; a question on a line costs a tenth of it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from ..errors import DualfedError

_MOST_ASKERS = 64
_BROKEN = (EOFError, OSError, AuthenticationError)

Answer = Callable[[str, Mapping[str, Any]], Any]


class LineGone(DualfedError):
    """Nobody answers on the line, or never did from here; ask through Ray."""


@dataclass(frozen=True)
class Extension:
    """How to reach a line: the name of its socket, which everybody on the machine can see, and the secret of both ends."""

    name: str = field(default_factory=lambda: f"dualfed-{secrets.token_hex(8)}")
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)


class LineServer:
    """Answers questions on a line from threads of its own, each asker in one, as long as this process lives.

    The socket is in Linux's abstract namespace: it leaves nothing behind, and no other machine reaches it. Each end proves
    to the other that it knows the key before anything is unpickled.

    Args:
        answer: what to answer to a question and its arguments; what it raises is raised where was asked.

    Raises:
        LineGone: this system has no such sockets.
    """

    def __init__(self, answer: Answer) -> None:
        self.extension = Extension()
        self._answer = answer
        self._free = threading.Semaphore(_MOST_ASKERS)
        self._listener = Listener(_address(self.extension), "AF_UNIX", backlog=16)
        threading.Thread(target=self._accept, name="line", daemon=True).start()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    asker = self._listener.accept()
                except OSError:  # closed, or out of file descriptors: who is not connected asks through Ray
                    return
                if self._free.acquire(blocking=False):
                    threading.Thread(target=self._serve, args=(asker,), daemon=True).start()
                else:
                    asker.close()

    def _serve(self, asker: Connection) -> None:
        try:
            with asker, contextlib.suppress(*_BROKEN):
                deliver_challenge(asker, self.extension.key)
                answer_challenge(asker, self.extension.key)
                while True:
                    question, arguments = asker.recv()
                    try:
                        said = (True, self._answer(question, arguments))
                    except Exception as error:
                        said = (False, error)
                    asker.send(said)
        finally:
            self._free.release()


class Line:
    """An asker's end. Thread-safe: threads that ask at once have a connection each, and so has a process that was forked.

    Raises:
        LineGone: there is no such line on this machine.
    """

    def __init__(self, extension: Extension) -> None:
        self._extension = extension
        self._process = os.getpid()
        self._idle = [self._dial()]

    def ask(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """The answer; raises what the other end raised, and LineGone where that has gone."""
        if self._process != os.getpid():  # forked: these connections are the other process's, whose answers come there
            self._idle, self._process = [], os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._dial()
        try:
            connection.send((question, arguments))
            answered, said = connection.recv()
        except Exception as error:  # gone, or an answer that cannot be unpickled here: Ray knows how to tell of it
            connection.close()
            raise LineGone(f"no answer comes from there any more: {error or 'closed'}") from None
        except BaseException:  # Ctrl-C between question and answer: the next one must not get this one's
            connection.close()
            raise
        self._idle.append(connection)
        if answered:
            return said
        raise said

    def close(self) -> None:
        """Hang up."""
        while self._idle:
            self._idle.pop().close()

    def _dial(self) -> Connection:
        try:
            return Client(_address(self._extension), "AF_UNIX", self._extension.key)
        except _BROKEN as error:
            raise LineGone(f"nobody answers there: {error or 'closed'}") from None


def _address(extension: Extension) -> str:
    """Raises LineGone where the system has no abstract sockets."""
    if not sys.platform.startswith("linux"):
        raise LineGone("only Linux has such sockets")
    return "\0" + extension.name
