"""Runs of methods with a server: whole tables across layouts and stops, what the ledger holds, and lost hosts.

What every method must pass in a run is in ``tests/runs/test_conformance.py``.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, fields

import numpy as np
import pytest
from dualfed.actors.cluster import local_cluster
from dualfed.actors.planning import Noise, make_plan
from dualfed.algorithms.dp_fedavg import DPFedAvg
from dualfed.algorithms.problems import make_problem
from dualfed.algorithms.registry import make_method, method_class, method_names
from dualfed.algorithms.scaffold import Scaffold
from dualfed.algorithms.two_phase_dp_admm import TwoPhaseDPADMM
from dualfed.errors import InvalidValue
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.events import GaussianEvent, SubsampledEvent
from dualfed.privacy.profiles import gaussian_epsilon
from dualfed.runs.simulate import resume, simulate

OURS = [name for name in method_names() if method_class(name).family == "server" and name != "fedspd-dp"]
PRIVATE = [name for name in OURS if method_class(name).private]
USUAL = {"rounds": 6, "participants": 4, "local_steps": 2, "batch_size": 5}


@pytest.fixture
def run_of(small):
    """``run_of(name, …)``: the configuration of a small run of a method, with noise where it knows of any."""

    def make(name, **changes):
        known = {field.name for field in fields(method_class(name))}
        method = {"name": name, **{field: value for field, value in USUAL.items() if field in known}}
        privacy = {"mode": "noise-multiplier", "noise_multiplier": 2.0}
        if not method_class(name).private:
            privacy = {"mode": "none"}
        return small(**{"method": method, "privacy": privacy, **changes})

    return make


@pytest.mark.parametrize("name", ["scaffold", "two-phase-dp-admm"])  # the server has a state; the records are opened
def test_numbers_do_not_depend_on_the_layout(name, run_of):
    one, three = (
        simulate(run_of(name, record_states=True, actors__clients_per_actor=per_actor), keep=False)
        for per_actor in (7, 3)
    )
    np.testing.assert_allclose(one.metrics.to_numpy(float), three.metrics.to_numpy(float), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one.diagnostics.to_numpy(float), three.diagnostics.to_numpy(float), rtol=1e-8, atol=1e-8)
    for kept, recorded in one.states.items():
        np.testing.assert_allclose(recorded, three.states[kept], rtol=1e-9, atol=1e-11, err_msg=kept)


@pytest.mark.parametrize("name", [name for name in OURS if name not in PRIVATE])
def test_a_reference_refuses_a_budget(name, run_of, tmp_path):
    with pytest.raises(InvalidValue, match=r"privacy.mode.*reference without privacy"):
        simulate(run_of(name, privacy={"mode": "total", "epsilon": 8.0}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", PRIVATE)
def test_a_planned_budget_is_kept_and_used_up(name, run_of):
    result = simulate(run_of(name, privacy={"mode": "total", "epsilon": 3.0}), keep=False)
    assert result.ending == "completed"
    spent = result.clients["epsilon"][result.clients["releases"] > 0]
    assert (spent <= 3.0).all()
    assert (spent > 2.9).all()


def test_each_upload_of_an_asynchronous_client_is_charged_and_no_other(run_of):
    """ε of n uploads at noise multiplier z is that of one Gaussian of shift √n/z; most upload half of the coordinates."""
    config = run_of("async-dp-admm", method__rounds=12, method__participants=2, method__staleness=6)
    result = simulate(config, keep=False)
    expected = np.zeros(7, dtype=int)
    for come in make_method(config["method"]).participation(12, 7, config["seed"]):
        expected[come] += 1
    assert result.clients["releases"].tolist() == expected.tolist()
    assert len(set(expected)) > 1
    for uploads, epsilon in zip(expected, result.clients["epsilon"]):
        assert epsilon == pytest.approx(gaussian_epsilon(1e-5, np.sqrt(uploads) / 2.0), rel=1e-6)
    numbers = len(result.model)
    assert result.metrics["bytes_up"].iloc[-1] == expected.sum() * -(-numbers // 2) * 8
    assert result.metrics["bytes_down"].iloc[-1] == expected.sum() * numbers * 8


def test_two_phases_cost_one_gaussian_however_many_rounds(run_of):
    for rounds in (2, 9):
        result = simulate(run_of("two-phase-dp-admm", method__rounds=rounds, method__participants=7), keep=False)
        assert result.clients["releases"].tolist() == [1] * 7
        assert result.clients["epsilon"].tolist() == pytest.approx([gaussian_epsilon(1e-5, 0.5)] * 7, rel=1e-6)
        assert result.metrics["epsilon_max"].tolist() == pytest.approx(
            [gaussian_epsilon(1e-5, 0.5)] * len(result.metrics)
        )


def test_who_cannot_pay_for_its_records_takes_no_part(run_of):
    config = run_of("two-phase-dp-admm", privacy__budget=0.1)
    result = simulate(config, keep=False)
    assert result.ending == "exhausted"
    assert result.clients["releases"].sum() == 0
    assert result.metrics["bytes_up"].iloc[-1] == 0


@pytest.mark.parametrize("calibration", ["classic", "analytic"])
def test_a_round_of_several_noised_steps_costs_what_one_release_may(calibration):
    """At per-round (0.1, 1e−4) every method gets the same budget a round: the Q steps of DP-SGD share it."""
    problem, sizes = make_problem("softmax", 4, 3, 1.0), np.array([50, 50])
    noise = Noise("per-round", epsilon=0.1, round_delta=1e-4, calibration=calibration)
    participants = [np.arange(2)] * 3
    plans = {
        name: make_plan(make_method({"name": name, "rounds": 3}), problem, sizes, np.ones(2), participants, noise)
        for name in ("dp-admm", "dp-sgd")
    }
    one, several = (plans[name].noise_multipliers[0] for name in ("dp-admm", "dp-sgd"))
    assert several == pytest.approx(np.sqrt(5) * one)
    if calibration == "classic":
        assert one == pytest.approx(np.sqrt(2 * np.log(1.25 / 1e-4)) / 0.1)
    assert gaussian_epsilon(1e-4, np.sqrt(5) / several) <= 0.1 * (1 + 1e-9)


@dataclass(frozen=True)
class Scheduled(DPFedAvg):
    """Noise by a schedule of its own."""

    factor: float = 2.0

    def noise_growth(self, t):
        return self.factor ** (t - 1)


def test_every_event_of_a_schedule_states_the_noise_that_is_added():
    problem, sizes = make_problem("softmax", 4, 3, 1.0), np.array([50, 50])
    noise, participants = Noise("noise-multiplier", noise_multiplier=1.5), [np.arange(2)] * 4
    plan = make_plan(Scheduled(rounds=4), problem, sizes, np.ones(2), participants, noise)
    assert [event.noise_multiplier for event in plan.events] == plan.multipliers.tolist() == [1.5, 3.0, 6.0, 12.0]
    # Where arrivals decide, a client's starts are in rounds that nobody knows: which noise is theirs cannot be planned.
    with pytest.raises(InvalidValue, match="schedule of noise"):
        make_plan(Scheduled(rounds=4), problem, sizes, np.ones(2), participants, noise, cap=2, arrivals_decide=True)


def test_noise_that_falls_is_solved_for_many_different_accounts():
    """With more accounts than are solved one by one, too: no event of a schedule stands for the others."""
    problem, clients = make_problem("softmax", 4, 3, 1.0), 60
    sizes, rounds = np.full(clients, 50), 8
    draw = np.random.default_rng(1)
    participants = [np.flatnonzero(draw.random(clients) < 0.5) for _ in range(rounds)]
    noise, method = Noise("total", epsilon=3.0), Scheduled(rounds=rounds, factor=0.8)
    plan = make_plan(method, problem, sizes, np.ones(clients), participants, noise)
    for row in np.unique(plan.planned, axis=0):
        account = {plan.events[event]: int(row[event]) for event in np.flatnonzero(row)}
        assert Accountant(rdp=False).bound(account, noise.delta) <= 3.0 * (1 + 1e-9)


def test_dp_sgd_costs_no_more_than_an_independent_accountant_says(run_of):
    """Rényi accounting of sampling without replacement by dp-accounting, all steps of all rounds; and the noise is not
    hidden by more than sampling can hide."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    config = run_of("dp-sgd", partition={"scheme": "iid", "clients": 3}, method__participants=None, method__rounds=20)
    config["method"].pop("participants")
    config["privacy"]["noise_multiplier"] = 1.0
    result = simulate(config, keep=False)
    size = int(result.clients["records"][0])
    account = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    step = dp_accounting.SampledWithoutReplacementDpEvent(size, 5, dp_accounting.GaussianDpEvent(1.0))
    account.compose(step, 20 * 2)
    independent = account.get_epsilon(1e-5)
    assert result.epsilon <= independent * 1.02  # the plan rounds sampling rates up by as much
    assert result.epsilon > 0.5 * independent
    event = SubsampledEvent(rate=5 / size, steps=2, noise_multiplier=1.0)
    unamplified = Accountant().epsilon({GaussianEvent(noise_multiplier=1.0): 40}, 1e-5).epsilon
    assert Accountant().epsilon({event: 20}, 1e-5).epsilon < unamplified / 3


