"""The line between an actor and those who ask on its machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import AuthenticationError, connection

import pytest
from dualfed.actors.line import Extension, Line, LineGone, LineServer
from dualfed.errors import InvalidValue

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has such sockets")


class Unreadable(Exception):
    def __init__(self, one, two):
        super().__init__("of two")


def answer(question, arguments):
    if question == "unreadable":
        raise Unreadable(1, 2)
    if question == "unwritable":
        return lambda: question
    if question == "refuse":
        raise InvalidValue("client", arguments["client"], "clients are numbered 0 to 6")
    if question == "later":
        time.sleep(arguments["wait"])
    return {question: dict(arguments)}


@pytest.fixture
def server():
    return LineServer(answer)


@pytest.fixture
def line(server):
    line = Line(server.extension)
    yield line
    line.close()


def test_a_question_is_answered_and_an_error_raised_as_it_was(line):
    assert line.ask("spent", {"client": 3, "delta": None}) == {"spent": {"client": 3, "delta": None}}
    with pytest.raises(InvalidValue, match="client"):
        line.ask("refuse", {"client": 7})
    assert line.ask("spent", {"client": 4}) == {"spent": {"client": 4}}, "an error ends no line"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("question", ["unreadable", "unwritable"])
def test_what_no_line_can_carry_is_asked_for_elsewhere(line, question):
    with pytest.raises(LineGone):
        line.ask(question, {})
    assert line.ask("spent", {}) == {"spent": {}}


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


def test_a_forked_process_and_its_parent_do_not_get_each_others_answers(line):
    def ask(who):
        for k in range(200):
            assert line.ask("spent", {"client": (who, k)}) == {"spent": {"client": (who, k)}}

    ask("before")
    forked = multiprocessing.get_context("fork").Process(target=ask, args=("forked",))
    forked.start()
    try:
        ask("parent")
        forked.join(30)
        assert forked.exitcode == 0
    finally:
        forked.kill()


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
        Line(Extension())


SERVE = """
import sys, time
from dualfed.actors.line import LineServer
server = LineServer(lambda question, arguments: question)
print(server.extension.name, server.extension.key.hex(), flush=True)
time.sleep(60)
"""


def test_an_end_that_was_killed_is_gone():
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True) as process:
        try:
            name, key = process.stdout.readline().split()
            line = Line(Extension(name, bytes.fromhex(key)))
            assert line.ask("there", {}) == "there"
        finally:
            process.kill()
        process.wait()
        with pytest.raises(LineGone):
            line.ask("there", {})
        with pytest.raises(LineGone):
            Line(Extension(name, bytes.fromhex(key)))


def test_more_askers_than_there_are_places_are_sent_away(server):
    lines = [Line(server.extension) for _ in range(64)]
    assert all(line.ask("spent", {}) for line in lines)
    with pytest.raises(LineGone):
        Line(server.extension)
    for line in lines:
        line.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # places are free again once the other end has seen that they hung up
        try:
            assert Line(server.extension).ask("spent", {}) == {"spent": {}}
            return
        except LineGone:
            time.sleep(0.05)
    pytest.fail("no place became free")


def test_who_does_not_know_the_key_gets_no_answer(server):
    wrong = replace(server.extension, key=b"guessed")
    with pytest.raises(LineGone, match="digest"):
        Line(wrong)
    assert Line(server.extension).ask("spent", {}) == {"spent": {}}


def test_nothing_is_unpickled_from_who_does_not_know_the_key(server, tmp_path):
    """What a stranger sends first is taken for the answer to the challenge, and refused."""

    class Touch:
        def __reduce__(self):
            return (tmp_path.joinpath("touched").touch, ())

    with connection.Client("\0" + server.extension.name, "AF_UNIX") as stranger:
        stranger.send(Touch())
        assert b"CHALLENGE" in stranger.recv_bytes()
        with contextlib.suppress(EOFError, OSError):
            assert stranger.recv_bytes() == b"#FAILURE#"
            stranger.send(Touch())
            stranger.recv_bytes()
    assert not (tmp_path / "touched").exists()


def test_an_answer_of_who_took_the_name_is_not_unpickled():
    """A name is free again once its owner is gone, and what comes over a line is unpickled."""
    extension = Extension()
    with connection.Listener("\0" + extension.name, "AF_UNIX", authkey=b"another") as impostor:

        def accept():
            with contextlib.suppress(AuthenticationError):
                impostor.accept()

        taken = threading.Thread(target=accept)
        taken.start()
        with pytest.raises(LineGone):
            Line(extension)
        taken.join()
