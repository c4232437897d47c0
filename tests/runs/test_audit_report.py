"""``dualfed audit``: verdicts, exit codes, the table, the files, and what it refuses."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.audit_report import audit, frame
from dualfed.runs.cli import app
from typer.testing import CliRunner

SMALL = {"rounds": 2, "trials": 4000}


def call(*arguments):
    return CliRunner().invoke(app, ["audit", *arguments], env={"COLUMNS": "220"})


@pytest.fixture(scope="module")
def server_rows():
    return audit("fedspd-dp", **SMALL)


def test_the_server_method_is_consistent(server_rows):
    assert all(row.consistent for row in server_rows)
    assert Counter(row.spent.status for row in server_rows) == {"guaranteed": 6, "claimed": 2}
    worst = server_rows[2]
    assert worst.pair_epsilon is not None
    assert 0.8 * worst.spent.epsilon < worst.pair_epsilon < worst.spent.epsilon
    searched = server_rows[1]
    assert searched.share > 0.8


def test_the_published_form_exceeds_what_it_claims(server_rows):
    table = frame(server_rows)
    paper = table[table["case"] == "paper"]
    assert (paper["exact_mu"] > paper["claimed_mu"]).all()
    assert paper["exact_mu"].max() > 5 * paper["claimed_mu"].max()
    assert paper["consistent"].all()
    assert paper["verdict"].str.contains("exceeds its claim").all()


def test_repeated_releases_reach_the_ledger_from_below(server_rows):
    for row in server_rows:
        if row.lower is None:
            continue
        assert row.lower.epsilon < row.spent.epsilon
        if row.gaussian:
            assert row.lower.mu < row.claimed_mu
            assert row.mu_epsilon is not None
            assert 0.8 * row.spent.epsilon < row.mu_epsilon < row.spent.epsilon
        else:
            assert row.pair_epsilon is not None
            assert row.lower.epsilon < row.pair_epsilon < row.spent.epsilon
            assert row.share > 0.75


def test_enough_runs_bound_any_mechanism_closely():
    """δ = 0.01, one round of μ = 1: Clopper–Pearson alone proves four fifths of the ledger's ε."""
    (row,) = audit("spade-dfl", rounds=1, noise_multiplier=1.0, delta=1e-2, trials=60_000)
    assert row.lower is not None
    assert 0.8 * row.spent.epsilon < row.lower.epsilon < row.spent.epsilon


@pytest.mark.parametrize("method", ["fedspd-dp", "spade-dfl"])
def test_a_gate_with_half_the_noise_is_caught(method):
    told = call(method, "--rounds", "2", "--trials", "2000", "--noise-factor", "0.5")
    assert told.exit_code == 1
    assert "EXCEEDS" in told.output


def test_the_command_prints_a_table_and_writes_files(tmp_path):
    told = call("spade-dfl", "--rounds", "2", "--trials", "2000", "--out", str(tmp_path / "found"))
    assert told.exit_code == 0
    assert "opposite data sets" in told.output
    assert "below, reaches" in told.output
    assert (tmp_path / "found" / "audit.png").stat().st_size > 5000
    assert (tmp_path / "found" / "audit.svg").exists()
    table = pd.read_csv(tmp_path / "found" / "audit.csv")
    assert table["consistent"].all()
    assert table["status"].tolist() == ["guaranteed"]


def test_the_same_seed_finds_the_same():
    first, second, other = (audit("spade-dfl", rounds=1, trials=400, seed=seed)[0].lower for seed in (1, 1, 2))
    assert first == second != other


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fedavg"], "no worst case is known for it"),
        (["fedspd-dp", "--set", "method.state=paper"], "sets this itself"),
        (["fedspd-dp", "--set", "seed=3"], "parameters of the method alone"),
        (["spade-dfl", "--set", "method.rho=-1"], "method.rho"),
        (["spade-dfl", "--delta", "0"], "--delta"),
        (["spade-dfl", "--trials", "10"], "--trials"),
        (["spade-dfl", "--noise-multiplier", "0"], "--noise-multiplier"),
    ],
)
def test_what_it_refuses(arguments, sentence):
    error = call(*arguments).exception
    assert isinstance(error, InvalidValue)
    assert sentence in str(error)
