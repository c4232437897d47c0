"""Runs of a study: each once, read again when finished, continued when interrupted, whatever the number of processes."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from dualfed import simulate
from dualfed.errors import InvalidValue
from dualfed.runs.study import StudyStopped, Wanted, carry_out
from dualfed.runs.study.measures import MEASURES
from dualfed.runs.study.workers import Task, carried_out


def _wanted(tables, seeds=(0, 1), **changes):
    return [Wanted({"seed": seed}, {**tables, **changes, "seed": seed}) for seed in seeds]


def test_a_study_has_a_row_a_run_with_the_measures_of_the_run(tmp_path, tables):
    study = carry_out(_wanted(tables), tmp_path)
    assert list(study.rows.columns) == ["seed", *MEASURES, "folder"]
    alone = simulate({**tables, "engine": "inline", "seed": 1}, keep=False)
    row = study.rows[study.rows["seed"] == 1].iloc[0]
    assert row["accuracy"] == alone.accuracy
    assert row["epsilon"] == alone.epsilon
    assert row["epsilon_is"] == "guaranteed"
    assert row["objective"] == alone.diagnostics["objective"].iloc[-1]
    assert row["scalars_sent"] == (alone.summary["bytes_up"] + alone.summary["bytes_down"]) // 8
    assert study.metrics["seed"].value_counts().to_dict() == {0: 3, 1: 3}  # rounds 0, 2, 4


def test_finished_runs_are_read_and_not_run_again(tmp_path, tables):
    first = carry_out(_wanted(tables), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("summary.json")}
    lines: list[str] = []

    def nobody(tasks: list[Task], _jobs: int):
        assert not tasks
        return (reply for reply in ())

    again = carry_out(_wanted(tables), tmp_path, say=lines.append, carry=nobody)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert lines == [f"2 of 2 runs are finished in {tmp_path} already"]
    pd.testing.assert_frame_equal(first.rows, again.rows)


def test_the_same_run_under_two_labels_takes_place_once(tmp_path, tables):
    two = [Wanted({"figure": name}, {**tables, "name": "shared"}) for name in ("2", "3")]
    study = carry_out(two, tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert study.rows["figure"].tolist() == ["2", "3"]


def test_the_same_run_under_two_names_is_found_under_both(tmp_path, tables):
    two = [Wanted({"method": name}, {**tables, "name": name}) for name in ("one", "two")]
    study = carry_out(two, tmp_path)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert study.rows["method"].tolist() == ["one", "two"]


def test_a_study_does_not_write_into_the_folder_of_a_run(tmp_path, tables):
    simulate({**tables, "engine": "inline"}, out=tmp_path / "run")
    with pytest.raises(InvalidValue, match=r"--out = .*: holds a run"):
        carry_out(_wanted(tables), tmp_path / "run")


def test_worker_processes_give_the_same_numbers(tmp_path, tables):
    inline = carry_out(_wanted(tables), tmp_path / "one")
    apart = carry_out(_wanted(tables), tmp_path / "two", jobs=2)
    columns = [name for name in MEASURES if name != "seconds"]
    pd.testing.assert_frame_equal(inline.rows[columns], apart.rows[columns])


def test_an_interrupted_run_goes_on_from_its_checkpoint(tmp_path, tables):
    tables = {**tables, "checkpoint_every": 2, "evaluate_every": 1}
    whole = carry_out(_wanted(tables, [0]), tmp_path / "whole").rows.iloc[0]
    (entry,) = _wanted(tables, [0])
    folder = tmp_path / "cut" / "runs" / entry.folder_name
    stop_after = 2

    class Stop(Exception):
        pass

    def listen(event):
        if event["kind"] == "round" and event["round"] > stop_after:
            raise Stop

    with pytest.raises(Stop):
        simulate({**tables, "engine": "inline"}, out=folder, listen=listen)
    assert not (folder / "summary.json").exists()
    study = carry_out([entry], tmp_path / "cut")
    row = study.rows.iloc[0]
    assert row["rounds_done"] == 4
    events = pd.read_parquet(folder / "events.parquet")
    assert events.loc[events["kind"] == "resumed", "round"].tolist() == [2]
    assert row["epsilon"] >= whole["epsilon"]  # the round that was lost stays charged


def test_what_cannot_be_continued_is_begun_anew(tmp_path, tables):
    (entry,) = _wanted(tables, [0])
    first = carry_out([entry], tmp_path).rows
    folder = tmp_path / "runs" / entry.folder_name
    (folder / "summary.json").unlink()
    (folder / "ledger.sqlite").write_bytes(b"nothing")
    again = carry_out([entry], tmp_path).rows
    assert again["accuracy"].tolist() == first["accuracy"].tolist()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "ledger.sqlite").write_bytes(b"killed before it began")
    assert carry_out([entry], tmp_path).rows["accuracy"].tolist() == first["accuracy"].tolist()


def test_a_refusal_ends_the_study_or_is_noted(tmp_path, tables):
    bad = {**tables, "method": {**tables["method"], "batch_size": 10_000}}
    wanted = [Wanted({"which": "bad"}, bad), Wanted({"which": "good"}, tables)]
    with pytest.raises(InvalidValue, match="batch_size"):
        carry_out(wanted, tmp_path)
    study = carry_out(wanted, tmp_path, keep_refusals=True)
    assert study.rows["which"].tolist() == ["good"]
    assert not study.complete
    (sentence,) = study.faults.values()
    assert sentence.startswith("refused: method.batch_size = 10000")


def test_a_worker_that_dies_costs_its_run_alone(tmp_path, tables):
    (good,) = _wanted(tables, [0])
    plain = good.config.model_dump(mode="json", exclude_none=True)
    own = tmp_path / "dies.py"
    own.write_text("import os\nos._exit(7)\n")
    tasks = [
        Task({**plain, "method": {"name": f"{own}:Method"}}, tmp_path / "a"),
        Task(plain, tmp_path / "b"),
        Task(plain, tmp_path / "c"),
    ]
    replies = dict(carried_out(tasks, 2))
    assert replies[0] == {"failed": "its process ended before the run did (exit code 7)"}
    assert replies[1] == replies[2] == {"ending": "completed"}


def test_a_stop_is_said_and_nothing_is_lost(tmp_path, tables):
    def stopped(tasks, _jobs):
        yield 0, {"ending": "stopped"}

    with pytest.raises(StudyStopped, match="stopped after 0 of 2 runs"):
        carry_out(_wanted(tables), tmp_path, carry=stopped)


def test_the_digest_is_of_what_numbers_depend_on(tmp_path, tables):
    def digest(**changes):
        return Wanted({}, {**tables, **changes}).digest

    assert digest() == digest(name="other") == digest(engine="ray") == digest(tune={"method.rho": [1, 2]})
    assert len({digest(), digest(seed=1), digest(evaluate_every=1), digest(dtype="float32")}) == 4
    own = tmp_path / "own.py"
    own.write_text("one = 1\n")
    method = {"name": f"{own}:Mine"}
    before = digest(method=method)
    own.write_text("one = 2\n")
    assert digest(method=method) != before


def test_labels_may_not_hide_a_measure(tables):
    with pytest.raises(ValueError, match="epsilon"):
        Wanted({"epsilon": 1.0}, tables)


def test_the_folder_that_cannot_be_made_is_named(tmp_path, tables):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match="cannot be made"):
        carry_out(_wanted(tables), tmp_path / "file" / "below")


def test_summary_json_is_plain(tmp_path, tables):
    study = carry_out(_wanted(tables, [0]), tmp_path)
    folder = study.run_folder(study.wanted[0])
    assert json.loads((folder / "summary.json").read_text())["ending"] == "completed"
    assert np.isfinite(study.diagnostics["objective"]).all()