@pytest.mark.parametrize("name", ["dp-admm", "scaffold", "two-phase-dp-admm"])
def test_a_stopped_run_goes_on_where_it_was(name, run_of, tmp_path, stop_after):
    config = run_of(name)
    if "batches" in {field.name for field in fields(method_class(name))}:
        config["method"]["batches"] = "full"
    if (
        name != "two-phase-dp-admm"
    ):  # whose released records a checkpoint keeps; elsewhere noise is drawn for every grant
        config["privacy"] = {"mode": "none"}
    whole = simulate(config, out=tmp_path / "whole")
    stopped = simulate(config, out=tmp_path / "parts", listen=stop_after(3))
    assert stopped.ending == "stopped"
    gone_on = resume(tmp_path / "parts")
    assert gone_on.ending == "completed"
    assert (gone_on.model == whole.model).all()
    assert gone_on.clients["releases"].tolist() == whole.clients["releases"].tolist()
    for table in ("metrics.parquet", "diagnostics.parquet"):
        assert (tmp_path / "parts" / table).read_bytes() == (tmp_path / "whole" / table).read_bytes(), table


def test_released_records_go_with_their_client_to_another_layout(run_of, tmp_path, stop_after):
    config = run_of("two-phase-dp-admm", actors__clients_per_actor=3)
    whole = simulate(config, out=tmp_path / "whole")
    simulate(config, out=tmp_path / "parts", listen=stop_after(3))
    written = tmp_path / "parts" / "config.toml"
    written.write_text(written.read_text().replace("clients_per_actor = 3", "clients_per_actor = 2"))
    gone_on = resume(tmp_path / "parts")
    np.testing.assert_allclose(gone_on.model, whole.model, rtol=1e-9)
    assert gone_on.clients["releases"].tolist() == whole.clients["releases"].tolist()


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(2):
        from ray import cloudpickle

        # Workers cannot import a test module: its classes travel by value, as those of a user's script do.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield


