"""Going on with a run: only with its own journal, its own configuration and whole files; and what a full disk leaves."""

from __future__ import annotations

import errno
import shutil
import subprocess

import numpy as np
import pytest
from dualfed.actors import loop
from dualfed.errors import DualfedError, InvalidValue, RunBroken
from dualfed.privacy.journal import JournalDamaged
from dualfed.privacy.ledger import Ledger
from dualfed.runs import simulate as simulate_module
from dualfed.runs.folder import made
from dualfed.runs.recorder import FileRecorder
from dualfed.runs.simulate import resume, simulate

CONFIG = {
    "engine": "inline",
    "evaluate_every": 5,
    "checkpoint_every": 4,
    "data": {"name": "synthetic", "records": 200, "features": 4, "classes": 3},
    "partition": {"clients": 4},
    "method": {"name": "fedspd-dp", "rounds": 14, "local_steps": 2, "batch_size": 5},
}


class Killed(BaseException):
    """What a test raises in place of a kill."""


@pytest.fixture
def broken_off(tmp_path, monkeypatch):
    """``broken_off(name, t, **changes)``: the folder of a run that was cut off in round t, past its checkpoint."""

    def make(name="run", t=10, **changes):
        def cut(event):
            if event["kind"] == "round" and event["round"] == t:
                raise Killed

        with pytest.raises(Killed):
            simulate({**CONFIG, **changes}, out=tmp_path / name, listen=cut)
        return tmp_path / name

    return make


def releases(folder):
    ledger = Ledger.open_readonly(folder / "ledger.sqlite")
    try:
        return int(ledger.participations.sum())
    finally:
        ledger.close()


def test_rounds_after_the_checkpoint_are_charged_again_and_none_is_forgotten(broken_off):
    folder = broken_off()
    before = releases(folder)
    assert before >= 40
    result = resume(folder)
    assert result.ending in ("completed", "exhausted")
    assert releases(folder) > before
    assert result.epsilon <= 8.0


def test_a_missing_journal_is_not_replaced_by_an_empty_one(broken_off):
    folder = broken_off()
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()
    with pytest.raises(JournalDamaged, match="no such file"):
        resume(folder)


def test_another_runs_journal_is_refused(broken_off):
    folder, other = broken_off("a"), broken_off("b")
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()
    for path in other.glob("ledger.sqlite*"):
        shutil.copy(path, folder)
    with pytest.raises(InvalidValue, match="belongs to another run"):
        resume(folder)


def test_an_older_copy_of_the_journal_is_refused(broken_off, tmp_path, monkeypatch):
    copies = tmp_path / "copies"
    checkpoint = loop.RoundLoop._checkpoint

    def copying(self):
        if not copies.exists():
            shutil.copytree(self._settings.folder, copies)
        checkpoint(self)

    monkeypatch.setattr(loop.RoundLoop, "_checkpoint", copying)
    folder = broken_off()
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()
    for path in copies.glob("ledger.sqlite*"):
        shutil.copy(path, folder)
    with pytest.raises(InvalidValue, match="older than its checkpoint"):
        resume(folder)


@pytest.mark.parametrize(("before", "after"), [("rounds = 14", "rounds = 6"), ("epsilon = 8.0", "epsilon = 9.0")])
def test_a_changed_configuration_is_refused(broken_off, before, after):
    folder = broken_off()
    text = (folder / "config.toml").read_text()
    assert before in text
    (folder / "config.toml").write_text(text.replace(before, after))
    with pytest.raises(DualfedError, match=r"changed since the run began|other than|budgets"):
        resume(folder)


@pytest.mark.parametrize("name", ["config.toml", "environment.json", "checkpoint/*/state.json", "metrics.parquet"])
@pytest.mark.parametrize("damage", ["cut", "rubbish"])
def test_a_damaged_file_is_named_in_one_sentence(broken_off, name, damage):
    folder = broken_off()
    (path,) = folder.glob(name)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"\x00rubbish")
    with pytest.raises(DualfedError) as raised:
        resume(folder)
    assert "\n" not in str(raised.value)


