"""The asynchronous engine: order of events, versions, staleness, charges, resuming, lost hosts."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from dualfed.actors.delays import DelayModel, Delays
from dualfed.actors.in_flight import InFlight
from dualfed.actors.policies import Policy
from dualfed.actors.timing import Timekeeper, TimeSettings
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import resume, simulate


@pytest.fixture
def hasty(small):
    """A small asynchronous run: 4 of 7 clients at work, 2 arrivals an update, Pareto times."""

    def make(**changes):
        base = {
            "record_states": True,
            "method__rounds": 12,
            "policy__kind": "async",
            "policy__buffer": 2,
            "time__compute": "pareto",
            "time__shape": 1.5,
        }
        return small(**{**base, **changes})

    return make


def flight(model, clients):
    keeper = Timekeeper(TimeSettings(model, Policy("async"), "virtual", 0, 0), clients)
    made = InFlight(keeper, None, np.zeros(clients, int), lambda event: None, None)
    made.prepare(clients)
    return made


def test_arrivals_come_in_order_and_ties_by_client():
    events = flight(DelayModel(1, 4, "constant", speeds=np.array([1.0, 0.5, 1.0, 1.0])), 4)
    events.begin(np.array([3, 1, 2, 0]), 1)
    order = []
    for _ in range(4):
        task = events.next()
        order.append((task.arrival, task.client))
    assert order == [(1.0, 0), (1.0, 2), (1.0, 3), (2.0, 1)]
    assert events.next() is None


def test_an_offline_client_is_deferred_and_one_that_never_returns_is_not_waited_for():
    rows = np.array([[0, 0.0, 0], [0, 5.0, 1], [1, 0.5, 0]])
    events = flight(DelayModel(1, 3, "constant", absences=rows), 3)
    assert events.begin(np.array([0, 1, 2]), 1).tolist() == [0]
    assert [events.next().client for _ in range(2)] == [2, 0]
    assert events.now == 6.0
    assert events.next() is None, "client 1 went off in the middle of its work and stays off"


def expected(seed, n, working, buffer, bound, updates, first, delays):
    """(used by update, staleness of each, end times) by a plain search over all who are at work, K = N."""
    now, at_work, starts = 0.0, {}, dict.fromkeys(range(n), 0)

    def begin(client, version):
        starts[client] += 1
        took = delays.work(np.array([client]), starts[client], 0.0)[0][0]
        at_work[client] = (now + took, client, version)

    for client in first:
        begin(client, 1)
    told = []
    for t in range(1, updates + 1):
        used = []
        while len(used) < buffer:
            arrival, client, version = min(at_work.values())
            del at_work[client]
            now = arrival
            if t - version > bound:
                begin(client, t)
            else:
                used.append((client, t - version))
        told.append((used, now))
        for client, _ in sorted(used):
            begin(client, t + 1)
    return told, starts


@pytest.mark.parametrize(("buffer", "bound"), [(1, 100), (3, 1), (2, 0)])
def test_the_run_is_that_of_a_plain_search_over_events(hasty, buffer, bound):
    config = hasty(method__participants=7, policy__buffer=buffer, policy__staleness=bound)
    result = simulate(config, keep=False)
    told, starts = expected(3, 7, 7, buffer, bound, 12, range(7), Delays(DelayModel(3, 7, "pareto", shape=1.5)))
    np.testing.assert_allclose(result.timing["simulated_s"], [end for _, end in told], rtol=1e-12)
    x = np.concatenate([np.zeros_like(result.states["x"][:1]), result.states["x"]])
    moved = np.abs(np.diff(x, axis=0)).max(axis=2) > 0
    assert [np.flatnonzero(row).tolist() for row in moved] == [sorted(c for c, _ in used) for used, _ in told]
    # At the last update nobody begins any more.
    charged = np.array([starts[c] for c in range(7)])
    charged[[c for c, _ in told[-1][0]]] -= 1
    assert result.clients["releases"].tolist() == charged.tolist()
    stale = [staleness for used, _ in told for _, staleness in used]
    mean = np.average(stale)
    used_by = np.array([sum(c == client for used, _ in told for c, _ in used) for client in range(7)])
    assert (result.clients["stale_mean"] * used_by).sum() / len(stale) == pytest.approx(mean)
    assert max(stale) <= bound


def test_a_client_works_from_the_version_that_it_started_on(hasty):
    """(C3): the dual moves by ρ(x_i − x_0) with the x_0 that the client was sent, not the newest."""
    result = simulate(hasty(method__participants=7, policy__buffer=1), keep=False)
    told, _ = expected(3, 7, 7, 1, 10, 12, range(7), Delays(DelayModel(3, 7, "pareto", shape=1.5)))
    states, rho = result.states, 0.5
    x0 = np.concatenate([np.zeros_like(states["x0"][:1]), states["x0"]])  # x0[v]: after v updates
    old = 0
    for t, (used, _) in enumerate(told, 1):
        (client, staleness), before = used[0], states["dual"][t - 2] if t > 1 else np.zeros_like(states["dual"][0])
        sent = x0[t - 1 - staleness]
        np.testing.assert_allclose(
            states["dual"][t - 1, client] - before[client], rho * (states["x"][t - 1, client] - sent), atol=1e-12
        )
        old += staleness > 0
    assert old > 3


def test_layouts_and_clocks_give_the_same_run(hasty):
    fast = {"time__mean_s": 0.005, "time__dropout": 0.2, "policy__staleness": 2}
    runs = [
        simulate(hasty(**fast, actors__clients_per_actor=per, time__clock=clock), keep=False)
        for per, clock in ((7, "virtual"), (2, "virtual"), (3, "real"))
    ]
    for other in runs[1:]:
        np.testing.assert_allclose(runs[0].states["x"], other.states["x"], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(runs[0].timing["simulated_s"], other.timing["simulated_s"])
        assert runs[0].clients["releases"].tolist() == other.clients["releases"].tolist()
    assert runs[0].clients["dropped"].sum() > 0


def test_void_work_is_charged_and_at_most_k_are_at_work(hasty, tmp_path):
    result = simulate(hasty(policy__staleness=0, policy__buffer=1), out=tmp_path / "run")
    assert result.clients["void"].sum() > 0
    assert set(result.events["kind"]) >= {"void"}
    ledger = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite")
    at_work = ledger.participations.sum() - result.timing["released"].sum() - result.clients["void"].sum()
    assert at_work == 3, "at the end K − B clients are still at work"
    assert result.timing["released"].tolist() == [1] * 12


def test_a_cap_is_calibrated_for_and_kept(hasty):
    result = simulate(hasty(policy__cap=4, privacy__mode="total", privacy__epsilon=3.0), keep=False)
    assert result.clients["releases"].max() <= 4
    assert (result.clients["epsilon"] <= 3.0).all()
    assert result.clients["epsilon"][result.clients["releases"] == 4].min() > 2.9
    steep = {"method__gamma": {"value": 1.0, "shape": "sqrt"}, "policy__cap": 4, "privacy__mode": "total"}
    for batches in ("epoch", "independent"):  # each round another event
        falling = simulate(hasty(**steep, privacy__epsilon=3.0, method__batches=batches), keep=False)
        assert (falling.clients["epsilon"] <= 3.0).all()
        assert falling.clients["releases"].max() == 4


def test_a_cap_that_is_used_up_ends_the_run(hasty):
    result = simulate(hasty(policy__cap=2), keep=False)
    assert result.ending == "exhausted"
    assert result.clients["releases"].max() == 2
    assert result.timing["released"].sum() <= 14


def test_a_stopped_run_goes_on_with_who_was_at_work(hasty, tmp_path, stop_after):
    whole = simulate(hasty(record_states=False), out=tmp_path / "whole")
    stopped = simulate(hasty(record_states=False), out=tmp_path / "parts", listen=stop_after(5))
    assert stopped.ending == "stopped"
    gone_on = resume(tmp_path / "parts")
    # No grant was given back, so not even the noise differs.
    np.testing.assert_allclose(whole.model, gone_on.model, rtol=1e-9)
    assert whole.clients["releases"].tolist() == gone_on.clients["releases"].tolist()
    np.testing.assert_allclose(whole.clients["busy_s"], gone_on.clients["busy_s"])
    np.testing.assert_allclose(whole.metrics["simulated_s"], gone_on.metrics["simulated_s"])


@pytest.mark.parametrize("name", ["dp-fedavg", "scaffold", "dp-admm", "async-dp-admm"])
def test_any_method_with_a_server_can_be_asynchronous(hasty, name):
    """One whose server adds up new uploads alone, one whose server keeps a state, and two that keep last uploads."""
    config = hasty(method={"name": name, "rounds": 8, "participants": 4}, record_states=False)
    if name in ("dp-fedavg", "scaffold"):
        config["method"] |= {"batch_size": 5, "local_steps": 2}
    if name == "scaffold":
        config["privacy"] = {"mode": "none"}
    one, other = (simulate({**config, "actors": {"clients_per_actor": per}}, keep=False) for per in (7, 2))
    assert one.ending == "completed"
    assert np.isfinite(one.model).all()
    assert np.abs(one.model).max() > 0
    np.testing.assert_allclose(one.model, other.model, rtol=1e-8, atol=1e-10)
    assert one.clients["releases"].sum() == 8 * 2 + 2 + one.clients["void"].sum()


@dataclass(frozen=True)
class Mortal(FedSPDDP):
    """Kills the process of client 3, the first time it works after round 4."""

    marker: str = ""

    def local_round(self, state, x0, cohort, gate, t):
        if t >= 4 and 3 in cohort.clients.tolist() and not os.path.exists(self.marker):
            with open(self.marker, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        return super().local_round(state, x0, cohort, gate, t)


@pytest.mark.ray
def test_a_lost_host_costs_the_charges_of_those_at_work(hasty, tmp_path):
    from dualfed.actors.cluster import local_cluster

    with local_cluster(2):
        from ray import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        parameters = {k: v for k, v in hasty()["method"].items() if k not in ("name", "participants")}
        method = Mortal(**parameters, participants=4, marker=str(tmp_path / "died"))
        result = simulate(hasty(engine="ray", actors__clients_per_actor=3), out=tmp_path / "run", method=method)
        same = simulate(hasty(engine="ray", actors__clients_per_actor=3), keep=False)
    assert result.ending == "completed"
    assert {"lost", "rebuilt", "void"} <= set(result.events["kind"])
    ledger = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite")
    assert ledger.participations.sum() >= result.timing["released"].sum() + result.clients["void"].sum()
    inline = simulate(hasty(), keep=False)
    np.testing.assert_allclose(same.states["x"], inline.states["x"], rtol=1e-9, atol=1e-12)
