"""``compare``: the same for all, equal effort, no test record in a choice, ε with its word everywhere, going on."""

from __future__ import annotations

import copy
import re

import numpy as np
import pandas as pd
import pytest
from dualfed import compare, simulate
from dualfed.errors import InvalidValue
from dualfed.runs.cli import app
from typer.testing import CliRunner


def _changed(tables, key, value):
    changed = copy.deepcopy(tables)
    *parents, leaf = key.split(".")
    table = changed
    for parent in parents:
        table = table.setdefault(parent, {})
    table[leaf] = value
    return changed


def test_the_numbers_are_those_of_the_runs_and_of_their_means(tmp_path, one, two):
    found = compare([one, two], seeds=2, out=tmp_path)
    assert found.runs[["method", "seed"]].to_numpy().tolist() == [["one", 0], ["two", 0], ["one", 1], ["two", 1]]
    alone = simulate({**one, "engine": "inline", "seed": 1, "data": {**one["data"], "seed": 0}}, keep=False)
    row = found.runs[(found.runs["method"] == "one") & (found.runs["seed"] == 1)].iloc[0]
    assert row["accuracy"] == alone.accuracy
    means = found.methods.set_index("method")
    each = found.runs[found.runs["method"] == "two"]["accuracy"]
    assert means.loc["two", "accuracy"] == pytest.approx(each.mean())
    assert means.loc["two", "accuracy_deviation"] == pytest.approx(each.std(ddof=1))
    assert means["epsilon_is"].to_dict() == {"one": "guaranteed", "two": "claimed"}
    assert len(found.curves) == 4 * 3
    assert not len(found.tuning)


def test_every_output_has_its_word_and_says_what_choosing_cost(tmp_path, one, two):
    found = compare([one, two], seeds=2, tune=True, out=tmp_path)
    names = {path.name for path in found.files}
    assert names == {
        *(f"compare{end}" for end in (".csv", "-methods.csv", "-differences.csv", "-tuning.csv", ".md", ".tex")),
        *(f"compare{end}" for end in (".png", ".svg")),
        "report.html",
    }
    for name in ("compare.md", "report.html"):
        text = (tmp_path / name).read_text()
        assert "uning used the private data; its cost is not in ε" in text
        assert "(claimed)" in text
        assert "(guaranteed)" in text
    tex = (tmp_path / "compare.tex").read_text()
    assert r"its cost is not in $\varepsilon$" in tex
    assert "(claimed)" in tex
    for name in ("compare.csv", "compare-methods.csv"):
        frame = pd.read_csv(tmp_path / name)
        assert set(frame["epsilon_is"]) == {"guaranteed", "claimed"}


def test_tuning_takes_the_best_candidate_by_validation_and_the_runs_use_it(tmp_path, one, two):
    found = compare([one, two], seeds=1, tune=True, out=tmp_path)
    assert found.tuning.groupby("method").size().to_dict() == {"one": 2, "two": 2}
    assert found.tuning.groupby("method")["chosen"].sum().to_dict() == {"one": 1, "two": 1}
    part = found.tuning[found.tuning["method"] == "one"]
    chosen = part[part["chosen"]].iloc[0]
    assert chosen["validation_accuracy"] == part["validation_accuracy"].max()
    rho = float(chosen["parameters"].removeprefix("rho = "))
    (result,) = (result for labels, result in found.study.results() if labels["method"] == "one")
    assert result.config["method"]["rho"] == rho
    assert result.config["data"].get("validation") is None
    held = compare([one, two], seeds=1, tune=True, out=tmp_path)
    pd.testing.assert_frame_equal(held.methods, found.methods)


def test_all_seeds_have_the_same_test_records(tmp_path, one, two):
    found = compare([one, two], seeds=2, out=tmp_path)
    assert {result.config["data"]["seed"] for _, result in found.study.results()} == {0}
    first = {labels["seed"]: result.metrics["loss"].iloc[0] for labels, result in found.study.results()}
    assert first[0] == first[1]  # the untrained model on the same records


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("data.records", 250, "data.records"),
        ("partition.clients", 4, "partition.clients"),
        ("problem.record_norm", 3.0, "problem.record_norm"),
        ("privacy.noise_multiplier", 3.0, "privacy.noise_multiplier"),
        ("seed", 5, "seed"),
        ("dtype", "float32", "dtype"),
    ],
)
def test_what_differs_beside_the_method_is_refused_by_name(tmp_path, one, two, key, value, field):
    with pytest.raises(InvalidValue, match=re.escape(field) + r" \(of two\).*in one; give all the same"):
        compare([one, _changed(two, key, value)], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_reference_without_noise_needs_no_budget(tmp_path, one, two):
    plain = _changed(two, "privacy", {"mode": "none"})
    found = compare([one, plain], seeds=1, out=tmp_path)
    assert any("Without noise, as a reference: two" in note for note in found.notes)
    assert np.isinf(found.methods.set_index("method").loc["two", "epsilon"])
    assert "∞ (no noise)" in (tmp_path / "compare.md").read_text()


def test_grids_must_be_stated_and_of_equal_size(tmp_path, one, two):
    for other, words in (
        (_changed(two, "tune", {}), r"tune \(of two\).*state its candidates"),
        (_changed(two, "tune", {"method.gamma": [1.0, 2.0, 3.0]}), "3 candidates.*one has 2 candidates"),
        (_changed(two, "tune", {"partition.alpha": [1.0, 2.0]}), "only a method's own parameters"),
        (_changed(two, "tune", {"method.gamma": [1.0, 1.0]}), "list of different values"),
        (_changed(two, "tune", {"method.gamma": 1.0}), "list of different values"),
    ):
        with pytest.raises(InvalidValue, match=words):
            compare([one, other], tune=True, out=tmp_path)
    with pytest.raises(InvalidValue, match="two or more"):
        compare([one], out=tmp_path)


def test_a_candidate_that_cannot_run_is_listed_and_not_chosen(tmp_path, one, two):
    bad = _changed(one, "tune", {"method.batch_size": [10, 5000]})
    found = compare([bad, two], seeds=1, tune=True, out=tmp_path)
    assert len(found.tuning[found.tuning["method"] == "one"]) == 1
    assert any("batch_size = 5000: refused" in fault for fault in found.faults)
    assert "refused" in (tmp_path / "report.html").read_text()


def test_the_command_and_its_second_time(tmp_path, one, two):
    import tomlkit

    paths = []
    for tables in (one, two):
        path = tmp_path / f"{tables['name']}.toml"
        path.write_text(tomlkit.dumps(tables))
        paths.append(str(path))
    arguments = ["compare", *paths, "--seeds", "2", "--jobs", "1", "--out", str(tmp_path / "out")]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    assert "4 of 4 runs are finished" in second.output
    assert "one less two" in first.output
    assert "claimed" in first.output