def die_once(marker, client, cohort):
    """End this process, the first time that it works for ``client``."""
    if client in cohort.clients.tolist() and not os.path.exists(marker):
        with open(marker, "w"):
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class MortalScaffold(Scaffold):
    """Kills the process of client 3 in the middle of round 4, after its release."""

    marker: str = ""

    def local_round(self, state, x0, cohort, gate, t):
        new = super().local_round(state, x0, cohort, gate, t)
        if t == 4:
            die_once(self.marker, 3, cohort)
        return new


@dataclass(frozen=True)
class MortalTwoPhase(TwoPhaseDPADMM):
    """The same, and once more while the records are opened."""

    marker: str = ""

    def open(self, cohort, gate):
        opened = super().open(cohort, gate)
        die_once(f"{self.marker}-opening", 3, cohort)
        return opened

    def local_round(self, state, x0, cohort, gate, t):
        new = super().local_round(state, x0, cohort, gate, t)
        if t == 4:
            die_once(self.marker, 3, cohort)
        return new


@pytest.mark.ray
@pytest.mark.parametrize("kind", [MortalScaffold, MortalTwoPhase])
def test_a_lost_host_misses_its_round_and_nothing_else(kind, cluster, small, tmp_path):
    """The run with a loss is one in which its clients did not come in that round; records are opened once for all."""
    marker = str(tmp_path / "died")
    own = {"batches": "full", "local_steps": 2} if kind is MortalScaffold else {}
    privacy = {"mode": "none"} if kind is MortalScaffold else {"mode": "noise-multiplier", "noise_multiplier": 2.0}
    config = small(engine="ray", actors__clients_per_actor=3, privacy=privacy)
    result = simulate(config, out=tmp_path / "run", method=kind(rounds=6, marker=marker, **own))
    assert result.ending == "completed"
    lost = result.events[result.events["kind"] == "lost"]
    assert lost["round"].tolist() == ([4] if kind is MortalScaffold else [1, 4])
    assert not (tmp_path / "run" / "state").exists()
    everyone = list(range(7))
    hosts = [everyone[:3], everyone[3:5], everyone[5:]]
    mine = next(members for members in hosts if 3 in members)
    came = [everyone if t != 4 else [client for client in everyone if client not in mine] for t in range(1, 7)]
    same = {**config, "engine": "inline"}
    quiet = simulate(same, keep=False, method=kind.__base__(rounds=6, **own), participation=came)
    np.testing.assert_allclose(result.model, quiet.model, rtol=1e-7, atol=1e-10)
    charged = [6] * 7 if kind is MortalScaffold else [1] * 7
    assert result.clients["releases"].tolist() == charged


@pytest.mark.ray
@pytest.mark.parametrize("name", ["dp-sgd", "two-phase-dp-admm"])
def test_actors_give_the_numbers_of_one_process(name, cluster, run_of):
    inline = simulate(run_of(name, actors__clients_per_actor=3), keep=False)
    distributed = simulate(run_of(name, engine="ray", actors__clients_per_actor=3), keep=False)
    for table in ("metrics", "diagnostics"):
        one, other = getattr(inline, table), getattr(distributed, table)
        np.testing.assert_allclose(one.to_numpy(float), other.to_numpy(float), rtol=1e-5, atol=1e-9)
