"""References reach the centralised optimum, or the bias that is known of them; private ones without noise are their own
non-private forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.algorithms.async_dp_admm import AsyncDPADMM
from dualfed.algorithms.consensus_admm import ConsensusADMM
from dualfed.algorithms.dp_admm import DPADMM
from dualfed.algorithms.dp_fedavg import DPFedAvg
from dualfed.algorithms.dp_sgd import DPSGD
from dualfed.algorithms.fedadmm import FedADMM
from dualfed.algorithms.fedavg import FedAvg
from dualfed.algorithms.fedprox import FedProx
from dualfed.algorithms.problems import make_problem
from dualfed.algorithms.regularisers import L1, L2
from dualfed.algorithms.scaffold import Scaffold
from dualfed.algorithms.shards import Shards
from dualfed.algorithms.stochastic_dp_admm import StochasticDPADMM
from dualfed.algorithms.two_phase_dp_admm import TwoPhaseDPADMM
from dualfed.keys import generator

FULL = {"batches": "full"}
SOME = [[0, 1], [2], [1, 2], [0]]
EXACT = {
    "scaffold": (Scaffold(**FULL, local_steps=4, eta=0.5), None),
    "scaffold, some": (Scaffold(**FULL, local_steps=4, eta=0.3), SOME),
    "fedadmm": (FedADMM(**FULL, local_steps=4, rho=0.1), None),
    "fedadmm, some": (FedADMM(**FULL, local_steps=4, rho=0.1), SOME),
    "consensus-admm": (ConsensusADMM(rho=0.1, tolerance=1e-10), None),
    "consensus-admm, some": (ConsensusADMM(rho=0.1, tolerance=1e-10), SOME),
    "consensus-admm, inexact": (ConsensusADMM(rho=0.1, solver="inexact", gamma=0.6), None),
    "fedavg, one step": (FedAvg(**FULL, local_steps=1, eta=1.0), None),
    "fedprox, one step": (FedProx(**FULL, local_steps=1, eta=1.0), None),
    "dp-admm": (DPADMM(rho=0.1, eta=2.0), None),
    "dp-admm, some": (DPADMM(rho=0.1, eta=2.0), SOME),
    "async-dp-admm": (AsyncDPADMM(rho=0.3, eta=2.0, share=0.5), SOME),
    "stochastic-dp-admm": (StochasticDPADMM(**FULL, local_steps=3, eta=1.5, rho=0.1), None),
}


@pytest.mark.parametrize("name", EXACT)
def test_it_reaches_the_optimum_of_clients_that_pull_apart(name, server):
    method, participants = EXACT[name]
    problem, shards = server.world(seed=2, regulariser=L2(0.05), spread=0.8)
    best = server.objective(problem, shards, server.optimum(problem, shards))
    assert server.objective(problem, shards, np.zeros(problem.dim)) > best + 0.01
    reached = server.objective(problem, shards, server.play(method, problem, shards, 900, participants=participants))
    assert reached - best < 1e-7
    assert reached > best - 1e-10


@pytest.mark.parametrize(
    "method",
    [
        ConsensusADMM(rho=0.3, tolerance=1e-10),
        FedADMM(**FULL, local_steps=4, rho=0.1),
        StochasticDPADMM(**FULL, eta=1.5),
    ],
    ids=lambda method: method.name,
)
def test_a_corner_is_no_obstacle_where_the_step_is_proximal(method, server):
    """The optimum of an ℓ1 problem has exact zeros: checked by its own optimality condition."""
    problem, shards = server.world(seed=3, regulariser=L1(0.03), spread=0.5)
    x = torch.from_numpy(server.play(method, problem, shards, 1500))
    slots = torch.arange(3)
    gradient = problem.full_gradient(x.expand(3, -1).contiguous(), shards, slots).mean(0)
    off = x.abs() < 1e-6
    assert bool(off.any())
    assert not bool(off.all())
    torch.testing.assert_close(gradient[~off], -0.03 * x[~off].sign(), rtol=0, atol=1e-5)
    assert float(gradient[off].abs().max()) <= 0.03 + 1e-5


def regression(seed=0):
    draw = generator(b"test", "regression", round=seed)
    features = draw.standard_normal((45, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    targets = features @ draw.standard_normal(3) + np.repeat([-1.0, 0.5, 2.0], 15)
    shards = Shards.from_flat(features, targets, np.array([0, 15, 30, 45]))
    parts = [(features[15 * i : 15 * i + 15], targets[15 * i : 15 * i + 15]) for i in range(3)]
    return make_problem("least-squares", 3, 1, 1.0), shards, parts


@pytest.mark.parametrize("steps", [1, 6])
def test_the_bias_of_fedavg_is_the_known_one(steps, server):
    """On quadratics x⁺ = mean_i [ x_i* + (I − ηA_i)^Q (x − x_i*) ], whose fixed point is not the optimum for Q > 1."""
    problem, shards, parts = regression()
    eta, pull, offset = 0.8, np.zeros((3, 3)), np.zeros(3)
    for a, b in parts:
        hessian, star = a.T @ a / len(a), np.linalg.lstsq(a, b, rcond=None)[0]
        shrink = np.linalg.matrix_power(np.eye(3) - eta * hessian, steps)
        pull += shrink / 3
        offset += (np.eye(3) - shrink) @ star / 3
    expected = np.linalg.solve(np.eye(3) - pull, offset)
    reached = server.play(FedAvg(**FULL, local_steps=steps, eta=eta), problem, shards, 400)
    np.testing.assert_allclose(reached, expected, atol=1e-9)
    best = server.optimum(problem, shards)
    assert (np.linalg.norm(expected - best) < 1e-6) == (steps == 1)


def test_fedprox_rests_where_the_proximal_points_balance(server):
    """With many local steps FedProx is x⁺ = mean_i prox_{f_i/μ}(x): it minimises the mean of Moreau envelopes."""
    problem, shards, parts = regression(1)
    mu, matrix, vector = 0.5, np.zeros((3, 3)), np.zeros(3)
    for a, b in parts:
        inverse = np.linalg.inv(a.T @ a / len(a) + mu * np.eye(3))
        matrix += mu * inverse / 3
        vector += inverse @ (a.T @ b / len(a)) / 3
    expected = np.linalg.solve(np.eye(3) - matrix, vector)
    reached = server.play(FedProx(**FULL, local_steps=150, eta=0.5, mu=mu), problem, shards, 150)
    np.testing.assert_allclose(reached, expected, atol=1e-7)


COMMON = {"local_steps": 3, "batch_size": 3}
TWINS = {
    "dp-sgd": (DPSGD(**COMMON, clip=None, eta=0.7), FedAvg(**COMMON, batches="independent", eta=0.7)),
    "dp-sgd, clip": (DPSGD(**COMMON, clip=1e6, eta=0.7), FedAvg(**COMMON, batches="independent", eta=0.7)),
    "dp-fedavg": (DPFedAvg(**COMMON, clip=1e6), FedAvg(**COMMON)),
    "dp-fedavg, records": (DPFedAvg(**COMMON, unit="record"), FedAvg(**COMMON)),
    "dp-admm": (DPADMM(rho=0.4, eta=2.0), ConsensusADMM(rho=0.4, solver="inexact", gamma=0.5)),
    "stochastic-dp-admm": (
        StochasticDPADMM(rho=0.4, eta=2.0, **FULL, local_steps=1),
        ConsensusADMM(rho=0.4, solver="inexact", gamma=0.5),
    ),
    "two-phase-dp-admm": (TwoPhaseDPADMM(rho=0.4, eta=2.0), ConsensusADMM(rho=0.4, solver="inexact", gamma=0.5)),
    "async-dp-admm": (AsyncDPADMM(rho=0.4, eta=2.0, share=1.0), ConsensusADMM(rho=0.4, solver="inexact", gamma=0.5)),
    "fedprox": (FedProx(**COMMON, mu=0.0), FedAvg(**COMMON)),
}


@pytest.mark.parametrize("name", TWINS)
def test_without_noise_it_is_its_own_reference(name, server):
    problem, shards = server.world(seed=4)
    (one, other), trails = TWINS[name], ([], [])
    for method, trail in zip((one, other), trails):
        server.play(method, problem, shards, 6, participants=[[0, 1, 2], [0, 2], [1, 2]], record=trail)
    torch.testing.assert_close(torch.stack(trails[0]), torch.stack(trails[1]), rtol=1e-9, atol=1e-12)
    assert float(trails[0][-1].norm()) > 0.01
