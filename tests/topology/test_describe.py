from __future__ import annotations

import json

import pytest
from dualfed.topology.describe import describe
from dualfed.topology.graphs import build_graph


def test_numbers_of_a_star():
    facts = describe(build_graph("star", 10))
    assert facts == {
        "kind": "star",
        "n": 10,
        "edges": 9,
        "degree_min": 1,
        "degree_mean": 1.8,
        "degree_max": 9,
        "lambda_2": pytest.approx(1),
        "lambda_max": pytest.approx(10),
        "spectral_gap": pytest.approx(0.1),
        "diameter": 2,
        "largest_a_rho": pytest.approx(8 / 30),
        "messages_per_round": 18,
    }
    json.dumps(facts)


@pytest.mark.parametrize("n", [1, 2])
def test_tiny(n):
    facts = describe(build_graph("ring", n))
    assert facts["edges"] == n - 1
    assert facts["largest_a_rho"] == (None if n == 1 else pytest.approx(4 / 3))
    json.dumps(facts)
