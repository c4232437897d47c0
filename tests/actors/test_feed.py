"""The feed of events: whole lines in order, whatever ended the process that wrote them."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys

import numpy as np
import psutil
from dualfed.actors.feed import FEED, FeedReader, FeedWriter
from dualfed.actors.run_file import RunFile, read_run_file, state_of


def round_event(t):
    return {"kind": "round", "round": t, "participants": np.int64(3), "seconds": 0.5}


def test_a_reader_follows_and_can_begin_anywhere(tmp_path):
    reader = FeedReader(tmp_path / FEED)
    assert list(reader.fresh()) == []
    assert reader.since(0) == []
    writer = FeedWriter(tmp_path)
    for t in range(5):
        writer.take(round_event(t))
        assert [event["round"] for event in reader.fresh()] == [t]
    assert list(reader.fresh()) == []
    assert [event["seq"] for event in reader.since(3)] == [3, 4]
    assert reader.since(5) == []
    assert reader.count == 5
    assert [event["seq"] for event in FeedReader(tmp_path / FEED).since(0)] == [0, 1, 2, 3, 4]
    writer.close()


def test_what_is_private_is_marked_or_left_out(tmp_path):
    writer = FeedWriter(tmp_path)
    writer.take({"kind": "states", "round": 1, "x0": np.zeros(3)})
    writer.take({"kind": "diagnosed", "round": 1, "objective": math.nan})
    writer.take({"kind": "failed", "round": 1, "host": 0, "clients": [1], "error": "record 7 is ill", "trace": "ill"})
    writer.take({"kind": "error", "round": 1, "client": 1, "error": "record 7 is ill", "trace": "ill"})
    writer.take({"kind": "spans", "round": 1, "rows": [(1, "ill")]})
    writer.take({"kind": "evaluated", "round": 1, "epsilon_max": math.inf, "loss": np.float64(0.5)})
    writer.close()
    text = (tmp_path / FEED).read_text()
    diagnosed, failed, error, evaluated = FeedReader(tmp_path / FEED).since(0)
    assert error["client"] == 1
    assert diagnosed["private"] is True
    assert diagnosed["objective"] is None
    assert "private" not in evaluated
    assert evaluated["epsilon_max"] == math.inf
    assert failed["clients"] == [1]
    assert "ill" not in text
    assert "x0" not in text
    for line in text.splitlines():
        json.loads(line, parse_constant=lambda name: 1 / 0)


def test_a_torn_line_is_no_event_and_the_next_writer_goes_on(tmp_path):
    writer = FeedWriter(tmp_path)
    for t in range(3):
        writer.take(round_event(t))
    writer.close()
    with open(tmp_path / FEED, "a") as file:
        file.write('{"seq":3,"kind":"rou')
    reader = FeedReader(tmp_path / FEED)
    assert [event["seq"] for event in reader.fresh()] == [0, 1, 2]
    again = FeedWriter(tmp_path)
    again.take({"kind": "resumed", "round": 1})
    again.take(round_event(2))
    again.close()
    assert [(event["seq"], event["kind"]) for event in reader.fresh()] == [(3, "resumed"), (4, "round")]
    assert [event["seq"] for event in reader.since(2)] == [2, 3, 4]


def test_a_killed_writer_loses_no_event_that_it_told_of(tmp_path):
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom dualfed.actors.feed import FeedWriter\n"
        "writer = FeedWriter(Path(sys.argv[1]))\n"
        "for t in range(50): writer.take({'kind': 'round', 'round': t})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert [event["round"] for event in FeedReader(tmp_path / FEED).since(0)] == list(range(50))


def test_the_run_file_says_whether_its_driver_lives(tmp_path):
    file = RunFile(tmp_path, {"run": "a", "name": "n"})
    told = []
    hear = file.listening(told.append)
    assert state_of(read_run_file(tmp_path)) == "running"
    hear({"kind": "started", "round": 0, "processes": [1, 2]})
    assert read_run_file(tmp_path)["processes"] == {"hosts": [1, 2]}
    assert len(told) == 1
    content = read_run_file(tmp_path)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    driver = content["driver"]
    assert driver["pid"] == os.getpid()
    assert state_of({**content, "driver": {**driver, "pid": dead.pid}}) == "lost"
    began = psutil.Process().create_time() - 60
    assert state_of({**content, "driver": {**driver, "started": began}}) == "lost", "another process has its number now"
    assert state_of({**content, "driver": {**driver, "host": socket.gethostname() + "-b"}}) == "unknown"
    hear({"kind": "ended", "round": 4, "ending": "completed"})
    file.end("failed")
    assert read_run_file(tmp_path)["state"] == "completed"
    assert state_of({}) == "unknown"
