"""A study small enough for a test."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def tables() -> dict[str, Any]:
    """A run of a tenth of a second."""
    return {
        "name": "small",
        "evaluate_every": 2,
        "data": {"name": "synthetic", "records": 200, "features": 4, "classes": 2},
        "partition": {"clients": 3},
        "problem": {"kind": "logistic"},
        "method": {"name": "fedspd-dp", "rounds": 4, "local_steps": 1, "batch_size": 10, "rho": 0.5, "gamma": 1.0},
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 2.0},
    }
