"""Clocks and lossy links over a graph: max-plus recursion, equal trajectories, the exchange by edges with messages lost."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from dualfed.actors.delays import DelayModel, Delays
from dualfed.errors import InvalidValue
from dualfed.runs.simulate import resume, simulate
from dualfed.topology.exchange import EdgeExchange

RHO = 1.0


@pytest.fixture
def timed(graph_run):
    """A small run over a ring with exponential times; no mixing unless asked for."""

    def make(**changes):
        base = {
            "record_states": True,
            "method__mixing_rounds": 0,
            "time__compute": "exponential",
            "time__latency_s": 0.05,
            "time__bandwidth": 10_000.0,
        }
        return graph_run(**{**base, **changes})

    return make


def max_plus(matrix, clocks):
    """(A ⊗ T)_i = max_j (A_ij + T_j)."""
    return (matrix + clocks[None, :]).max(axis=1)


@pytest.mark.parametrize("mixing", [0, 2])
def test_clocks_are_those_of_an_independent_max_plus_product(timed, mixing):
    result = simulate(timed(policy__kind="neighbour", method__mixing_rounds=mixing), keep=False)
    work = Delays(DelayModel(3, 7, "exponential"))
    link = 0.05 + 21 * 8 / 10_000
    heard = np.where(nx.to_numpy_array(nx.cycle_graph(7)) > 0, link, -np.inf)
    np.fill_diagonal(heard, 0.0)
    clocks = np.zeros(7)
    for t in range(1, 9):
        ready = clocks if t == 1 else max_plus(heard, clocks)
        clocks = ready + work.work(np.arange(7), t, 0.0)[0]
        spans = result.spans[result.spans["round"] == t].sort_values("client")
        np.testing.assert_allclose(spans["end_s"], clocks, rtol=1e-12)
        for _ in range(mixing):
            clocks = max_plus(heard, clocks)
        assert result.timing["simulated_s"][t - 1] == pytest.approx(clocks.max())
    np.testing.assert_allclose(result.clients["busy_s"] + result.clients["waiting_s"], clocks)


def test_waiting_for_neighbours_computes_what_a_barrier_does_in_less_time(timed):
    """One client ten times slower than the others."""
    slow = {"time__speeds": [1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 1.0], "method__mixing_rounds": 1}
    runs = {kind: simulate(timed(policy__kind=kind, **slow), keep=False) for kind in ("barrier", "wait", "neighbour")}
    plain = simulate(timed(time__compute="none", time__latency_s=0.0, time__bandwidth=None), keep=False)
    assert "simulated_s" not in plain.timing
    for other in ("wait", "neighbour"):
        np.testing.assert_array_equal(runs["barrier"].states["x"], runs[other].states["x"])
    assert runs["barrier"].timing["simulated_s"].equals(runs["wait"].timing["simulated_s"])
    waits = {kind: run.clients["waiting_s"].drop(2) for kind, run in runs.items()}
    assert (waits["neighbour"] <= waits["barrier"] + 1e-9).all()
    assert runs["neighbour"].timing["simulated_s"].iloc[-1] < runs["barrier"].timing["simulated_s"].iloc[-1]


@pytest.mark.parametrize("per_actor", [1, 3, 7])
def test_by_edges_without_losses_is_the_product_with_the_laplacian(timed, per_actor):
    """(Z2, Z9) against (Z10), on any layout."""
    same = {"topology__kind": "erdos-renyi", "topology__p": 0.5, "method__mixing_rounds": 1}
    complete = simulate(timed(**same), keep=False)
    edges = simulate(timed(policy__kind="lossy", actors__clients_per_actor=per_actor, **same), keep=False)
    np.testing.assert_allclose(complete.states["x"], edges.states["x"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("per_actor", [2, 7])
def test_a_lost_message_leaves_the_receiver_with_what_it_has(timed, per_actor):
    """Against the reference exchange, without data: known values in place of increments."""
    rounds, drop = 8, 0.3
    noise = np.random.default_rng(1).standard_normal((rounds, 7, 21))
    config = timed(
        policy__kind="lossy",
        time__message_drop=drop,
        method__eta=1e-9,
        method__clip=None,
        privacy__mode="none",
        method__final_mixing=0,
        actors__clients_per_actor=per_actor,
    )
    result = simulate(config, keep=False, noise=noise)
    graph = nx.cycle_graph(7)
    gain = 2.0 / (RHO * max(np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))))
    x = np.zeros((7, 21))
    exchange, drawn = EdgeExchange(graph, RHO, x), Delays(DelayModel(3, 7, message_drop=drop))
    dropped = 0
    for k in range(rounds):
        x = x - gain * exchange.correction(x) + noise[k]
        np.testing.assert_allclose(result.states["x"][k], x, atol=1e-6)
        before = exchange.z
        exchange.advance(x)
        lost = drawn.lost_messages(14, k + 1)
        exchange.z = np.where(lost[:, None], before, exchange.z)
        dropped += lost.sum()
    assert dropped > 10


def test_layouts_agree_when_messages_are_lost_and_clients_go_off(timed):
    changes = {"policy__kind": "lossy", "time__message_drop": 0.3, "time__online_s": 2.0, "time__offline_s": 1.0}
    runs = [simulate(timed(actors__clients_per_actor=per, **changes), keep=False) for per in (1, 7)]
    np.testing.assert_allclose(runs[0].states["x"], runs[1].states["x"], rtol=1e-9, atol=1e-12)
    assert runs[0].clients["offline"].sum() > 0


def test_who_is_off_adds_nothing_and_is_not_charged(timed):
    """(Z8) with Δ̃ = 0: on the first round's common start such a client does not move at all."""
    result = simulate(timed(time__online_s=1.0, time__offline_s=2.0), keep=False)
    assert result.ending == "completed"
    first = result.events[(result.events["kind"] == "offline") & (result.events["round"] == 1)]["detail"].iloc[0]
    off = [int(c) for c in first.split("[")[1].split("]")[0].split(",")]
    moved = np.abs(result.states["x"][0]).max(axis=1) > 0
    assert sorted(np.flatnonzero(~moved).tolist()) == off
    assert (result.clients["releases"] + result.clients["offline"] == 8).all()


