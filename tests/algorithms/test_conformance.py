"""Every method passes the suite that third parties use. A new method is tested by adding one line."""

from __future__ import annotations

import pytest
import torch
from dualfed.algorithms import conformance
from dualfed.algorithms.async_dp_admm import AsyncDPADMM
from dualfed.algorithms.consensus_admm import ConsensusADMM
from dualfed.algorithms.dp_admm import DPADMM
from dualfed.algorithms.dp_fedavg import DPFedAvg
from dualfed.algorithms.dp_sgd import DPSGD
from dualfed.algorithms.fedadmm import FedADMM
from dualfed.algorithms.fedavg import FedAvg
from dualfed.algorithms.fedprox import FedProx
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.algorithms.problems import ModuleProblem
from dualfed.algorithms.scaffold import Scaffold
from dualfed.algorithms.stochastic_dp_admm import StochasticDPADMM
from dualfed.algorithms.two_phase_dp_admm import TwoPhaseDPADMM

COMMON = {"rounds": 5, "local_steps": 2, "batch_size": 3}
METHODS = {
    "fedspd-dp": lambda: FedSPDDP(**COMMON),
    "fedspd-dp, √t": lambda: FedSPDDP(**COMMON, gamma={"value": 2.0, "shape": "sqrt"}),
    "fedspd-dp, independent": lambda: FedSPDDP(**COMMON, batches="independent"),
    "fedspd-dp, iid": lambda: FedSPDDP(**COMMON, batches="iid"),
    "fedspd-dp, full": lambda: FedSPDDP(**COMMON, batches="full"),
    "fedspd-dp, memory": lambda: FedSPDDP(**COMMON, memory=0.5),
    "fedspd-dp, automatic memory": lambda: FedSPDDP(**COMMON, memory="auto"),
    "fedspd-dp, whole clients": lambda: FedSPDDP(**COMMON, increment_clip=0.01),
    "fedspd-dp, whole clients, automatic memory": lambda: FedSPDDP(**COMMON, increment_clip=1.0, memory="auto"),
    "fedspd-dp, paper": lambda: FedSPDDP(**COMMON, state="paper"),
    "dp-sgd": lambda: DPSGD(**COMMON),
    "dp-sgd, full": lambda: DPSGD(**COMMON, batches="full", eta={"value": 0.5, "shape": "inverse-sqrt"}),
    "dp-fedavg": lambda: DPFedAvg(**COMMON, clip=0.1),
    "dp-fedavg, records": lambda: DPFedAvg(**COMMON, unit="record"),
    "dp-fedavg, records, independent": lambda: DPFedAvg(**COMMON, unit="record", batches="independent"),
    "dp-fedavg, records, iid": lambda: DPFedAvg(**COMMON, unit="record", batches="iid"),
    "dp-fedavg, records, full": lambda: DPFedAvg(**COMMON, unit="record", batches="full"),
    "dp-admm": lambda: DPADMM(rounds=5),
    "dp-admm, clipped": lambda: DPADMM(rounds=5, clip=0.2, eta=[1.0, 0.5]),
    "stochastic-dp-admm": lambda: StochasticDPADMM(**COMMON),
    "stochastic-dp-admm, independent": lambda: StochasticDPADMM(**COMMON, batches="independent"),
    "fedavg": lambda: FedAvg(**COMMON),
    "fedprox": lambda: FedProx(**COMMON),
    "scaffold": lambda: Scaffold(**COMMON, eta_g=0.9),
    "fedadmm": lambda: FedADMM(**COMMON),
    "fedadmm, own step": lambda: FedADMM(**COMMON, eta_g=0.5, batches="full"),
    "consensus-admm": lambda: ConsensusADMM(rounds=5),
    "consensus-admm, inexact": lambda: ConsensusADMM(rounds=5, solver="inexact"),
    "async-dp-admm": lambda: AsyncDPADMM(rounds=5, participants=1, staleness=2),
    "two-phase-dp-admm": lambda: TwoPhaseDPADMM(rounds=5),
}


@pytest.mark.parametrize("name", METHODS)
def test_conforms(name):
    conformance.check_server_method(METHODS[name])


def test_conforms_with_a_network():
    problem = ModuleProblem(5, 3, 1.0, model_options={"hidden": [4]})
    conformance.check_server_method(lambda: FedSPDDP(**COMMON, increment_clip=0.5), problem=problem)
    clipped = ModuleProblem(5, 3, 1.0, clip=0.5, model_options={"hidden": [4]})
    conformance.check_server_method(lambda: FedSPDDP(rounds=5, local_steps=1, batch_size=3), problem=clipped)


class Leaky(FedSPDDP):
    """Adds to its release what did not pass the gate."""

    def local_round(self, state, x0, cohort, gate, t):
        new = super().local_round(state, x0, cohort, gate, t)
        return {**new, "x": new["x"] + 1e-6 * cohort.shards.features.sum()}


class Hoarder(FedSPDDP):
    """Says that its state is released, and keeps the unperturbed average."""

    status = "guaranteed"

    def __init__(self):
        super().__init__(**COMMON, state="paper")


class Twice(FedSPDDP):
    """Releases twice under one grant."""

    def local_round(self, state, x0, cohort, gate, t):
        gate.release(torch.zeros_like(x0).expand(len(cohort), -1).clone())
        return super().local_round(state, x0, cohort, gate, t)


def test_the_suite_catches_a_leak():
    with pytest.raises(AssertionError, match="did not pass the gate"):
        conformance.check_releases_only(lambda: Leaky(**COMMON))


def test_the_suite_catches_a_state_that_is_not_released():
    with pytest.raises(AssertionError, match="did not pass the gate"):
        conformance.check_releases_only(Hoarder)


def test_the_gate_catches_a_second_release():
    with pytest.raises(Exception, match="not granted, or is used already"):
        conformance.check_shapes(lambda: Twice(**COMMON))
