"""A client whose own code raises: told with its place, left out or tried again, its charges standing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from dualfed.actors.async_coordinator import AsyncCoordinator
from dualfed.actors.client_errors import apart
from dualfed.actors.loop import ClientFailed
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.algorithms.spade_dfl import SPADEDFL
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import resume, simulate

FAULTY = 2


def test_the_work_of_the_others_is_done_and_the_faulty_are_named():
    def work(rows):
        if 3 in rows or 6 in rows:
            raise ValueError("no")
        return rows.tolist()

    results, errors = apart(np.arange(10, 19), work)
    assert sorted(row for part in results for row in part) == [0, 1, 2, 4, 5, 7, 8]
    assert [error.client for error in errors] == [13, 16]
    assert "ValueError: no" in errors[0].error
    assert "in work" in errors[0].trace


@dataclass(frozen=True)
class Fails(FedSPDDP):
    """Client 2 raises when it is asked in round 3, the first ``times`` times."""

    times: int = 1
    asked: ClassVar[list[int]] = []

    def local_round(self, state, x0, cohort, gate, t):
        if t == 3 and len(cohort) == 1 and cohort.clients[0] == FAULTY:
            self.asked.append(t)
        if t == 3 and FAULTY in cohort.clients and len(self.asked) <= self.times:
            raise KeyError("a defect of the client")
        return super().local_round(state, x0, cohort, gate, t)


@dataclass(frozen=True)
class FailsOnGraph(SPADEDFL):
    """The same over a graph."""

    times: int = 1
    asked: ClassVar[list[int]] = []

    def increment(self, state, pull, cohort, gate, t):
        if t == 3 and len(cohort) == 1 and cohort.clients[0] == FAULTY:
            self.asked.append(t)
        if t == 3 and FAULTY in cohort.clients and len(self.asked) <= self.times:
            raise KeyError("a defect of the client")
        return super().increment(state, pull, cohort, gate, t)


def run(request, kind, times, **changes):
    make = request.getfixturevalue(kind)
    base = {"record_states": True, "privacy__mode": "noise-multiplier", "privacy__noise_multiplier": 2.0}
    config = make(**{**base, **changes})
    drop = ("name", "participants", "mixing_rounds", "final_mixing")
    parameters = {name: value for name, value in config["method"].items() if name not in drop}
    chosen = Fails if kind == "small" else FailsOnGraph
    chosen.asked.clear()
    faulty = simulate(config, keep=False, method=chosen(**parameters, times=times))
    return faulty, simulate(config, keep=False, method=chosen.__bases__[0](**parameters))


@pytest.mark.parametrize("kind", ["small", "graph_run"])
@pytest.mark.parametrize("per_actor", [1, 7])
def test_skip_leaves_the_client_out_of_the_round_and_its_charge_stands(kind, per_actor, request):
    result, sound = run(request, kind, 99, policy__on_error="skip", actors__clients_per_actor=per_actor)
    assert result.ending == "completed"
    errors = result.events[result.events["kind"] == "error"]
    assert errors["round"].tolist() == [3]
    assert "client: 2" in errors["detail"].iloc[0]
    assert "a defect of the client" in errors["detail"].iloc[0]
    assert "Traceback" in errors["detail"].iloc[0]
    assert result.clients["releases"].tolist() == sound.clients["releases"].tolist()
    assert result.timing["released"].sum() == sound.timing["released"].sum() - 1
    assert result.metrics["errors"].iloc[-1] == 1
    others = [client for client in range(7) if client != FAULTY]
    np.testing.assert_allclose(result.states["x"][2][others], sound.states["x"][2][others], rtol=1e-9, atol=1e-12)
    if kind == "small":
        np.testing.assert_array_equal(result.states["x"][2][FAULTY], result.states["x"][1][FAULTY])


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_retry_takes_a_new_grant_and_new_noise(kind, request):
    result, sound = run(request, kind, 1, policy__on_error="retry")
    extra = result.clients["releases"] - sound.clients["releases"]
    assert extra.tolist() == [int(client == FAULTY) for client in range(7)]
    assert result.timing["released"].sum() == sound.timing["released"].sum()
    assert np.abs(result.states["x"][2][FAULTY] - sound.states["x"][2][FAULTY]).max() > 1e-3, "new noise"
    others = [client for client in range(7) if client != FAULTY]
    np.testing.assert_allclose(result.states["x"][2][others], sound.states["x"][2][others], rtol=1e-9, atol=1e-12)
    assert result.clients["epsilon"][FAULTY] > sound.clients["epsilon"][FAULTY]


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_retries_are_bounded_and_then_the_client_is_left_out(kind, request):
    result, sound = run(request, kind, 99, policy__on_error="retry", policy__retries=2)
    assert result.ending == "completed"
    assert (result.events["kind"] == "error").sum() == 3
    assert result.clients["releases"][FAULTY] == sound.clients["releases"][FAULTY] + 2
    assert result.timing["released"].sum() == sound.timing["released"].sum() - 1


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_what_is_said_to_be_spent_by_a_round_is_what_was_charged_until_then(kind, request, tmp_path):
    """The next round is reserved already when a client of this one tries again."""
    config = request.getfixturevalue(kind)(evaluate_every=1, policy__on_error="retry")
    drop = ("name", "mixing_rounds", "final_mixing")
    parameters = {name: value for name, value in config["method"].items() if name not in drop}
    chosen = Fails if kind == "small" else FailsOnGraph
    chosen.asked.clear()
    config["privacy"] = {"mode": "noise-multiplier", "noise_multiplier": 2.0}
    result = simulate(config, out=tmp_path / "run", method=chosen(**parameters, times=1))
    ledger = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite")
    charges, spent = ledger.history(), []
    for t in result.metrics["round"]:
        accounts = [Counter(c.event for c in charges if c.client == i and c.round <= t) for i in range(7)]
        spent.append(max(ledger.accountant.epsilon(account, ledger.delta).epsilon for account in accounts))
    assert result.metrics["epsilon_max"].tolist() == pytest.approx(spent, rel=1e-4)


def test_stop_is_the_default(request):
    with pytest.raises(ClientFailed, match="a defect of the client"):
        run(request, "small", 99)


@dataclass(frozen=True)
class NeverWorks(FedSPDDP):
    """Client 2 always raises."""

    def local_round(self, state, x0, cohort, gate, t):
        if FAULTY in cohort.clients:
            raise KeyError("a defect of the client")
        return super().local_round(state, x0, cohort, gate, t)


def test_an_asynchronous_client_that_always_raises_begins_no_more(small):
    changes = {
        "policy__kind": "async",
        "policy__on_error": "skip",
        "policy__retries": 1,
        "time__compute": "exponential",
    }
    config = small(method__participants=7, method__rounds=30, **changes)
    parameters = {name: value for name, value in config["method"].items() if name != "name"}
    result = simulate(config, keep=False, method=NeverWorks(**parameters))
    assert result.ending == "completed"
    assert result.clients["releases"][FAULTY] == 2
    assert result.metrics["errors"].iloc[-1] == 2
    assert result.clients["void"][FAULTY] == 2


_NEVER_WORKS = """
from dataclasses import dataclass
from dualfed.algorithms.fedspd_dp import FedSPDDP

