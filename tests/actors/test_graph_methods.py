"""Runs of every method over a graph: what is charged over several rounds, and what the edges carry."""

from __future__ import annotations

import pytest
from dualfed.algorithms.registry import method_class
from dualfed.runs.simulate import simulate

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


def config(name):
    private = method_class(name).private
    return {
        "engine": "inline",
        "evaluate_every": 3,
        "checkpoint_every": 2,
        "data": {"name": "synthetic", "records": 120, "features": 4, "classes": 3},
        "partition": {"clients": 5, "scheme": "dirichlet", "alpha": 1.0, "min_size": 5},
        "problem": {"regulariser": "l2", "weight": 0.1},
        "method": {"name": name, "rounds": 6, **METHODS[name]},
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 0.5} if private else {"mode": "none"},
        "actors": {"clients_per_actor": 2},
    }


@pytest.mark.parametrize("name", METHODS)
def test_each_round_that_touches_data_is_charged_and_its_messages_are_counted(name):
    result = simulate(config(name), keep=False)
    assert result.clients["releases"].tolist() == [3 if name == "recycled-admm" else 6] * 5
    width = len(method_class(name).shared)
    edges = result.metrics["scalars"].iloc[-1] / (6 * width * result.model.size)
    assert edges == int(edges) > 0
