"""Exact parameters and repeated releases through the methods' own code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.algorithms.spade_dfl import SPADEDFL
from dualfed.errors import InvalidValue
from dualfed.keys import generator, noise_key
from dualfed.privacy.accountants import total_shift
from dualfed.privacy.events import EpochEvent
from dualfed.privacy.gate import Granted
from dualfed.privacy.profiles import position_shares
from dualfed.runs.audit_pairs import (
    candidate_pairs,
    crowded_pair,
    opposite_clients,
    random_pair,
    saturated_pair,
    unit_rows,
)
from dualfed.runs.audit_replay import WatchedGate, account_of, batch_shifts, exact_mu, log_ratios, settled
from dualfed.runs.audit_search import search_neighbours


def full(**given):
    return FedSPDDP(**{"rounds": 100, "batches": "full", "local_steps": 1, **given})


@pytest.mark.parametrize("changes", [{}, {"gamma": 20.0}, {"local_steps": 5, "rho": 0.3}, {"gamma": {"shape": "sqrt"}}])
def test_released_states_stay_below_the_claim_and_reach_it(changes):
    """m = 100, d = 20, T = 100, z = 1: the claim is μ = √T/z = 10."""
    method, pairs = full(**changes), saturated_pair(100, 20)
    claim = total_shift(account_of(method, pairs, 1.0))
    assert claim == pytest.approx(10.0)
    found = exact_mu(method, pairs, 1.0)[0]
    assert 0.99 * claim < found <= claim
    assert exact_mu(method, random_pair(generator(b"test", "pair"), 100, 20), 1.0)[0] < claim


@pytest.mark.parametrize(("ratio", "least"), [(10.0, 5.0), (20.0, 10.0)])
def test_the_published_form_exceeds_its_claim(ratio, least):
    method, pairs = full(gamma=ratio, state="paper"), saturated_pair(100, 20)
    assert exact_mu(method, pairs, 1.0)[0] > least * 10
    assert exact_mu(method, pairs, 1.0)[0] < (ratio + 1) / 2 * 10 * 1.2
    event = next(iter(account_of(method, pairs, 1.0)))
    assert event.status == "claimed"


def test_no_pair_of_many_passes_the_claim():
    draw = generator(b"test", "pairs")
    pairs = candidate_pairs(unit_rows(draw, 200, 2, 3), draw.integers(0, 2, (200, 2)).astype(float), 4)
    for method in (full(rounds=20), full(rounds=20, local_steps=3, gamma=0.5)):
        assert exact_mu(method, pairs, 0.7).max() <= math.sqrt(20) / 0.7 * (1 + 1e-12)


def test_a_search_comes_near_the_claim():
    found = search_neighbours(full(rounds=30), 1.0, noise_key(3), 50, 8)
    assert list(found.history) == sorted(found.history)
    assert 0.85 < found.mu / math.sqrt(30) <= 1
    assert found.mu == pytest.approx(found.history[-1], rel=0.02)


def test_an_account_that_is_given_the_wrong_sensitivity_is_seen():
    """Half of (D1): the exact parameter is then above what z claims."""

    class Halved(FedSPDDP):
        def average_sensitivity(self, *arguments):
            return super().average_sensitivity(*arguments) / 2

    method = Halved(rounds=10, batches="full", local_steps=1)
    assert exact_mu(method, saturated_pair(10, 3), 1.0)[0] > 1.9 * math.sqrt(10)


def test_many_releases_agree_with_the_exact_parameter():
    """ln p/p' of a Gaussian pair has mean ±μ²/2 and variance μ²."""
    method, pairs = full(rounds=4, local_steps=2), saturated_pair(10, 2)
    mu = exact_mu(method, pairs, 2.0)[0]
    assert mu == pytest.approx(0.995, abs=0.001)
    for side, sign in ((0, 1), (1, -1)):
        ratios = log_ratios(method, pairs, side, 3000, 2.0, noise_key(side))
        assert ratios.mean() == pytest.approx(sign * mu**2 / 2, abs=4 * mu / math.sqrt(3000))
        assert ratios.std() == pytest.approx(mu, rel=0.06)


def test_shifts_by_batch_are_those_of_the_profile():
    """s_r ∝ Σ κ^k over the steps that follow (D4), in standard deviations of z times the largest."""
    method = FedSPDDP(rounds=3, local_steps=4, batch_size=2, gamma=3.0)
    pairs = crowded_pair(16, 3)
    shifts, direction = batch_shifts(method, pairs, 2.0, 1)
    event = next(iter(account_of(method, pairs, 2.0)))
    assert isinstance(event, EpochEvent)
    assert event.rate == 0.5
    shares = position_shares(4, event.contraction)
    assert shifts == pytest.approx(0.995 * shares / shares[0] / 2.0, rel=1e-3)
    assert float(direction.norm()) == pytest.approx(1.0)


def test_opposite_data_sets_use_the_whole_clip():
    pairs = opposite_clients(6)
    method = settled(SPADEDFL(rounds=5, local_steps=10, clip=0.01, eta=0.1, mu=0.1), pairs)
    assert exact_mu(method, pairs, 1.0)[0] == pytest.approx(math.sqrt(5), rel=1e-6)


def test_the_gate_keeps_what_it_saw():
    method, pairs = full(local_steps=2, batch_size=2, increment_clip=1.0), saturated_pair(8, 3)
    cohort = pairs.cohort(0)
    granted = Granted(1, cohort.clients, np.zeros(1, dtype=int), np.ones(1))
    gate = WatchedGate(
        granted, method.bound(pairs.problem, cohort.sizes, cohort.weights, 1), noise_key(0), 0.5, placed=1
    )
    assert gate.noise_std[0] == pytest.approx(0.5 * 2.0)
    released = gate.release(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    torch.testing.assert_close(gate.before, torch.tensor([[0.6, 0.8]], dtype=torch.float64))
    assert torch.equal(gate.seen, released)
    assert not torch.equal(gate.seen, gate.before)
    assert gate.batches("epoch", cohort.sizes, 3, 2).tolist() == [[1, 2, 0, 4, 5, 6]]


def test_what_is_refused():
    pairs = saturated_pair(20, 3)
    with pytest.raises(InvalidValue, match=r"method.batches"):
        exact_mu(FedSPDDP(rounds=2, local_steps=2, batch_size=2), pairs, 1.0)
    with pytest.raises(InvalidValue, match="released state"):
        log_ratios(full(state="paper"), pairs, 0, 10, 1.0, noise_key(0))