@dataclass(frozen=True)
class NeverWorks(FedSPDDP):
    def local_round(self, state, x0, cohort, gate, t):
        if 2 in cohort.clients:
            raise KeyError("a defect of the client")
        return super().local_round(state, x0, cohort, gate, t)
"""


def test_errors_in_a_row_are_counted_across_a_stop(small, tmp_path, monkeypatch):
    (tmp_path / "never.py").write_text(_NEVER_WORKS)
    loops = []
    original = AsyncCoordinator.__init__
    monkeypatch.setattr(
        AsyncCoordinator, "__init__", lambda loop, *a, **k: (original(loop, *a, **k), loops.append(loop))[0]
    )
    changes = {
        "policy__kind": "async",
        "policy__on_error": "skip",
        "policy__retries": 3,
        "time__compute": "exponential",
    }
    config = small(method__participants=7, method__rounds=30, **changes)
    config["method"]["name"] = f"{tmp_path / 'never.py'}:NeverWorks"

    def stop(event):
        if event["kind"] == "error":
            loops[-1].request_stop()

    simulate(config, out=tmp_path / "run", listen=stop)
    result = resume(tmp_path / "run")
    assert result.ending == "completed"
    assert result.metrics["errors"].iloc[-1] == 4
    assert result.clients["releases"][FAULTY] == 4
