"""What is common to all reproductions: their files, their paragraph, going on, and what is refused."""

from __future__ import annotations

import pandas as pd
import pytest
from dualfed.errors import InvalidValue, RunBroken
from dualfed.runs.cli import app
from dualfed.runs.reproductions import Claim, Conclusion, Reproduction, curves, panels, reproduce, reproductions
from dualfed.runs.reproductions.other_data import with_data
from dualfed.runs.study import Wanted
from typer.testing import CliRunner

_BASE = {
    "name": "toy",
    "evaluate_every": 1,
    "data": {"name": "synthetic", "records": 200, "features": 4},
    "partition": {"clients": 3},
    "problem": {"kind": "logistic"},
    "method": {"name": "fedspd-dp", "rounds": 3, "local_steps": 1, "batch_size": 10},
}


def _plan(scale, seeds):
    return [
        Wanted(
            {"z": z, "seed": seed},
            {**_BASE, "seed": seed, "privacy": {"mode": "noise-multiplier", "noise_multiplier": z}},
        )
        for z in ((1.0, 4.0) if scale == "small" else (1.0, 2.0, 4.0))
        for seed in seeds
    ]


def _conclude(study):
    table = study.rows.groupby("z")["epsilon"].max().reset_index()
    figure, (axes,) = panels(1, "ε by noise")
    curves(axes, study.metrics, by="z", y="epsilon_max", label="z = {}")
    falls = bool(table["epsilon"].is_monotonic_decreasing)
    return Conclusion(
        table, figure, [Claim("ε falls with z", falls, f"to {table['epsilon'].iloc[-1]:.2f}")], ["Toy data."]
    )


TOY = Reproduction("toy", "ε by noise", "nowhere", _plan, _conclude)


def test_it_leaves_table_figure_paragraph_and_runs(tmp_path):
    found = reproduce(TOY, tmp_path / "toy", seeds=2)
    assert {path.name for path in found.files} >= {"toy.csv", "toy.md", "toy-runs.csv", "toy.txt", "toy.png", "toy.svg"}
    assert all(path.stat().st_size > 0 for path in found.files)
    assert pd.read_csv(tmp_path / "toy" / "toy.csv")["z"].tolist() == [1.0, 4.0]
    assert len(pd.read_csv(tmp_path / "toy" / "toy-runs.csv")) == 4
    text = (tmp_path / "toy" / "toy.txt").read_text()
    assert text.startswith("That ε falls with z holds here: to ")
    assert text.endswith("Toy data.\n")
    lines = []
    reproduce(TOY, tmp_path / "toy", seeds=2, say=lines.append)
    assert lines == [f"4 of 4 runs are finished in {tmp_path / 'toy'} already"]


def test_settings_reach_every_run(tmp_path):
    found = reproduce(TOY, tmp_path, settings=["method.rounds=2", "partition.clients=2"])
    assert set(found.study.rows["rounds_done"]) == {2}
    assert {result.summary["clients"] for _, result in found.study.results()} == {2}


def _cells(*partitions):
    held_out = {**_BASE["data"], "validation": 0.2}
    return [
        Wanted({"cell": i}, {**_BASE, "data": held_out, "partition": {"clients": 3, **each}})
        for i, each in enumerate(partitions)
    ]


def test_somebody_elses_data_keep_what_a_plan_varies(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        '[data]\nname = "synthetic"\nrecords = 90\nfeatures = 7\n[partition]\nscheme = "quantity"\nclients = 5\n'
        '[problem]\nkind = "softmax"\n[method]\nname = "fedspd-dp"\n'
    )
    dirichlet = {"scheme": "dirichlet", "alpha": 1.0}
    for planned, expected in (
        (_cells({}, {}), [("quantity", 5), ("quantity", 5)]),
        (_cells({}, dirichlet), [("iid", 5), ("dirichlet", 5)]),
        (_cells({}, {"clients": 4}), [("iid", 3), ("iid", 4)]),
    ):
        found = [entry.config for entry in with_data(planned, path)]
        assert [(each.partition.scheme, each.partition.clients) for each in found] == expected
        assert {(each.data.features, each.data.validation, each.data.seed) for each in found} == {(7, 0.2, 0)}
        assert {(each.problem.kind, each.method["rounds"]) for each in found} == {("softmax", 3)}


def test_full_is_another_plan(tmp_path):
    assert reproduce(TOY, tmp_path, scale="full", seeds=1).study.rows["z"].tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("holds", "words"), [(True, "holds here"), (False, "does not hold here"), (None, "is not decided by these runs")]
)
def test_a_claim_says_its_verdict(holds, words):
    assert Claim("a rises with b", holds, "0.1").sentence() == f"That a rises with b {words}: 0.1."


def test_what_is_refused(tmp_path):
    for arguments, words in (
        ({"scale": "huge"}, "--scale"),
        ({"seeds": 0}, "--seeds"),
        ({"settings": ["method.batch_size=9999"]}, "batch_size"),
    ):
        with pytest.raises(InvalidValue, match=words):
            reproduce(TOY, tmp_path / "out", **arguments)
    with pytest.raises(InvalidValue, match="spade-rate"):
        reproduce("nothing", tmp_path)


def test_a_run_that_fails_is_named(tmp_path, monkeypatch):
    from dualfed.runs.study import work

    monkeypatch.setattr(work, "_brought_about", lambda *_: 1 / 0)
    with pytest.raises(RunBroken, match="2 of 2 runs of toy failed: division by zero"):
        reproduce(TOY, tmp_path)


def test_the_command_lists_them_all():
    shown = CliRunner().invoke(app, ["reproduce", "--list"])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()] == list(reproductions())
    assert "spade-rate" in shown.output
    assert isinstance(CliRunner().invoke(app, ["reproduce"]).exception, InvalidValue)
