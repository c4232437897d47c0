"""Lower bounds: their limits, their coverage, and the ε of a pair whose curve is known."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.keys import generator
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.audit import lower_bound, lower_limit, mixture_epsilon, mixture_log_ratio, upper_limit
from dualfed.privacy.events import EpochEvent
from dualfed.privacy.profiles import gaussian_epsilon, position_shares
from scipy.stats import binomtest, norm


@pytest.mark.parametrize("hits", [0, 1, 17, 99, 100])
def test_limits_are_those_of_clopper_and_pearson(hits):
    found = binomtest(hits, 100).proportion_ci(confidence_level=0.98, method="exact")
    count = np.array([float(hits)])
    assert float(lower_limit(count, 100, 0.01)[0]) == pytest.approx(found.low)
    assert float(upper_limit(count, 100, 0.01)[0]) == pytest.approx(found.high)


def test_bounds_cover_and_are_close_for_a_gaussian():
    """Both bounds of 200 repetitions: beyond the truth in no more than the confidence allows, and near it on average."""
    mu, delta, beyond, reached = 1.0, 1e-2, 0, []
    for repetition in range(200):
        draw = generator(b"test", "cover", round=repetition)
        found = lower_bound(draw.standard_normal(2000) + mu, draw.standard_normal(2000), delta, 0.9)
        beyond += found.mu > mu or found.epsilon > gaussian_epsilon(delta, mu)
        reached.append(found.mu)
    assert beyond <= 30
    assert np.mean(reached) > 0.85 * mu


def test_many_releases_of_one_gaussian_prove_most_of_epsilon_for_any_mechanism():
    draw = generator(b"test", "tight")
    found = lower_bound(draw.standard_normal(200_000) + 1.0, draw.standard_normal(200_000), 1e-2, 0.99)
    true = gaussian_epsilon(1e-2, 1.0)
    assert 0.85 * true < found.epsilon < true
    assert 0.95 < found.mu < 1.0
    assert found.fitted_mu == pytest.approx(1.0, abs=0.02)


def test_a_pure_mechanism_is_not_overstated():
    """Laplace noise of ε = 1: the ratio |y| − |y − 1| is ±1 with most of the mass.

    Rounded, since the low-order bits of y + 1 tell the two data sets apart (Mironov 2012).
    """
    draw = generator(b"test", "laplace")
    ratios = [np.round(np.abs(y) - np.abs(y - 1), 9) for y in (draw.laplace(1, 1, 50_000), draw.laplace(0, 1, 50_000))]
    found = lower_bound(ratios[0], ratios[1], 1e-6, 0.99)
    assert 0.8 < found.epsilon < 1.0


def test_the_same_distribution_twice_proves_nothing():
    draw = generator(b"test", "same")
    found = lower_bound(draw.standard_normal(5000), draw.standard_normal(5000), 1e-5, 0.99)
    assert found.mu == 0
    assert found.epsilon == 0


def test_a_mixture_that_is_always_drawn_is_a_gaussian():
    found = mixture_epsilon(1.0, np.array([0.2]), 100, 1e-5)
    true = gaussian_epsilon(1e-5, 2.0)
    assert 0.998 * true < found <= true


def test_the_realisable_bound_for_epoch_batches():
    """m = 600, b = 10, Q = 5, z = 1, T = 100, κ = 0.9, δ = 1e-5 (SPEC section 2): 3.05 of 4.12."""
    shares = position_shares(5, 0.9)
    found = mixture_epsilon(50 / 600, shares / shares[0], 100, 1e-5)
    event = EpochEvent(noise_multiplier=1.0, rate=50 / 600, steps=5, contraction=0.9)
    assert found == pytest.approx(3.05, abs=0.02)
    assert found < Accountant(rdp=False).epsilon({event: 100}, 1e-5).epsilon


def test_the_ratio_of_a_mixture():
    y, shifts = np.linspace(-3, 4, 8), np.array([0.5, 1.5])
    p = 0.7 * norm.pdf(y) + 0.15 * (norm.pdf(y - 0.5) + norm.pdf(y - 1.5))
    assert mixture_log_ratio(y, 0.3, shifts) == pytest.approx(np.log(p / norm.pdf(y)))


@pytest.mark.parametrize(("count", "confidence", "field"), [(50, 0.9, "--trials"), (500, 1.0, "--confidence")])
def test_what_is_refused(count, confidence, field):
    with pytest.raises(InvalidValue, match=field):
        lower_bound(np.zeros(count), np.zeros(count), 1e-5, confidence)
