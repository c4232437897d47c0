"""The whole suite for every method, and methods that do what it is there to find."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs import conformance_runs as runs
from dualfed.runs.cli import app
from dualfed.runs.conformance import COLUMNS, PASSES, REASONS, all_methods, conformance_matrix, sentences, shown
from dualfed.runs.watched_run import watched
from typer.testing import CliRunner

_DOC = Path(__file__).parents[2] / "docs" / "conformance.md"

_WRONG = '''
from dataclasses import dataclass
from typing import ClassVar

import torch

from dualfed.algorithms.dsgd import DSGD
from dualfed.algorithms.fedspd_dp import FedSPDDP

SEEN = []


@dataclass(frozen=True)
class Remembers(FedSPDDP):
    """Keeps in its process what belongs into its rows."""

    name: ClassVar[str] = "remembers"

    def local_round(self, state, x0, cohort, gate, t):
        SEEN.append(t)
        new = super().local_round(state, x0, cohort, gate, t)
        return {**new, "x": new["x"] + 1e-3 * len(SEEN)}


@dataclass(frozen=True)
class ByPlace(FedSPDDP):
    """Depends on who is computed with it."""

    name: ClassVar[str] = "by-place"

    def local_round(self, state, x0, cohort, gate, t):
        new = super().local_round(state, x0, cohort, gate, t)
        return {**new, "x": new["x"] * (1 + 1e-3 * len(cohort))}


@dataclass(frozen=True)
class Never(FedSPDDP):
    """Takes its grants and releases nothing."""

    name: ClassVar[str] = "never"

    def local_round(self, state, x0, cohort, gate, t):
        return {name: rows.clone() for name, rows in state.items()}


@dataclass(frozen=True)
class Draws(FedSPDDP):
    """Draws under its grant, whatever is set."""

    name: ClassVar[str] = "draws"

    def local_round(self, state, x0, cohort, gate, t):
        new = super().local_round(state, x0, cohort, gate, t)
        drawn = torch.tensor([key % 1000 for key in gate.stream_keys("x")], dtype=x0.dtype)
        return {**new, "x": new["x"] + 1e-6 * drawn[:, None]}


@dataclass(frozen=True)
class Forgets(FedSPDDP):
    """Knows beside its rows in which round it began."""

    name: ClassVar[str] = "forgets"

    def local_round(self, state, x0, cohort, gate, t):
        if not hasattr(self, "first"):
            object.__setattr__(self, "first", t)
        new = super().local_round(state, x0, cohort, gate, t)
        return {**new, "x": new["x"] + 1e-3 * self.first}


@dataclass(frozen=True)
class Shy(DSGD):
    """Moves on although it was silent."""

    name: ClassVar[str] = "shy"

    def advance(self, state, pull, increment, clients, t):
        new = super().advance(state, pull, increment, clients, t)
        return new if increment is not None else {"x": new["x"] + 1.0}
'''


@pytest.fixture
def wrong(tmp_path):
    """``wrong(name)``: the tables of a run of one of the methods above, which differ from sound ones in one thing."""
    path = tmp_path / "wrong.py"
    path.write_text(_WRONG)

    def make(name, private=True):
        method = {"name": f"{path}:{name}", "rounds": 4}
        if private:
            method |= {"participants": 2, "local_steps": 2, "batch_size": 3}
        privacy = {"mode": "noise-multiplier", "noise_multiplier": 1.0} if private else {"mode": "none"}
        return {**runs.WORLD, "method": method, "privacy": privacy}

    return make


@pytest.mark.parametrize("name", all_methods())
def test_every_check_passes_or_says_why_it_is_not_asked(name):
    said = conformance_matrix([name]).set_index("method").loc[name]
    assert set(said.index) == set(COLUMNS)
    others = said[said != PASSES]
    assert others.isin(list(REASONS)).all(), others.to_dict()
    assert said["resume"] == said["lost"] == PASSES
    timed = said[["deadline", "over-select", "async", "barrier", "neighbour", "lossy"]]
    assert (timed == PASSES).sum() >= 2, "some way to meet stragglers"


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("name", ["scaffold", "two-phase-dp-admm", "gradient-tracking", "spade-dfl"])
def test_processes_of_their_own(name):
    assert conformance_matrix([name], ray=True)["ray"].tolist() == [PASSES]


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("Remembers", runs.same_seed, "differs between two runs of one seed"),
        ("ByPlace", runs.layouts, "with 2 actors"),
        ("Remembers", runs.lost_client, "is not that of a silent client"),
        ("ByPlace", runs.asynchronous, "with one client an actor"),
        ("Never", runs.charges, "charges and grants that were used"),
        ("Never", lambda tables: runs.late_clients(tables, {"kind": "deadline", "deadline_s": 0.8}), "charges of late"),
    ],
)
def test_a_method_that_is_wrong_is_found(name, check, words, wrong):
    with pytest.raises(AssertionError, match=words):
        check(wrong(name))


def test_a_state_beside_the_rows_does_not_survive_a_stop(wrong):
    with pytest.raises(AssertionError, match="differs without noise"):
        runs.resumed(wrong("Forgets"))


def test_where_rounds_draw_anew_the_word_is_said(wrong):
    assert runs.resumed(wrong("Draws")) == "charges alone"


def test_who_moves_on_without_a_release_is_found_over_a_graph(wrong):
    row = conformance_matrix([wrong("Shy", private=False)["method"]["name"]]).iloc[0]
    assert row["lost"].startswith("fails")
    assert row["shapes"] == PASSES


def test_a_shift_of_grants_changes_noise_and_nothing_else(wrong):
    tables = {**runs.WORLD, "method": {"name": "dp-admm", "rounds": 3}}
    noisy = {**tables, "privacy": {"mode": "noise-multiplier", "noise_multiplier": 1.0}}
    one, other = watched(noisy), watched(noisy, shift=7)
    assert (one.model != other.model).any()
    assert [release.number + 7 for release in one.released] == [release.number for release in other.released]
    assert one.charges.tolist() == other.charges.tolist() == [3] * runs.CLIENTS


def test_the_tables_show_words_and_the_sentences_explain_them():
    matrix = pd.DataFrame(
        [{"method": "m", **dict.fromkeys(COLUMNS, PASSES), "gate": "fails: an upload leaks", "lossy": "no edges"}]
    )
    assert shown(matrix).iloc[0].to_dict() == {
        "method": "m",
        **dict.fromkeys(COLUMNS, "✓"),
        "gate": "fails",
        "lossy": "no edges",
    }
    assert sentences(matrix) == ["m, gate: fails: an upload leaks", f"no edges: {REASONS['no edges']}"]


def test_the_command_writes_text_markdown_and_csv():
    told = {kind: CliRunner().invoke(app, ["conformance", "dp-admm", "--format", kind]) for kind in ("md", "csv")}
    assert [answer.exit_code for answer in told.values()] == [0, 0], told
    assert told["md"].output.splitlines()[2].startswith("| dp-admm | ✓ | ✓ ")
    assert "* --ray: it starts a cluster" in told["md"].output
    assert told["csv"].output.splitlines()[1].startswith("dp-admm,passes,passes,")


def test_a_parameter_that_no_method_has_is_refused():
    with pytest.raises(InvalidValue, match=r"method\.nope = 1: none of the methods asked for has it: fedavg, extra"):
        conformance_matrix(["fedavg", "extra"], {"nope": 1})


def test_a_failure_is_exit_code_1(tmp_path):
    (tmp_path / "wrong.py").write_text(_WRONG)
    told = CliRunner().invoke(app, ["conformance", f"{tmp_path / 'wrong.py'}:Never"])
    assert told.exit_code == 1
    assert "charges: fails: charges and grants that were used" in told.output
    assert re.search(r"\d of 19 checks fail", told.output)


def test_the_page_has_every_method_and_column():
    lines = [line for line in _DOC.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    names = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert names[0] == ["method", *COLUMNS]
    assert [row[0] for row in names[2:]] == all_methods()
    cells = {cell for row in names[2:] for cell in row[1:]}
    assert cells <= {"✓", *REASONS} - {"--ray"}
