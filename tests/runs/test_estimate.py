"""What a dry run says, against the run itself."""

from __future__ import annotations

import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.config import parse
from dualfed.runs.estimate import estimate
from dualfed.runs.simulate import simulate

BASE = {
    "engine": "inline",
    "data": {"name": "synthetic", "records": 400, "features": 6, "classes": 3},
    "partition": {"clients": 8},
    "privacy": {"mode": "noise-multiplier", "noise_multiplier": 2.0},
}
SERVER = {"name": "fedspd-dp", "rounds": 6, "participants": 4, "local_steps": 2, "batch_size": 5}
GRAPH = {"name": "spade-dfl", "rounds": 4, "local_steps": 5, "clip": 1.0}


@pytest.mark.parametrize("method", [SERVER, GRAPH])
def test_the_planned_loss_is_what_the_run_spends(method):
    config = parse({**BASE, "method": method})
    assert estimate(config).epsilon == pytest.approx(simulate(config, keep=False).epsilon, rel=1e-3)


def test_the_costliest_client_counts_however_many_accounts_there_are():
    """Everyone takes part in every round, so the smallest clients pay most, and no two are of one size."""
    skewed = {
        **BASE,
        "data": {"name": "synthetic", "records": 12_000, "features": 3, "classes": 3},
        "partition": {"scheme": "quantity", "alpha": 0.4, "clients": 300, "min_size": 4},
        "method": {"name": "fedspd-dp", "rounds": 2, "local_steps": 2, "batch_size": 2},
    }
    config = parse(skewed)
    assert estimate(config).epsilon == pytest.approx(simulate(config, keep=False).epsilon, rel=1e-3)


def test_messages_are_those_of_a_round():
    assert estimate(parse({**BASE, "method": SERVER})).messages == 8
    ring = estimate(parse({**BASE, "method": GRAPH, "topology": {"kind": "ring"}}))
    assert ring.messages == 16
    assert ring.message_bytes == 8 * 3 * 7


def test_without_noise_the_loss_is_infinite():
    assert estimate(parse({**BASE, "method": SERVER, "privacy": {"mode": "none"}})).epsilon == float("inf")


def test_a_layout_that_cannot_fit_is_refused_with_one_that_can():
    wide = {
        "data": {**BASE["data"], "records": 4000},
        "partition": {"clients": 3000},
        "method": {**SERVER, "batch_size": 1, "local_steps": 1},
    }
    config = parse({**BASE, **wide, "engine": "ray", "actors": {"clients_per_actor": 1}})
    with pytest.raises(InvalidValue, match=r"3000 actors .* take at most \d+ actors"):
        estimate(config)


def test_the_command_prints_it_and_runs_nothing(tmp_path, monkeypatch, capsys):
    from dualfed.runs.cli_run import run

    monkeypatch.chdir(tmp_path)
    assert run("quickstart", ["privacy.epsilon=3"], None, "inline", None, None, dry=True) == 0
    said = capsys.readouterr().out
    assert "10" in said
    assert "2.99" in said or "3.00" in said
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    estimate(parse({**BASE, "method": SERVER}))
    assert list(tmp_path.iterdir()) == []
