import math
from dataclasses import replace

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.calibration import (
    analytic_noise_multiplier,
    classic_noise_multiplier,
    coarsen,
    contraction_margin,
    gaussian_delta,
    grid_contraction,
    grid_rate,
    noise_multiplier_for,
    plan_noise,
)
from dualfed.privacy.events import EpochEvent, Event, GaussianEvent, IidEvent, IndependentEvent
from dualfed.privacy.profiles import profile
from hypothesis import given, settings
from hypothesis import strategies as st

DELTA = 1e-5
SHARED = Accountant(rdp=False)


def test_classic_is_the_formula_and_ends_at_one():
    assert classic_noise_multiplier(0.1, 1e-4) == pytest.approx(math.sqrt(2 * math.log(1.25e4)) / 0.1)
    with pytest.raises(InvalidValue, match=r"privacy\.epsilon = 1\.5.*analytic"):
        classic_noise_multiplier(1.5, 1e-5)
    for epsilon, delta in ((0.0, 1e-5), (-1.0, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), (0.5, 0.0), (0.5, 1.0)):
        with pytest.raises(InvalidValue):
            classic_noise_multiplier(epsilon, delta)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.3])
def test_analytic_inverts_the_exact_profile_from_the_safe_side(epsilon, delta):
    z = analytic_noise_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, 1 / z) <= delta
    assert gaussian_delta(epsilon, 1 / z) == pytest.approx(delta, rel=1e-8)
    if epsilon <= 1:
        assert z < classic_noise_multiplier(epsilon, delta)


TEMPLATES = {
    "gaussian": {GaussianEvent(): 10},
    "epoch": {EpochEvent(rate=1 / 12, steps=5, contraction=0.9): 100},
    "rare": {EpochEvent(rate=1e-3, steps=5, contraction=0.9): 50},
    "full": {EpochEvent(rate=1.0, steps=4, contraction=0.5): 3},
    "independent": {IndependentEvent(rate=0.02, steps=5, contraction=0.9): 30},
    "iid": {IidEvent(rate=0.05): 30},
    "growing": {EpochEvent(rate=0.1, steps=5, contraction=0.9 + 0.01 * k): 3 + k for k in range(6)},
    "mixed": {GaussianEvent(): 1, EpochEvent(rate=0.1, steps=5, contraction=0.9): 20},
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("epsilon", [0.2, 3.0, 60.0])
def test_total_budget_is_met_and_not_undercut(name, epsilon):
    template = TEMPLATES[name]
    z = noise_multiplier_for(template, epsilon, DELTA, SHARED)

    def loss(z):
        return SHARED.bound({replace(event, noise_multiplier=z): n for event, n in template.items()}, DELTA)

    assert loss(z) <= epsilon
    assert loss(z / 1.0021) > epsilon
    steps = math.log(z) / math.log(1.001)
    assert steps == pytest.approx(round(steps), abs=1e-6)
    # Another accountant comes to the same conclusion, bit for bit.
    fresh = Accountant(rdp=False)
    assert noise_multiplier_for(template, epsilon, DELTA, fresh) == z


def test_search_takes_few_compositions():
    accountant = Accountant(rdp=False)
    noise_multiplier_for(TEMPLATES["growing"], 2.0, DELTA, accountant)
    assert accountant.compositions <= 15


def test_equal_templates_are_solved_once():
    accountant = Accountant(rdp=False)
    plan = plan_noise([TEMPLATES["epoch"], TEMPLATES["iid"]] * 20, 2.0, DELTA, accountant)
    assert len(set(plan)) == 2
    assert accountant.compositions <= 30
    assert plan_noise([{}, {GaussianEvent(): 0}], 2.0, DELTA) == [0.0, 0.0]


def test_a_template_s_own_noise_is_replaced():
    own = {GaussianEvent(noise_multiplier=7.0): 4, GaussianEvent(noise_multiplier=1.0): 5}
    assert noise_multiplier_for(own, 1.0, DELTA) == noise_multiplier_for({GaussianEvent(): 9}, 1.0, DELTA)


@settings(max_examples=200, deadline=None)
@given(rate=st.floats(1e-6, 1), contraction=st.floats(0, 2), steps=st.integers(1, 50))
def test_grids_round_to_the_safe_side_and_stay_put(rate, contraction, steps):
    up = grid_rate(rate)
    assert rate <= up <= min(1.0, rate * 1.0201)
    assert grid_rate(up) == up
    down = grid_contraction(contraction, steps)
    assert 0 <= contraction - down <= 0.05 / steps * (1 + 1e-9)
    assert grid_contraction(down, steps) == down
    assert contraction_margin(steps, contraction, down) >= 1


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([EpochEvent, IndependentEvent, IidEvent]),
    z=st.floats(0.2, 10),
    rate=st.floats(1e-3, 1),
    contraction=st.floats(0, 1.5),
    steps=st.integers(1, 7),
)
def test_coarse_events_are_upper_bounds(kind, z, rate, contraction, steps):
    event: Event
    if kind is IidEvent:
        event = IidEvent(noise_multiplier=z, rate=rate)
    else:
        event = kind(noise_multiplier=z, rate=rate, contraction=contraction, steps=steps)
    grid = np.linspace(0, 5, 60)
    fine, coarse = profile(event).delta(grid), profile(coarsen(event)).delta(grid)
    assert (fine <= coarse * (1 + 1e-9) + 1e-15).all()


@pytest.mark.parametrize("kind", [EpochEvent, IndependentEvent])
@pytest.mark.parametrize("contraction", [0.3, 0.8123, 0.9876])
def test_the_coarse_grid_costs_little(kind, contraction):
    losses = []
    for rate in np.geomspace(0.02, 0.03, 5):
        event = kind(noise_multiplier=1.0, rate=float(rate), steps=5, contraction=contraction)
        losses.append(SHARED.bound({coarsen(event): 100}, DELTA) / SHARED.bound({event: 100}, DELTA) - 1)
    assert min(losses) >= 0
    assert max(losses) <= 0.025, losses
    assert np.mean(losses) <= 0.015, losses


def test_nothing_is_coarsened_where_there_is_no_sampling():
    event = GaussianEvent(noise_multiplier=1.234, unit="client")
    assert coarsen(event) is event
