"""Two methods that differ in their parameters alone, small enough for a test."""

from __future__ import annotations

from typing import Any

import pytest


def _tables(name: str, **method: Any) -> dict[str, Any]:
    return {
        "name": name,
        "evaluate_every": 2,
        "data": {"name": "synthetic", "records": 240, "features": 4, "classes": 2},
        "partition": {"clients": 3},
        "problem": {"kind": "logistic"},
        "method": {
            "name": "fedspd-dp",
            "rounds": 4,
            "local_steps": 1,
            "batch_size": 10,
            "rho": 0.5,
            "gamma": 1.0,
            **method,
        },
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 2.0},
    }


@pytest.fixture
def one() -> dict[str, Any]:
    return {**_tables("one"), "tune": {"method": {"rho": [0.1, 1.0]}}}


@pytest.fixture
def two() -> dict[str, Any]:
    return {**_tables("two", state="paper"), "tune": {"method": {"gamma": [1.0, 2.0]}}}