def test_a_dropout_is_charged_and_adds_nothing(timed):
    result = simulate(timed(time__dropout=0.3), keep=False)
    assert result.clients["dropped"].sum() > 0
    assert result.clients["releases"].tolist() == [8] * 7
    assert result.timing["released"].sum() == 56 - result.clients["dropped"].sum()


@pytest.mark.parametrize("kind", ["neighbour", "lossy"])
def test_both_clocks_give_the_same_run(timed, kind):
    fast = {"policy__kind": kind, "time__mean_s": 0.01, "time__latency_s": 0.001, "actors__clients_per_actor": 3}
    runs = [simulate(timed(time__clock=clock, **fast), keep=False) for clock in ("virtual", "real")]
    np.testing.assert_array_equal(runs[0].states["x"], runs[1].states["x"])
    np.testing.assert_array_equal(runs[0].timing["simulated_s"], runs[1].timing["simulated_s"])


@pytest.mark.parametrize("kind", ["neighbour", "lossy"])
def test_a_stopped_run_goes_on_with_its_clocks_and_messages(timed, kind, tmp_path, stop_after):
    config = timed(policy__kind=kind, record_states=False, method__mixing_rounds=1, method__estimator="gradient")
    config["privacy"], config["method"]["clip"] = {"mode": "none"}, None
    config["method"] |= {"batch_size": 1, "chunk": 1000}  # one component a client: nothing is drawn
    if kind == "lossy":
        config["time"]["message_drop"] = 0.3
    whole = simulate(config, out=tmp_path / "whole")
    simulate(config, out=tmp_path / "parts", listen=stop_after(4))
    gone_on = resume(tmp_path / "parts")
    np.testing.assert_array_equal(whole.model, gone_on.model)
    np.testing.assert_allclose(whole.clients["busy_s"], gone_on.clients["busy_s"])
    np.testing.assert_allclose(whole.clients["waiting_s"], gone_on.clients["waiting_s"])
    np.testing.assert_allclose(whole.timing["simulated_s"], gone_on.timing["simulated_s"])


def test_policies_of_a_server_are_refused(timed):
    with pytest.raises(InvalidValue, match="spade-dfl can take wait, barrier, neighbour, lossy"):
        simulate(timed(policy__kind="async"), keep=False)
