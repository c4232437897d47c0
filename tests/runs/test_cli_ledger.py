"""What ``dualfed ledger`` prints and writes."""

from __future__ import annotations

import io
import json
import sys

import pandas as pd
import pytest
from dualfed import Ledger, simulate
from dualfed.actors.ledger_desk import LedgerDesk, LedgerGone
from dualfed.runs import cli

CONFIG = {
    "name": "told",
    "engine": "inline",
    "seed": 2,
    "data": {"name": "synthetic", "records": 240, "features": 5, "classes": 3},
    "partition": {"clients": 4, "min_size": 30},
    "method": {"name": "fedspd-dp", "rounds": 6, "participants": 2, "local_steps": 2, "batch_size": 5},
    "privacy": {"mode": "noise-multiplier", "noise_multiplier": 2.0, "budget": 30.0},
}
CLAIMED = {**CONFIG, "method": {**CONFIG["method"], "state": "paper"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    simulate(CONFIG, out=root / "proven")
    simulate(CLAIMED, out=root / "claimed")
    return root


@pytest.fixture
def told(runs, monkeypatch, capfd):
    """``told("show", "proven")``: the exit code, what was printed, and the errors."""
    monkeypatch.chdir(runs)
    monkeypatch.setenv("COLUMNS", "160")

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["dualfed", "ledger", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return command


EVERYTHING = [
    ("show",),
    ("show", "--client", "1"),
    ("watch", "--once"),
    ("watch",),
    ("history",),
    ("what-if",),
    ("what-if", "--rounds", "9"),
    ("what-if", "--rounds", "9", "--budget", "25"),
    ("export",),
    ("export", "--format", "json"),
]


@pytest.mark.parametrize("asked", EVERYTHING, ids=" ".join)
def test_every_answer_states_its_round(told, asked):
    code, out, err = told(asked[0], "proven", *asked[1:])
    assert code == 0, err
    if asked[0] == "export":
        assert "round" in out
    else:
        assert "as of the charges for round 6" in out
    assert "claimed" not in out


@pytest.mark.parametrize("asked", EVERYTHING, ids=" ".join)
def test_a_claimed_loss_is_never_printed_bare(told, runs, asked):
    code, out, err = told(asked[0], "claimed", *asked[1:])
    assert code == 0, err
    assert "guaranteed" not in out
    with Ledger.connect(runs / "claimed") as ledger:
        numbers = {f"{epsilon:.1f}" for epsilon in ledger.table().epsilon}
    rows = [line for line in out.splitlines() if any(number in line for number in numbers)]
    if asked[0] in ("show", "watch"):
        assert rows
        assert all("claimed" in row for row in rows)
    assert "claimed" in out


class Ending:
    """The ledger of a run that goes on, until it was asked so often; then it is gone."""

    def __init__(self, folder, questions, run):
        self._desk, self._left, self._run = LedgerDesk(folder), questions, run

    def ask(self, question, **arguments):
        self._left -= 1
        if self._left < 0:
            raise LedgerGone("the ledger is gone: its run is over")
        answer = self._desk.ask(question, **arguments)
        return {**answer, "state": "running", **self._run} if question == "about" else answer

    def close(self):
        self._desk.close()


@pytest.mark.parametrize(("run", "state"), [({}, "completed"), ({"run": "of another machine"}, "over")])
@pytest.mark.parametrize("questions", [3, 5, 6, 7, 8, 9])
def test_watching_a_run_whose_ledger_ends_says_how_it_ended_if_that_is_known(
    told, runs, monkeypatch, questions, run, state
):
    ending = Ledger(Ending(runs / "proven", questions, run))
    monkeypatch.setattr("dualfed.runs.ledger_commands.Ledger.connect", lambda *_: ending)
    code, out, err = told("watch", "proven", "--interval", "0.05")
    assert code == 0, err
    assert f"told: {state} ·" in out
    assert "lost" not in out
    assert "as of the charges for round 6" in out


def test_exports_are_the_table(told, runs, tmp_path):
    with Ledger.connect(runs / "proven") as ledger:
        frame = ledger.frame()
    csv = pd.read_csv(io.StringIO(told("export", "proven")[1]))
    content = json.loads(told("export", "proven", "--format", "json")[1])
    assert told("export", "proven", "--format", "parquet", "--out", str(tmp_path / "a.parquet"))[0] == 0
    parquet = pd.read_parquet(tmp_path / "a.parquet")
    for written in (csv, parquet, pd.DataFrame(content["accounts"])):
        assert written["epsilon"].tolist() == pytest.approx(frame["epsilon"].tolist(), rel=1e-15)
        assert (written["round"] == 6).all()
        assert (written["delta"] == frame.attrs["delta"]).all()
    charges = pd.read_csv(io.StringIO(told("export", "proven", "--history")[1]))
    assert len(charges) == 12
    one = pd.read_csv(io.StringIO(told("export", "proven", "--client", "2")[1]))
    assert one["client"].tolist() == [2]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (("show", "proven", "--client", "4"), "--client"),
        (("show", "proven", "--delta", "1"), "--delta"),
        (("show", "nowhere"), "RUN"),
        (("watch", "proven", "--interval", "0"), "--interval"),
        (("history", "proven", "--last", "-1"), "--last"),
        (("what-if", "proven", "--rounds", "1", "--noise", "1", "--budget", "1"), "budget"),
        (("what-if", "proven", "--delta", "1e-9"), "delta"),
        (("export", "proven", "--format", "parquet"), "--out"),
        (("export", "proven", "--out", "nowhere/at/all"), "--out"),
        (("show", "proven", "--address", "127.0.0.1:1"), "--address"),
    ],
)
def test_what_is_wrong_is_one_sentence(told, asked, field):
    code, _, err = told(*asked)
    assert code == 2
    assert err.startswith(f"error: {field}")
    assert len(err.splitlines()) == 1