def test_a_damaged_checkpoint_of_states_is_named(broken_off):
    folder = broken_off()
    for path in folder.glob("checkpoint/*/clients-*.safetensors"):
        path.write_bytes(b"\x00" * 5)
    with pytest.raises(DualfedError, match="damaged"):
        resume(folder)


def test_a_full_disk_ends_in_one_sentence_and_the_run_goes_on_later(tmp_path, monkeypatch):
    flush, calls = FileRecorder.flush, []

    def full(self):
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(self)

    monkeypatch.setattr(FileRecorder, "flush", full)
    with pytest.raises(RunBroken, match="make room, then go on with `dualfed resume"):
        simulate(CONFIG, out=tmp_path / "run")
    monkeypatch.undo()
    assert resume(tmp_path / "run").ending in ("completed", "exhausted")


def test_a_refused_run_leaves_nothing_and_takes_nothing(tmp_path, monkeypatch):
    wrong = {**CONFIG, "method": {**CONFIG["method"], "participants": 99}}
    mine = tmp_path / "mine"
    mine.mkdir()
    for out in (mine, tmp_path / "a" / "b" / "c"):
        with pytest.raises(InvalidValue):
            simulate(wrong, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list(mine.iterdir()) == []
    monkeypatch.chdir(mine)
    with pytest.raises(InvalidValue):
        simulate(wrong)
    assert list(mine.iterdir()) == []


def test_a_run_that_starts_beside_another_leaves_the_others_folder_alone(tmp_path):
    with made("first", tmp_path / "run") as folder:
        (folder / "ledger.sqlite").write_text("the first run's, before its config.toml")
        with pytest.raises(InvalidValue, match=r"another run uses this folder|holds files already"):
            simulate(CONFIG, out=folder)
        (folder / "ledger.sqlite").unlink()
        with pytest.raises(InvalidValue, match="another run uses this folder"):
            simulate(CONFIG, out=folder)
        assert (folder / ".lock").exists()


def test_an_interrupt_while_a_run_is_prepared_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate_module, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate(CONFIG, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert simulate(CONFIG, out=tmp_path / "run").ending == "completed"


def test_recorded_states_have_a_row_for_every_round_of_a_run_that_was_cut_off(broken_off, tmp_path):
    exact = {"record_states": True, "privacy": {"mode": "none"}, "method": {**CONFIG["method"], "batches": "full"}}
    folder = broken_off(**exact)
    gone_on = resume(folder)
    whole = simulate({**CONFIG, **exact}, out=tmp_path / "whole")
    for name, rows in whole.states.items():
        assert len(rows) == 14
        np.testing.assert_array_equal(gone_on.states[name], rows)


def test_recorded_private_states_are_their_owners_alone(tmp_path):
    simulate({**CONFIG, "record_states": True}, out=tmp_path / "run")
    assert (tmp_path / "run" / "states.npz").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("listed", [[0.7], ["a"], [True], [float("nan")], [0, 0], [4], [-1]])
def test_participants_must_be_clients(listed):
    with pytest.raises(InvalidValue, match="participation"):
        simulate(CONFIG, keep=False, participation=[listed] * 14)


@pytest.mark.slow
def test_a_disk_that_is_really_full_stops_the_run_before_the_next_release(tmp_path):
    """On a file system of its own: what was released is charged, and with more room the run goes on to its end."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting needs privileges that this process has not")
    try:
        long = {**CONFIG, "method": {**CONFIG["method"], "rounds": 1500}, "checkpoint_every": 50}
        long["privacy"] = {"mode": "noise-multiplier", "noise_multiplier": 3.0}
        released = []
        with pytest.raises(DualfedError, match=r"free the disk|make room") as said:
            simulate(long, out=disk / "run", listen=lambda event: released.append(event.get("released", 0)))
        assert "\n" not in str(said.value)
        ledger = Ledger.open_readonly(disk / "run" / "ledger.sqlite")
        charged = ledger.participations.sum()
        ledger.close()
        assert 0 < sum(released) <= charged
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert resume(disk / "run").ending == "completed"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
