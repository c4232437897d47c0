"""Every method over a graph passes the suite that third parties use. A new method is tested by adding one line."""

from __future__ import annotations

import dataclasses

import pytest
from dualfed.algorithms import conformance
from dualfed.algorithms.problems import ModuleProblem
from dualfed.algorithms.registry import make_method
from dualfed.algorithms.spade_dfl import SPADEDFL

COMMON = {"rounds": 4, "local_steps": 3, "eta": 0.05, "mu": 0.1, "clip": 0.5}
METHODS = {
    "spade-dfl, baseline": lambda: SPADEDFL(**COMMON),
    "spade-dfl, paper": lambda: SPADEDFL(**COMMON, estimator="paper"),
    "spade-dfl, two-point": lambda: SPADEDFL(**COMMON, estimator="two-point", direction="gaussian"),
    "spade-dfl, gradient": lambda: SPADEDFL(**COMMON, estimator="gradient"),
    "spade-dfl, unequal": lambda: SPADEDFL(**COMMON | {"local_steps": [1, 2, 5]}, batch_size=[2, 1, 3]),
    "spade-dfl, chunks": lambda: SPADEDFL(**COMMON, chunk=4, query_noise=0.1, direction="sphere"),
}


def named(name, **fields):
    return lambda: make_method({"name": name, **fields})


TRAINED = {"rounds": 4, "local_steps": 3, "clip": 0.5}
METHODS |= {
    "dsgd": named("dsgd"),
    "dsgd, batches": named("dsgd", batch_size=3),
    "gradient-tracking": named("gradient-tracking"),
    "gradient-tracking, batches": named("gradient-tracking", batch_size=3),
    "extra": named("extra"),
    "lt-admm": named("lt-admm", **TRAINED),
    "lt-admm, batches": named("lt-admm", **TRAINED, batch_size=4),
    "lt-admm, memory": named("lt-admm", **TRAINED, memory=True),
}
METHODS |= {
    "dvp-admm": named("dvp-admm"),
    "pvp-admm": named("pvp-admm"),
    "pvp-admm, gaussian": named("pvp-admm", noise="gaussian"),
    "penalty-admm": named("penalty-admm", growth=1.5),
    "recycled-admm": named("recycled-admm"),
}
METHODS |= {
    f"{name}, {estimator}": named(name, **COMMON, estimator=estimator)
    for name in ("dp-dsgd", "dp-gt")
    for estimator in ("baseline", "paper", "two-point", "gradient")
}


@pytest.mark.parametrize("name", METHODS)
def test_conforms(name):
    conformance.check_graph_method(METHODS[name])


def test_conforms_with_a_network():
    problem = ModuleProblem(5, 3, 1.0, model_options={"hidden": [4]})
    conformance.check_graph_method(METHODS["spade-dfl, baseline"], problem=problem)


class Leaky(SPADEDFL):
    """Adds to its release what did not pass the gate."""

    def increment(self, state, pull, cohort, gate, t):
        found = super().increment(state, pull, cohort, gate, t)
        return dataclasses.replace(found, released=found.released + 1e-6 * cohort.shards.features.sum())


class Counting(SPADEDFL):
    """Reports a number that depends on records."""

    def increment(self, state, pull, cohort, gate, t):
        found = super().increment(state, pull, cohort, gate, t)
        return dataclasses.replace(found, counts={"ones": int((cohort.shards.labels == 1).sum())})


class Writing(SPADEDFL):
    """Changes the state that it was given."""

    def advance(self, state, pull, increment, clients, t):
        state["y"] = state["y"].clone().add_(1.0)
        return super().advance(state, pull, increment, clients, t)


@pytest.mark.parametrize("wrong", [Leaky, Counting])
def test_the_suite_catches_a_leak(wrong):
    with pytest.raises(AssertionError, match="did not pass the gate"):
        conformance.check_graph_releases_only(lambda: wrong(**COMMON))


def test_the_suite_catches_a_method_that_writes_over_its_state():
    with pytest.raises(AssertionError):
        conformance.check_silence(lambda: Writing(**COMMON))
