"""Runs of every method over a graph: layouts, charges, few clients, going on, and a client lost for a round."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.algorithms.registry import method_class
from dualfed.runs.simulate import resume, simulate

METHODS = {
    "dsgd": {},
    "gradient-tracking": {},
    "extra": {},
    "dp-dsgd": {"local_steps": 3, "clip": 0.5},
    "dp-gt": {"local_steps": 3, "clip": 0.5},
    "lt-admm": {"local_steps": 3, "clip": 0.5},
    "dvp-admm": {},
    "pvp-admm": {},
    "penalty-admm": {"growth": 1.2},
    "recycled-admm": {},
}


def config(name, clients=5, per_actor=2, rounds=6, **more):
    private = method_class(name).private
    return {
        "engine": "inline",
        "evaluate_every": 3,
        "checkpoint_every": 2,
        "data": {"name": "synthetic", "records": 120, "features": 4, "classes": 3},
        "partition": {"clients": clients, "scheme": "dirichlet", "alpha": 1.0, "min_size": 5},
        "problem": {"regulariser": "l2", "weight": 0.1},
        "method": {"name": name, "rounds": rounds, **METHODS[name]},
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 0.5} if private else {"mode": "none"},
        "actors": {"clients_per_actor": per_actor},
        **more,
    }


def charged(name, rounds):
    return (rounds + 1) // 2 if name == "recycled-admm" else rounds


@pytest.mark.parametrize("name", METHODS)
def test_layouts_agree_and_the_charge_is_the_releases(name):
    runs = [simulate(config(name, per_actor=n, record_states=True), keep=False) for n in (1, 2, 5)]
    for run in runs:
        assert run.clients["releases"].tolist() == [charged(name, 6)] * 5
        for row, values in run.states.items():
            np.testing.assert_allclose(values, runs[0].states[row], rtol=1e-8, atol=1e-9, err_msg=row)
    width = 2 if len(method_class(name).shared) == 2 else 1
    edges = runs[0].metrics["scalars"].iloc[-1] / (6 * width * runs[0].model.size)
    assert edges == int(edges) > 0


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("clients", [1, 2])
def test_one_client_and_two(name, clients):
    result = simulate(config(name, clients=clients, per_actor=1, rounds=3), keep=False)
    assert result.ending == "completed"
    assert np.isfinite(result.model).all()


class Killed(BaseException):
    """What the test raises in place of a kill."""


@pytest.mark.parametrize("name", METHODS)
def test_a_run_goes_on_from_its_checkpoint(name, tmp_path):
    given = config(name)
    if method_class(name).private:  # no noise: a round that is done again takes a new grant, hence new noise
        given["privacy"] = {"mode": "none"}
    whole = simulate(given, keep=False)

    def cut(event):
        if event["kind"] == "round" and event["round"] == 5:
            raise Killed

    with pytest.raises(Killed):
        simulate(given, out=tmp_path / "run", listen=cut)
    result = resume(tmp_path / "run")
    assert result.ending == "completed"
    exact = name not in ("dp-dsgd", "dp-gt")  # whose directions are new with every grant
    if exact:
        np.testing.assert_allclose(result.model, whole.model, rtol=1e-9, atol=1e-10)
    assert (result.clients["releases"] > charged(name, 5)).all() or name == "recycled-admm"


@pytest.mark.parametrize("name", METHODS)
def test_a_client_that_misses_rounds_stays_in_the_graph(name):
    """What the loss of its host comes to (rule 4): its increment is 0, and the others go on."""
    present = [[0, 1, 2, 3, 4]] * 2 + [[0, 1, 3, 4]] * 2 + [[0, 1, 2, 3, 4]] * 2
    given = config(name)
    result = simulate(given, keep=False, participation=present)
    releases = result.clients["releases"].tolist()
    assert releases[2] == releases[0] - (1 if name == "recycled-admm" else 2)
    assert np.isfinite(result.model).all()
