"""A short way to an actor for who is on its machine: a socket of the kernel's in place of a call through Ray.

A call through Ray costs asker and actor half a millisecond of computing each; a question on a line costs a tenth of it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from ..errors import DualfedError

_MOST_ASKERS = 64
_CREDENTIALS = struct.Struct("3i")  # ucred: process, user, group

Answer = Callable[[str, Mapping[str, Any]], Any]


class LineGone(DualfedError):
    """Nobody answers on the line, or never did from here; ask through Ray."""


class LineServer:
    """Answers questions on a line from threads of its own, each asker in one, as long as this process lives.

    The socket has a random name in Linux's abstract namespace: it leaves nothing behind, no other machine or container
    reaches it, and who connects must run as the same user, as the kernel says.

    Args:
        answer: what to answer to a question and its arguments; what it raises is raised where was asked.

    Raises:
        LineGone: this system has no such sockets.
    """

    def __init__(self, answer: Answer) -> None:
        if not hasattr(socket, "SO_PEERCRED"):
            raise LineGone("only Linux has such sockets")
        self.name = f"dualfed-{secrets.token_hex(16)}"
        self._answer = answer
        self._free = threading.Semaphore(_MOST_ASKERS)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + self.name)
        self._socket.listen()
        threading.Thread(target=self._accept, name="line", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                asker, _ = self._socket.accept()
            except OSError:  # closed, or out of file descriptors: who is not connected asks through Ray
                self._socket.close()
                return
            if _same_user(asker) and self._free.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(Connection(asker.detach()),), daemon=True).start()
            else:
                asker.close()

    def _serve(self, asker: Connection) -> None:
        try:
            with asker, contextlib.suppress(EOFError, OSError):
                while True:
                    question, arguments = asker.recv()
                    try:
                        said = (True, self._answer(question, arguments))
                    except Exception as error:
                        said = (False, error)
                    asker.send(said)
        finally:
            self._free.release()

    def close(self) -> None:
        """Take no more askers; those that are connected stay."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Line:
    """An asker's end. Thread-safe: threads that ask at once have a connection each.

    Raises:
        LineGone: there is no line of that name on this machine for this user.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle = [self._dial()]

    def ask(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """The answer; raises what the other end raised, and LineGone where that has gone."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._dial()
        try:
            connection.send((question, arguments))
            answered, said = connection.recv()
        except (EOFError, OSError) as error:
            connection.close()
            raise LineGone(f"nobody answers there any more: {error or 'closed'}") from None
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
        if not hasattr(socket, "SO_PEERCRED"):
            raise LineGone("only Linux has such sockets")
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            own.connect("\0" + self._name)
        except OSError as error:
            own.close()
            raise LineGone(f"nobody answers there: {error.strerror}") from None
        # A name is free again once its owner is gone, and what comes over a line is unpickled.
        if not _same_user(own):
            own.close()
            raise LineGone("another user answers there")
        return Connection(own.detach())


def _same_user(peer: socket.socket) -> bool:
    """Whether the process at the other end runs as this user."""
    told = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(told)[1] == os.geteuid())
