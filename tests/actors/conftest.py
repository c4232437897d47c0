"""Small runs that the tests of this folder share."""

from __future__ import annotations

import copy
from typing import Any

import pytest

SMALL: dict[str, Any] = {
    "seed": 3,
    "engine": "inline",
    "evaluate_every": 4,
    "data": {"name": "synthetic", "records": 420, "features": 6, "classes": 3},
    "partition": {"scheme": "dirichlet", "clients": 7, "alpha": 1.0, "min_size": 20},
    "method": {
        "name": "fedspd-dp",
        "rounds": 10,
        "participants": 4,
        "local_steps": 3,
        "batch_size": 5,
        "rho": 0.5,
        "gamma": 1.0,
    },
    "privacy": {"mode": "noise-multiplier", "noise_multiplier": 2.0},
}

GRAPH: dict[str, Any] = {
    **SMALL,
    "topology": {"kind": "ring"},
    "method": {
        "name": "spade-dfl",
        "rounds": 8,
        "local_steps": 6,
        "eta": 0.05,
        "mu": 0.1,
        "clip": 0.5,
        "mixing_rounds": 1,
        "final_mixing": 2,
    },
    "privacy": {"mode": "total", "epsilon": 20.0},
}


def _changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(base)
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            made.setdefault(section, {})[key] = value
        else:
            made[section] = value
    return made


@pytest.fixture
def small():
    """``small(privacy__mode="none", …)``: the configuration of a small federated run with changes."""
    return lambda **changes: _changed(SMALL, changes)


@pytest.fixture
def graph_run():
    """The same for a small run over a graph."""
    return lambda **changes: _changed(GRAPH, changes)
