"""The Ray engine: the same numbers as in one process, processes that are killed, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from dualfed.actors.cluster import local_cluster
from dualfed.actors.loop import ClientFailed
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.algorithms.spade_dfl import SPADEDFL
from dualfed.errors import DualfedError
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import simulate

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
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
class MortalServerMethod(FedSPDDP):
    """Kills the process of client 3 in the middle of round 5, after its batches were drawn."""

    marker: str = ""

    def local_round(self, state, x0, cohort, gate, t):
        new = super().local_round(state, x0, cohort, gate, t)
        if t == 5:
            die_once(self.marker, 3, cohort)
        return new


@dataclass(frozen=True)
class MortalGraphMethod(SPADEDFL):
    """The same over a graph."""

    marker: str = ""

    def increment(self, state, pull, cohort, gate, t):
        if t == 5:
            die_once(self.marker, 3, cohort)
        return super().increment(state, pull, cohort, gate, t)


@pytest.mark.parametrize("kind", ["small", "graph_run"])
@pytest.mark.parametrize("per_actor", [3, "auto"])
def test_the_numbers_are_those_of_one_process(kind, per_actor, request):
    make = request.getfixturevalue(kind)
    inline = simulate(make(actors__clients_per_actor=1), keep=False)
    distributed = simulate(make(engine="ray", actors__clients_per_actor=per_actor), keep=False)
    for table in ("metrics", "diagnostics"):
        one, other = getattr(inline, table), getattr(distributed, table)
        np.testing.assert_allclose(one.to_numpy(float), other.to_numpy(float), rtol=1e-5, atol=1e-9)
    assert inline.clients["epsilon"].tolist() == distributed.clients["epsilon"].tolist()


def test_the_same_layout_twice_gives_the_same_bytes(small, tmp_path):
    for name in ("a", "b"):
        simulate(small(engine="ray", actors__clients_per_actor=4), out=tmp_path / name)
    assert (tmp_path / "a" / "metrics.parquet").read_bytes() == (tmp_path / "b" / "metrics.parquet").read_bytes()


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_a_killed_host_costs_its_charge_and_nothing_else(kind, request, tmp_path):
    """The run with a loss is, to rounding, one in which the lost clients were silent in that round."""
    make = request.getfixturevalue(kind)
    # Without mixing the silence shows in its own clients alone until the next round.
    parameters_drop = ("name", "participants", "mixing_rounds", "final_mixing")
    chosen = MortalServerMethod if kind == "small" else MortalGraphMethod
    parameters = {name: value for name, value in make()["method"].items() if name not in parameters_drop}
    method = chosen(**parameters, marker=str(tmp_path / "died"))
    config = make(
        engine="ray",
        actors__clients_per_actor=3,
        privacy__mode="noise-multiplier",
        record_states=True,
        privacy__noise_multiplier=2.0,
    )
    result = simulate(config, out=tmp_path / "run", method=method)
    assert result.ending == "completed"
    lost = result.events[result.events["kind"] == "lost"]
    assert lost["round"].tolist() == [5]
    assert "rebuilt" in result.events["kind"].to_list()
    silent = [int(client) for client in re.findall(r"\d+", lost["detail"].iloc[0].split("clients: ")[1].split("]")[0])]
    assert 3 in silent
    assert result.metrics["lost"].iloc[-1] == len(silent)
    assert result.timing["released"].sum() == 7 * method.rounds - len(silent)
    ledger = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite")
    assert ledger.participations.tolist() == [method.rounds] * 7, "the charge of a lost release stands"
    assert not (tmp_path / "run" / "state").exists()

    x, before = result.states["x"][4], result.states["x"][3]
    others = [client for client in range(7) if client not in silent]
    undisturbed = simulate({**config, "engine": "inline"}, keep=False, method=type(method).__bases__[0](**parameters))
    np.testing.assert_allclose(x[others], undisturbed.states["x"][4][others], rtol=1e-9, atol=1e-12)
    if kind == "small":
        assert (x[silent] == before[silent]).all()
    else:
        # (Z8) with Δ̃ = 0: what the others moved beyond consensus, the silent did not.
        assert np.abs(x[silent] - undisturbed.states["x"][4][silent]).max() > 1e-6


class Explodes(FedSPDDP):
    """Raises in round 2."""

    def local_round(self, state, x0, cohort, gate, t):
        if t == 2:
            raise KeyError("a defect of the method")
        return super().local_round(state, x0, cohort, gate, t)


def test_the_first_error_of_a_client_is_shown_with_its_place(small):
    method = Explodes(rounds=3, local_steps=2, batch_size=3)
    for engine in ("inline", "ray"):
        with pytest.raises(ClientFailed, match=r"clients 0.*round 2") as raised:
            simulate(small(engine=engine, actors__clients_per_actor=7), keep=False, method=method)
        assert "a defect of the method" in str(raised.value)
        assert "local_round" in str(raised.value)


class Diverges(FedSPDDP):
    """Comes to infinity in round 2, for its last client."""

    def local_round(self, state, x0, cohort, gate, t):
        if t == 2:
            value = torch.zeros(len(cohort), len(x0), dtype=x0.dtype)
            value[-1, 0] = float("inf")
            gate.release(value)
        return super().local_round(state, x0, cohort, gate, t)


def test_a_value_that_is_not_finite_is_one_sentence(small):
    method = Diverges(rounds=3, local_steps=2, batch_size=3)
    with pytest.raises(DualfedError, match=r"client 6, round 2: .* not finite") as raised:
        simulate(small(engine="ray", actors__clients_per_actor=7), keep=False, method=method)
    assert "\n" not in str(raised.value)


def test_coordinator_and_ledger_do_not_import_torch(small):
    import ray
    from dualfed.actors import ray_run

    @ray.remote(num_cpus=0)
    def modules():
        import sys

        from dualfed.actors import coordinator, graph_coordinator, job, plan  # noqa: F401
        from dualfed.actors.ledger_actor import LedgerActor  # noqa: F401
        from dualfed.actors.ray_run import CoordinatorActor  # noqa: F401
        from dualfed.actors.run_ledger import RunLedger  # noqa: F401

        return "torch" in sys.modules

    assert ray_run
    assert not ray.get(modules.remote())
