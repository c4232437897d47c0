"""Whole runs in one process: layouts, budgets, stopping and going on, recorded states."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from dualfed.errors import InvalidValue
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import resume, simulate
from dualfed.runs.summary import ending_sentences


def same_figures(a: pd.DataFrame, b: pd.DataFrame, tolerance: float = 1e-9) -> None:
    assert list(a.columns) == list(b.columns)
    for name in a.columns:
        np.testing.assert_allclose(a[name].to_numpy(float), b[name].to_numpy(float), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_numbers_do_not_depend_on_the_layout(kind, request):
    make = request.getfixturevalue(kind)
    results = [
        simulate(make(record_states=True, actors__clients_per_actor=per_actor), keep=False) for per_actor in (1, 3, 7)
    ]
    for other in results[1:]:
        same_figures(results[0].metrics, other.metrics)
        same_figures(results[0].diagnostics, other.diagnostics, 1e-8)
        for name, recorded in results[0].states.items():
            np.testing.assert_allclose(recorded, other.states[name], rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_the_same_run_twice_gives_the_same_bytes(kind, request, tmp_path):
    make = request.getfixturevalue(kind)
    for name in ("a", "b"):
        simulate(make(), out=tmp_path / name)
    for table in ("metrics.parquet", "diagnostics.parquet", "model.safetensors", "clients.parquet"):
        assert (tmp_path / "a" / table).read_bytes() == (tmp_path / "b" / table).read_bytes(), table


def test_another_seed_gives_another_run(small):
    first, second = simulate(small(), keep=False), simulate(small(seed=4), keep=False)
    assert not np.allclose(first.model, second.model)


def test_recorded_states_follow_the_equations(small):
    """(S1) and (C3): the broadcast is the mean of all last uploads; inactive clients keep everything."""
    result = simulate(small(record_states=True), keep=False)
    states, rho = result.states, 0.5
    np.testing.assert_allclose(states["upload"], states["x"] + states["dual"] / rho, atol=1e-12)
    np.testing.assert_allclose(states["x0"], states["upload"].mean(axis=1), atol=1e-12)
    moved = np.abs(np.diff(states["x"], axis=0)).max(axis=2) > 0
    assert (moved.sum(axis=1) == 4).all()
    for t in range(1, len(moved)):
        change = states["dual"][t] - states["dual"][t - 1]
        expected = np.where(moved[t - 1][:, None], rho * (states["x"][t] - states["x0"][t - 1]), 0)
        np.testing.assert_allclose(change, expected, atol=1e-12)


def test_given_participants_and_full_batches_make_a_run_exact(small):
    chosen = [[0, 1], [2], [3, 4, 5], [6]]
    config = small(method__batches="full", method__rounds=4, privacy__mode="none", record_states=True)
    result = simulate(config, keep=False, participation=chosen)
    assert result.clients["releases"].tolist() == [1] * 7
    moved = (
        np.abs(np.diff(np.concatenate([np.zeros_like(result.states["x"][:1]), result.states["x"]]), axis=0)).max(2) > 0
    )
    assert [np.flatnonzero(row).tolist() for row in moved] == chosen


def test_injected_values_take_the_place_of_noise(small):
    config = small(method__rounds=3, method__participants=7, privacy__mode="none", record_states=True)
    clean = simulate(config, keep=False)
    noise = np.zeros((3, 7, 18 + 3))
    noise[0, 2] = 0.5
    moved = simulate(config, keep=False, noise=noise)
    np.testing.assert_allclose(moved.states["x"][0, 2], clean.states["x"][0, 2] + 0.5)
    np.testing.assert_allclose(moved.states["x"][0, 3], clean.states["x"][0, 3])
    with pytest.raises(InvalidValue, match="protects nobody"):
        simulate(small(), keep=False, noise=noise)
    with pytest.raises(InvalidValue, match="of shape"):
        simulate(config, keep=False, noise=noise[:, :, :1])


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_a_client_stops_when_its_budget_is_spent(kind, request):
    """A budget between the loss of 5 releases and of 6 allows each client exactly 5."""
    make = request.getfixturevalue(kind)
    free = simulate(make(privacy__mode="noise-multiplier", privacy__noise_multiplier=2.0), keep=False)
    full = free.metrics
    changes = {"method__rounds": 8, "privacy__mode": "noise-multiplier", "privacy__noise_multiplier": 2.0}
    if kind == "small":
        changes |= {"method__participants": 7, "partition__scheme": "iid"}
    costs = [simulate(make(**{**changes, "method__rounds": n}), keep=False).clients["epsilon"].max() for n in (5, 6)]
    assert costs[0] < costs[1]
    stopped = simulate(make(**changes, privacy__budget=float(np.mean(costs))), keep=False)
    assert stopped.ending == "exhausted"
    assert stopped.clients["releases"].tolist() == [5] * 7
    assert (stopped.clients["epsilon"] <= np.mean(costs)).all()
    assert (stopped.events["kind"] == "refused").sum() == 7
    assert len(full)


def test_a_calibrated_plan_is_carried_out_to_its_last_release(small):
    result = simulate(small(privacy__mode="total", privacy__epsilon=2.0), keep=False)
    assert result.ending == "completed"
    assert result.clients["releases"].sum() == 4 * 10
    assert (result.clients["epsilon"] <= 2.0).all()
    assert (result.clients["epsilon"][result.clients["releases"] > 0] > 1.9).all()


def test_epsilon_never_falls_and_ends_where_the_ledger_ends(small, tmp_path):
    result = simulate(small(), out=tmp_path / "run")
    assert (result.metrics["epsilon_max"].diff().dropna() >= 0).all()
    ledger = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite")
    assert max(spent.epsilon for spent in ledger.epsilon()) == pytest.approx(
        result.metrics["epsilon_max"].iloc[-1], rel=1e-4
    )
    assert ledger.participations.sum() == result.timing["released"].sum() == 40


def test_without_noise_the_loss_is_infinite(small):
    assert simulate(small(privacy__mode="none"), keep=False).epsilon == np.inf


def test_the_published_state_is_claimed_everywhere(small):
    result = simulate(small(method__state="paper"), keep=False)
    assert set(result.clients["status"]) == {"claimed"}
    assert result.summary["status"] == "claimed"


@pytest.mark.parametrize(("kind", "paper"), [("small", False), ("small", True), ("graph_run", False)])
def test_a_stopped_run_goes_on_exactly_where_it_was(kind, paper, request, tmp_path, stop_after):
    make = request.getfixturevalue(kind)
    config = make(method__state="paper") if paper else make()
    whole = simulate(config, out=tmp_path / "whole")
    stopped = simulate(config, out=tmp_path / "parts", listen=stop_after(5))
    assert stopped.ending == "stopped"
    assert stopped.summary["rounds_done"] == 5
    assert stopped.epsilon < stopped.summary["epsilon_planned"] == pytest.approx(whole.epsilon, rel=1e-6)
    assert any("ε of the rounds done holds if the stop did not depend" in said for said in ending_sentences(stopped))
    before = Ledger.open_readonly(tmp_path / "parts" / "ledger.sqlite").participations.sum()
    assert before == stopped.timing["released"].sum(), "what was reserved ahead is voided"
    if paper:
        private = list((tmp_path / "parts" / "private").glob("round-*/clients-*"))
        assert private
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in private)
    gone_on = resume(tmp_path / "parts")
    assert gone_on.ending == "completed"
    assert "epsilon_planned" not in gone_on.summary
    assert (gone_on.metrics["epsilon_max"].diff().dropna() >= 0).all()
    assert gone_on.clients["releases"].tolist() == whole.clients["releases"].tolist(), "no round is charged twice"
    assert gone_on.clients["epsilon"].tolist() == pytest.approx(whole.clients["epsilon"].tolist())
    assert not (tmp_path / "parts" / "private").exists()
    with pytest.raises(InvalidValue, match="is complete"):
        resume(tmp_path / "parts")


def test_going_on_without_noise_gives_the_same_bits(small, tmp_path, stop_after):
    """Grant numbers differ after a void, so draws do; without draws nothing differs."""
    config = small(privacy__mode="none", method__batches="full")
    whole = simulate(config, out=tmp_path / "whole")
    simulate(config, out=tmp_path / "parts", listen=stop_after(5))
    gone_on = resume(tmp_path / "parts")
    assert (gone_on.model == whole.model).all()
    assert (tmp_path / "parts" / "metrics.parquet").read_bytes() == (
        tmp_path / "whole" / "metrics.parquet"
    ).read_bytes()


def test_a_run_whose_records_changed_does_not_go_on(small, tmp_path, stop_after):
    simulate(small(), out=tmp_path / "run", listen=stop_after(3))
    facts = json.loads((tmp_path / "run" / "environment.json").read_text())
    (tmp_path / "run" / "environment.json").write_text(json.dumps({**facts, "data_digest": "0" * 32}))
    with pytest.raises(InvalidValue, match="not those of the run's start"):
        resume(tmp_path / "run")


def test_one_and_two_clients(small, graph_run):
    for make in (small, graph_run):
        for clients in (1, 2):
            changes = {"partition__clients": clients}
            if make is small:
                changes["method__participants"] = 1
            else:
                changes["topology__kind"] = "path"
            assert simulate(make(**changes), keep=False).ending == "completed"


def test_unequal_weights_follow_the_sizes(small):
    result = simulate(small(problem__weights="by-size", privacy__mode="total", privacy__epsilon=4.0), keep=False)
    assert (result.clients["epsilon"] <= 4.0).all()


def test_more_participants_than_clients_is_refused_before_anything_is_written(small, tmp_path):
    with pytest.raises(InvalidValue, match="there are 7 clients"):
        simulate(small(method__participants=8), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nothing_is_left_in_the_temporary_folder(small, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    simulate(small(), keep=False)
    assert list(tmp_path.iterdir()) == []
