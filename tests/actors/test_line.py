"""The line between an actor and those who ask on its machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from dualfed.actors.line import Line, LineGone, LineServer
from dualfed.errors import InvalidValue

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="only Linux has such sockets")


def answer(question, arguments):
    if question == "refuse":
        raise InvalidValue("client", arguments["client"], "clients are numbered 0 to 6")
    if question == "later":
        time.sleep(arguments["wait"])
    return {question: dict(arguments)}


@pytest.fixture
def server():
    server = LineServer(answer)
    yield server
    server.close()


@pytest.fixture
def line(server):
    line = Line(server.name)
    yield line
    line.close()


def test_a_question_is_answered_and_an_error_raised_as_it_was(line):
    assert line.ask("spent", {"client": 3, "delta": None}) == {"spent": {"client": 3, "delta": None}}
    with pytest.raises(InvalidValue, match="client"):
        line.ask("refuse", {"client": 7})
    assert line.ask("spent", {"client": 4}) == {"spent": {"client": 4}}, "an error ends no line"


def test_threads_do_not_get_each_others_answers(line):
    wrong = []

    def ask(who):
        for k in range(200):
            if line.ask("spent", {"client": (who, k)}) != {"spent": {"client": (who, k)}}:
                wrong.append((who, k))

    threads = [threading.Thread(target=ask, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_slow_question_keeps_only_its_own_thread_waiting(line):
    slow = threading.Thread(target=line.ask, args=("later", {"wait": 2.0}))
    slow.start()
    time.sleep(0.1)
    assert line.ask("spent", {}) == {"spent": {}}
    assert slow.is_alive()
    slow.join()


def test_after_ctrl_c_the_next_answer_belongs_to_the_next_question(line):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            line.ask("later", {"wait": 0.5})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    time.sleep(0.5)
    assert line.ask("spent", {"client": 1}) == {"spent": {"client": 1}}


def test_where_nobody_answers_that_is_said():
    with pytest.raises(LineGone):
        Line("dualfed-nobody")


SERVE = """
import sys, time
from dualfed.actors.line import LineServer
server = LineServer(lambda question, arguments: question)
print(server.name, flush=True)
time.sleep(60)
"""


def test_an_end_that_was_killed_is_gone():
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True) as process:
        try:
            name = process.stdout.readline().strip()
            line = Line(name)
            assert line.ask("there", {}) == "there"
        finally:
            process.kill()
        process.wait()
        with pytest.raises(LineGone):
            line.ask("there", {})
        with pytest.raises(LineGone):
            Line(name)


def test_more_askers_than_there_are_places_are_sent_away(server, monkeypatch):
    lines = [Line(server.name) for _ in range(64)]
    assert all(line.ask("spent", {}) for line in lines)
    late = Line(server.name)
    with pytest.raises(LineGone):
        late.ask("spent", {})
    for line in lines:
        line.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # places are free again once the other end has seen that they hung up
        try:
            assert Line(server.name).ask("spent", {}) == {"spent": {}}
            return
        except LineGone:
            time.sleep(0.05)
    pytest.fail("no place became free")


def test_an_answer_from_another_user_is_not_even_read(server, monkeypatch):
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(LineGone, match="another user"):
        Line(server.name)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_gets_no_answer(server):
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
                stranger.connect("\0" + server.name)
                stranger.settimeout(10)
                os._exit(0 if stranger.recv(1) == b"" else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
