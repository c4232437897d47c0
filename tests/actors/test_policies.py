"""Clocks and policies of a server: pure clock tests, and small runs whose rounds are cut off."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dualfed.actors.delays import DelayModel
from dualfed.actors.policies import Policy, close_round
from dualfed.actors.timing import Timekeeper, TimeSettings
from dualfed.errors import InvalidValue
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import resume, simulate

CLIENTS = np.array([2, 5, 7, 9])
NOBODY = np.zeros(4, dtype=bool)


def closed(kind, arrivals, dropped=NOBODY, **options):
    end = close_round(Policy(kind, **options), 1.0, CLIENTS, np.array(arrivals, float), dropped)
    return CLIENTS[end.used].tolist(), CLIENTS[end.late].tolist(), end.at


def test_wait_for_all_ends_with_the_last():
    assert closed("wait", [2, 9, 3, 4]) == ([2, 5, 7, 9], [], 9.0)


def test_the_first_k_count_and_ties_go_to_the_lower_client():
    assert closed("over-select", [2, 4, 4, 9], take=2) == ([2, 5], [7, 9], 4.0)
    assert closed("over-select", [2, 4, 4, 9], np.array([True, False, False, False]), take=2) == ([5, 7], [9], 4.0)
    assert closed("over-select", [2, 4, 4, 9], ~NOBODY, take=2) == ([], [], 9.0)


def test_the_cut_off_passes_and_the_round_goes_on():
    assert closed("deadline", [2, 9, 3, np.inf], deadline_s=2.0) == ([2, 7], [5, 9], 3.0)
    assert closed("deadline", [np.inf] * 4, deadline_s=2.0) == ([], [2, 5, 7, 9], 3.0)
    assert closed("deadline", [2, 2.5, 2, 2], deadline_s=2.0) == ([2, 5, 7, 9], [], 2.5), "nobody is waited for in vain"


def keeper(model, policy=Policy(), n=4):  # noqa: B008 (frozen)
    return Timekeeper(TimeSettings(model, policy, "virtual", 0, 0), n)


def test_time_never_goes_back_and_a_seed_gives_the_same_times():
    def times():
        watch = keeper(DelayModel(4, 4, "pareto", dropout=0.2, online_s=3.0, offline_s=1.0))
        seen = []
        for t in range(1, 40):
            there = watch.present(np.arange(4), t)
            result = watch.round(t, there)
            seen.append((result.began, result.closed, *result.arrivals.tolist()))
        return seen

    first, second = times(), times()
    assert first == second
    ends = [row[1] for row in first]
    assert all(row[0] <= row[1] for row in first)
    assert all(one <= other for one, other in pairwise(ends))


def test_an_offline_client_is_left_out_and_a_round_without_anybody_is_put_off():
    rows = np.array([[1, 0.0, 0], [1, 8.0, 1], [0, 0.5, 0], [0, 6.0, 1]])
    watch = keeper(DelayModel(1, 2, "constant", absences=rows), n=2)
    assert watch.present(np.array([0, 1]), 1).tolist() == [0]
    assert watch.absent.tolist() == [1]
    result = watch.round(1, np.array([0]))
    assert (result.began, result.closed) == (0.0, 6.0), "it is off when it is done and answers when it is back"
    assert watch.present(np.array([1]), 2).tolist() == [1]
    assert watch.round(2, np.array([1])).began == 8.0
    clients, _ = watch.tables()
    assert [row["offline"] for row in clients] == [0, 1]


def test_busy_waiting_and_idle_make_up_the_time():
    watch = keeper(
        DelayModel(1, 4, "constant", speeds=np.array([1, 0.5, 0.25, 0.2])), Policy("deadline", deadline_s=4.5)
    )
    watch.round(1, np.arange(4))
    clients, _ = watch.tables()
    assert watch.now == 4.5
    assert [row["busy_s"] for row in clients] == [1, 2, 4, 4.5]
    assert [row["waiting_s"] for row in clients] == [3.5, 2.5, 0.5, 0]
    assert [row["void_s"] for row in clients] == [0, 0, 0, 4.5]
    assert [row["late"] for row in clients] == [0, 0, 0, 1]


@pytest.fixture
def slow(small):
    """A small run in which clients take Pareto times."""

    def make(**changes):
        times = {"time__compute": "pareto", "time__shape": 1.5, "time__mean_s": 1.0, "time__latency_s": 0.1}
        return small(**{"record_states": True, "method__participants": 4, **times, **changes})

    return make


def test_waiting_for_all_changes_time_and_nothing_else(small, slow):
    plain, timed = simulate(small(record_states=True), keep=False), simulate(slow(), keep=False)
    np.testing.assert_array_equal(plain.states["x"], timed.states["x"])
    assert "simulated_s" not in plain.metrics
    assert (timed.metrics["simulated_s"].diff().dropna() > 0).all()


def moved(result):
    """``[T, N]``: whose state a round changed."""
    x = np.concatenate([np.zeros_like(result.states["x"][:1]), result.states["x"]])
    return np.abs(np.diff(x, axis=0)).max(axis=2) > 0


@pytest.mark.parametrize("policy", [{"policy__kind": "over-select", "policy__extra": 2}, {"policy__kind": "deadline"}])
@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_late_client_is_where_its_last_used_release_left_it_and_its_charge_stands(slow, policy, clock, tmp_path):
    if policy["policy__kind"] == "deadline":
        policy = {**policy, "policy__deadline_s": 0.012}
    fast = {"time__clock": clock, "time__mean_s": 0.01, "time__latency_s": 0.001, "actors__clients_per_actor": 3}
    result = simulate(slow(**policy, **fast), out=tmp_path / "run")
    late = result.events[result.events["kind"] == "late"]
    assert len(late) > 2
    whose = moved(result)
    assert whose.sum() == result.timing["released"].sum()
    for row in late.itertuples():
        listed = [int(c) for c in row.detail.split("[")[1].split("]")[0].split(",")]
        assert not whose[row.round - 1, listed].any()
    if policy["policy__kind"] == "over-select":
        assert (whose.sum(axis=1) == 4).all()
    charged = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite").participations
    assert charged.sum() == result.timing["participants"].sum() > whose.sum()
    np.testing.assert_array_equal(result.clients["releases"], charged)
    assert result.clients["late"].sum() == charged.sum() - whose.sum()


@pytest.mark.parametrize("policy", [{"policy__kind": "over-select", "policy__extra": 2}, {"policy__kind": "wait"}])
def test_both_clocks_give_the_same_trajectory(slow, policy):
    fast = {
        **policy,
        "time__mean_s": 0.01,
        "time__latency_s": 0.0,
        "time__dropout": 0.2,
        "actors__clients_per_actor": 3,
    }
    virtual = simulate(slow(**fast), keep=False)
    real = simulate(slow(**fast, time__clock="real"), keep=False)
    np.testing.assert_array_equal(virtual.states["x"], real.states["x"])
    np.testing.assert_array_equal(virtual.metrics["simulated_s"], real.metrics["simulated_s"])
    assert virtual.clients["epsilon"].tolist() == real.clients["epsilon"].tolist()
    assert virtual.clients["dropped"].sum() > 0


@pytest.mark.slow
def test_real_seconds_are_the_simulated_ones(slow):
    changes = {"partition__clients": 20, "partition__min_size": 15, "time__mean_s": 0.15, "time__shape": 3.0}
    result = simulate(
        slow(method__participants=20, time__clock="real", actors__clients_per_actor=5, **changes), keep=False
    )
    simulated = float(result.metrics["simulated_s"].iloc[-1])
    assert simulated > 2
    assert result.timing["seconds"].sum() == pytest.approx(simulated, rel=0.05)


def test_a_calibrated_plan_counts_everyone_who_begins(slow):
    result = simulate(
        slow(policy__kind="over-select", policy__extra=2, privacy__mode="total", privacy__epsilon=2.0), keep=False
    )
    assert result.clients["releases"].sum() == 60
    assert (result.clients["epsilon"] <= 2.0).all()
    assert (result.events["kind"] != "refused").all()


def test_a_cap_is_what_noise_is_solved_for_and_the_ledger_keeps_it(slow, small):
    capped = simulate(slow(policy__cap=3, privacy__mode="total", privacy__epsilon=2.0), keep=False)
    free = simulate(small(privacy__mode="total", privacy__epsilon=2.0), keep=False)
    assert capped.clients["releases"].max() == 3
    assert capped.clients["noise_multiplier"].max() < free.clients["noise_multiplier"].max()
    assert (capped.clients["epsilon"] <= 2.0).all()
    assert capped.clients["epsilon"].max() > 1.9
    refused = capped.events[capped.events["kind"] == "refused"]
    assert refused["detail"].str.contains("planned participations are used up").all()
    assert len(refused)


def test_churn_and_dropouts_leave_events_and_the_run_goes_on(slow):
    result = simulate(slow(time__online_s=3.0, time__offline_s=3.0, time__dropout=0.2), keep=False)
    assert result.ending == "completed"
    assert {"offline", "dropped"} <= set(result.events["kind"])
    assert result.clients["offline"].sum() > 0
    assert result.timing["participants"].sum() == result.clients["releases"].sum() < 40, "who is off is not charged"


def test_a_stopped_run_goes_on_at_its_time(slow, tmp_path, stop_after):
    config = slow(
        policy__kind="over-select", policy__extra=2, time__online_s=3.0, time__offline_s=1.0, record_states=False
    )
    config["privacy"], config["method"]["batches"] = {"mode": "none"}, "full"  # draws follow the numbers of grants
    whole = simulate(config, out=tmp_path / "whole")
    assert simulate(config, out=tmp_path / "parts", listen=stop_after(5)).ending == "stopped"
    gone_on = resume(tmp_path / "parts")
    for name in ("busy_s", "waiting_s", "idle_s", "late", "offline", "epsilon"):
        np.testing.assert_allclose(whole.clients[name], gone_on.clients[name], err_msg=name)
    np.testing.assert_allclose(whole.metrics["simulated_s"], gone_on.metrics["simulated_s"])
    np.testing.assert_allclose(whole.model, gone_on.model, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"policy__kind": "neighbour"}, "fedspd-dp can take wait, over-select, deadline, async"),
        ({"policy__kind": "over-select"}, "give from 1 to 3"),
        ({"policy__kind": "deadline"}, "deadline_s"),
        ({"policy__kind": "async", "policy__buffer": 5}, "4 clients are at work"),
        ({"policy__kind": "async", "privacy__mode": "total"}, "state the most participations"),
        ({"time__trace": "nowhere.csv"}, 'compute = "trace" only'),
        ({"time__compute": "trace", "time__trace": "nowhere.csv"}, "cannot be read: No such file"),
        ({"time__speeds": [1.0, 2.0]}, "give one for each of the 7 clients"),
        ({"time__speeds": [1.0, 0.0]}, "finite numbers > 0"),
        ({"time__online_s": 2.0}, "together, or neither"),
        ({"time__message_drop": 0.5}, "lossy"),
        ({"time__dropout": 1.0}, "to below 1"),
    ],
)
def test_what_a_person_gets_wrong_is_one_sentence_before_anything_runs(slow, changes, sentence, tmp_path):
    with pytest.raises(InvalidValue, match=sentence) as raised:
        simulate(slow(**changes), out=tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_a_trace_drives_the_run_and_must_hold_every_time(slow, tmp_path):
    lines = [f"{client},{t},{client + 1}" for client in range(7) for t in range(1, 11)]
    (tmp_path / "all.csv").write_text("\n".join(["client,round,seconds", *lines]))
    (tmp_path / "short.csv").write_text("\n".join(["client,round,seconds", *lines[:-1]]))
    everyone = {"method__participants": 7, "time__compute": "trace", "time__latency_s": 0.0}
    result = simulate(slow(**everyone, time__trace=str(tmp_path / "all.csv")), keep=False)
    assert result.metrics["simulated_s"].iloc[-1] == 70.0
    with pytest.raises(InvalidValue, match=r"no row for client 6.*round 10"):
        simulate(slow(**everyone, time__trace=str(tmp_path / "short.csv")), keep=False)
    (tmp_path / "gap.csv").write_text("client,round,seconds\n0,1,\n")
    with pytest.raises(InvalidValue, match="line 2 has no number under seconds"):
        simulate(slow(**everyone, time__trace=str(tmp_path / "gap.csv")), keep=False)
