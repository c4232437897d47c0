"""The ledger of a run asked from outside: during the run, after it, and after its process was killed."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from dualfed import Ledger, resume, simulate
from dualfed.actors.ledger_desk import LedgerGone
from dualfed.errors import InvalidValue
from dualfed.privacy.ledger import Ledger as Journalled

COMMAND = [sys.executable, "-m", "dualfed"]
CONFIG = {
    "name": "asked",
    "engine": "inline",
    "seed": 2,
    "evaluate_every": 5,
    "checkpoint_every": 20,
    "data": {"name": "synthetic", "records": 240, "features": 5, "classes": 3},
    "partition": {"clients": 4, "min_size": 30},
    "method": {"name": "fedspd-dp", "rounds": 12, "participants": 2, "local_steps": 2, "batch_size": 5},
    "privacy": {"mode": "noise-multiplier", "noise_multiplier": 2.0, "budget": 30.0},
}
LONG = {**CONFIG, "method": {**CONFIG["method"], "rounds": 4000}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    simulate(CONFIG, out=folder)
    return folder


@pytest.fixture
def running(tmp_path):
    """A long inline run in another process, at round 10 or later; killed by its own process id."""
    import tomlkit

    (tmp_path / "run.toml").write_text(tomlkit.dumps(LONG))
    folder = tmp_path / "out"
    process = subprocess.Popen(
        [*COMMAND, "run", str(tmp_path / "run.toml"), "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not (folder / "events.jsonl").exists() or '"round":10,' not in (folder / "events.jsonl").read_text():
            assert process.poll() is None, "the run ended early"
            assert time.monotonic() < deadline, "the run did not begin"
            time.sleep(0.05)
        yield process, folder
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def dualfed(*arguments):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def exactly(folder):
    """The losses by a ledger opened anew."""
    ledger = Journalled.open_readonly(folder / "ledger.sqlite")
    try:
        return [loss.epsilon for loss in ledger.epsilon()]
    finally:
        ledger.close()


def test_answers_about_a_finished_run(finished):
    with Ledger.connect(finished) as ledger:
        losses = exactly(finished)
        assert ledger.table().epsilon.tolist() == losses
        assert [float(ledger.epsilon(client)) for client in range(4)] == losses
        summary = ledger.epsilon()
        assert (summary.epsilon, summary.round, summary.client) == (max(losses), 12, int(np.argmax(losses)))
        assert summary.budget == 30.0
        assert (ledger.state, ledger.round) == ("completed", 12)
        about = ledger.about()
        assert about["name"] == "asked"
        assert about["run"] == json.loads((finished / "environment.json").read_text())["run"]
        assert ledger.epsilon(1, every=True).alternatives.keys() > ledger.epsilon(1).alternatives.keys()
        assert ledger.epsilon(1, 1e-8).epsilon > losses[1]
        assert math.isnan(ledger.epsilon(1, 1e-8).budget)
        assert len(ledger.history()) == 24
        frame = ledger.frame()
        assert frame.attrs == {"round": 12, "transaction": about["transaction"], "delta": about["delta"]}
        assert frame["participations"].sum() == 24
        left = ledger.remaining(0)
        assert left.epsilon == 30.0 - losses[0]
        ahead = ledger.what_if(client=0)
        assert left.rounds == ahead.rounds[0] > 0
        assert ledger.what_if(rounds=int(left.rounds) + 1, client=0).epsilon[0] > 30.0 >= ahead.epsilon[0]


def test_events_and_charges_are_told_to_subscribers(finished):
    with Ledger.connect(finished) as ledger:
        told = list(ledger.subscribe(0))
        assert [event["round"] for event in told if event["kind"] == "round"] == list(range(1, 13))
        assert [event["seq"] for event in told] == sorted({event["seq"] for event in told})
        assert not any(event.get("private") for event in told)
        assert told[-1]["kind"] == "ended"
        both = list(ledger.subscribe(0, charges=True, private=True))
        charged = [event for event in both if event["kind"] == "charged"]
        assert sum(len(event["clients"]) for event in charged) == 24
        first_round = next(k for k, event in enumerate(both) if event["kind"] == "round")
        assert both.index(charged[0]) < first_round, "a round is charged before it is done"
        assert any(event["kind"] == "diagnosed" and event["private"] for event in both)
        assert list(ledger.subscribe()) == []


def test_coroutines_give_the_same(finished):
    async def ask():
        with Ledger.connect(finished) as ledger:
            answers = await asyncio.gather(*(ledger.aio.epsilon(client % 4) for client in range(40)))
            assert [answer.epsilon for answer in answers] == 10 * exactly(finished)
            assert (await ledger.aio.summary()) == ledger.summary()
            assert (await ledger.aio.epsilon()).round == 12
            assert (await ledger.aio.about())["state"] == "completed"
            assert len(await ledger.aio.history(1)) == len(ledger.history(1))
            assert (await ledger.aio.what_if(rounds=3)).rounds.tolist() == [3.0] * 4
            assert (await ledger.aio.table()).round == (await ledger.aio.remaining(2)).round
            kinds = [event["kind"] async for event in ledger.aio.subscribe(0)]
            assert kinds == [event["kind"] for event in ledger.events()]

    asyncio.run(ask())


def test_questions_change_nothing(finished):
    def content():
        # SQLite's shared memory beside the journal changes with every reader; it holds no data.
        return {
            path: path.read_bytes() for path in finished.rglob("*") if path.is_file() and "sqlite-" not in path.name
        }

    before = content()
    with Ledger.connect(finished) as ledger:
        ledger.what_if(rounds=5, budget=50.0)
        ledger.history()
        ledger.remaining(3)
        list(ledger.subscribe(0))
        assert ledger.table().epsilon.tolist() == exactly(finished)
    assert content() == before


def test_what_cannot_be_asked(finished, tmp_path, monkeypatch):
    with Ledger.connect(finished) as ledger:
        for wrong in (
            lambda: ledger.epsilon(4),
            lambda: ledger.epsilon(2.5),
            lambda: ledger.epsilon("2"),
            lambda: ledger.epsilon(0, 2.0),
            lambda: ledger.what_if(rounds=-1),
            lambda: ledger.what_if(rounds=2.5),
        ):
            with pytest.raises(InvalidValue):
                wrong()
    with pytest.raises(LedgerGone, match="was closed here; connect again"):
        ledger.table()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match="RUN"):
        Ledger.connect("nothing")
    with pytest.raises(InvalidValue, match="load"):
        Ledger.connect(finished, load=0.0)
    for address in ("127.0.0.1:1", "127.0.0.1:first", "127.0.0.1:99999", "local", "", "ray://127.0.0.1", "a..b:6379"):
        with pytest.raises(InvalidValue, match="--address"):
            Ledger.connect(finished, address)


def test_a_run_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = {**CONFIG, "method": {**CONFIG["method"], "rounds": 1}}
    for _ in range(2):
        simulate(short)
    for name in ("asked", "asked-2", Path("dualfed-out") / "asked-2"):
        with Ledger.connect(name) as ledger:
            assert ledger.about()["folder"].endswith("asked-2")


def test_a_run_that_goes_on_is_followed_and_a_killed_one_is_read(running):
    process, folder = running
    with Ledger.connect(folder, load=1.0) as ledger:
        assert ledger.state == "running"
        assert ledger.about()["driver"]["pid"] == process.pid
        first = ledger.summary()
        heard = []
        for event in ledger.subscribe(charges=True):
            heard.append(event["kind"])
            if heard.count("round") == 20:
                break
        assert "charged" in heard
        later = ledger.summary()
        assert later.round > first.round >= 10
        assert later.epsilon >= first.epsilon > 0

        seen = dualfed("ledger", "watch", folder, "--once")
        assert seen.returncode == 0, seen.stderr
        assert "asked: running" in seen.stdout
        assert "as of the charges for round" in seen.stdout
        asked = dualfed("ledger", "what-if", folder, "--rounds", 50)
        assert asked.returncode == 0, asked.stderr
        assert "50 more rounds at the present noise" in asked.stdout

        process.kill()
        process.wait()
        rest = list(ledger.subscribe(0))
        assert rest[-1]["kind"] != "ended"
        assert ledger.state == "lost"
        done = max(event["round"] for event in rest if event["kind"] == "round")
        assert ledger.table().epsilon.tolist() == exactly(folder)
        assert ledger.round in (done, done + 1, done + 2), "rounds are reserved one ahead of the work"
        assert (ledger.table().participations.sum()) >= 2 * done

        watched = dualfed("ledger", "watch", folder)
        assert watched.returncode == 0
        assert "asked: lost" in watched.stdout


def test_a_resumed_run_goes_on_in_the_same_feed(tmp_path):
    stopped = tmp_path / "run"
    with pytest.raises(RuntimeError, match="enough"):
        simulate({**CONFIG, "checkpoint_every": 4}, out=stopped, listen=_stop_after(6))
    with Ledger.connect(stopped, load=1.0) as ledger:
        assert ledger.state == "failed"
        before = ledger.table()
        resume(stopped)
        after = ledger.table()
        assert (after.epsilon >= before.epsilon).all()
        assert ledger.state == "completed"
        events = ledger.events()
        everything = ledger.events(private=True)
        assert [event["seq"] for event in everything] == list(range(len(everything)))
        assert [event["round"] for event in events if event["kind"] == "resumed"] == [4]
        assert events[-1]["kind"] == "ended"


def _stop_after(t):
    def listen(event):
        if event["kind"] == "round" and event["round"] == t:
            raise RuntimeError("enough")

    return listen
