"""Events that no Gaussian describes: what they mean, how they are kept, and what they come to together."""

import itertools
import json
import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from dualfed.privacy import pld
from dualfed.privacy.accountants import BASIC, PLD, PURE, RDP, RENYI, UNAMPLIFIED, Accountant
from dualfed.privacy.calibration import coarsen, noise_multiplier_for
from dualfed.privacy.events import (
    ApproximateEvent,
    EpochEvent,
    GaussianEvent,
    IndependentEvent,
    LaplaceEvent,
    PureEvent,
    SubsampledEvent,
    ZcdpEvent,
    event_from_json,
)
from dualfed.privacy.ledger import Ledger
from dualfed.privacy.profiles import gaussian_epsilon, gaussian_shift, profile
from scipy.stats import laplace, norm

DELTA = 1e-5
SHARED = Accountant()
STEPS = SubsampledEvent(noise_multiplier=1.0, rate=0.05, steps=5)
KNOWN = [
    GaussianEvent(noise_multiplier=3.0, unit="client"),
    STEPS,
    replace(STEPS, sampling="poisson", status="claimed"),
    PureEvent.of(0.3, unit="client", status="claimed"),
    LaplaceEvent.of(2.0, 0.7),
    ZcdpEvent.of(0.01),
    ApproximateEvent.of(0.3, 1e-6),
]


@pytest.mark.parametrize("event", KNOWN, ids=lambda event: event.kind)
def test_events_survive_the_journal(event, tmp_path):
    assert event_from_json(event.to_json()) == event
    with pytest.raises(ValueError, match="version 2"):
        event_from_json(json.dumps({**json.loads(event.to_json()), "version": 2}))
    ledger = Ledger(tmp_path / "l.sqlite", 1, delta=DELTA)
    ledger.reserve(0, [0], ledger.register([event]))
    spent = ledger.epsilon(0)[0]
    ledger.close()
    with closing(Ledger.open_readonly(tmp_path / "l.sqlite")) as again:
        assert again.account(0) == {event: 1}
        assert again.epsilon(0)[0] == spent
        assert (spent.unit, spent.status) == (event.unit, event.status)
        assert 0 < spent.epsilon < math.inf


@pytest.mark.parametrize("loss", [1e-9, 0.1, 0.3, 1 / 3, 7.0, 1e5])
def test_a_loss_is_never_rounded_down(loss):
    assert loss <= PureEvent.of(loss).epsilon <= loss * (1 + 1e-12)
    assert loss <= ApproximateEvent.of(loss, 0.0).epsilon <= loss * (1 + 1e-12)
    assert loss <= ZcdpEvent.of(loss).rho <= loss * (1 + 1e-12)
    assert loss <= LaplaceEvent.of(1.0, loss).epsilon <= loss * (1 + 1e-12)


def test_what_is_out_of_range_is_refused():
    for make in (
        lambda: PureEvent.of(0.0),
        lambda: PureEvent.of(math.inf),
        lambda: ZcdpEvent.of(-1.0),
        lambda: LaplaceEvent.of(0.0, 1.0),
        lambda: ApproximateEvent.of(1.0, 1.0),
        lambda: SubsampledEvent(noise_multiplier=1.0, rate=0.0),
        lambda: SubsampledEvent(noise_multiplier=1.0, rate=0.1, sampling="shuffled"),
    ):
        with pytest.raises(ValueError, match=r"of an event|must be"):
            make()


@pytest.mark.parametrize("event", KNOWN, ids=lambda event: event.kind)
def test_no_noise_costs_everything_and_nothing_costs_nothing(event):
    silent = replace(event, noise_multiplier=0.0)
    assert SHARED.epsilon({silent: 1}, DELTA).epsilon == math.inf
    assert SHARED.delta({silent: 1}, 3.0) == 1
    assert SHARED.epsilon({event: 0}, DELTA).epsilon == 0
    assert SHARED.bound({event: 3}, DELTA) <= SHARED.bound({event: 4}, DELTA) * (1 + 1e-4)
    louder = replace(event, noise_multiplier=event.noise_multiplier / 2)
    assert SHARED.bound({event: 3}, DELTA) <= SHARED.bound({louder: 3}, DELTA)
    spent = SHARED.epsilon({event: 3}, DELTA).epsilon
    assert SHARED.delta({event: 3}, spent) == pytest.approx(DELTA, rel=1e-3)


def exact(p, q, epsilon, x):
    return np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0])


@pytest.mark.parametrize("moved", [0.2, 1.0, 4.0])
def test_laplace_profile_against_quadrature(moved):
    x = np.linspace(-60, 60, 1_200_001)
    found = profile(LaplaceEvent.of(1.0, moved))
    for epsilon in (0.0, moved / 3, moved * 0.9, moved * 1.1):
        value = exact(laplace.pdf(x), laplace.pdf(x, moved), epsilon, x)
        assert found.delta(np.array([epsilon]))[0] == pytest.approx(value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("sampling", ["without-replacement", "poisson"])
@pytest.mark.parametrize("others", [[0.5, 0.5, 0.5], [-0.5, 0.5, 0.1], [0.0, 0.0, 0.0], [-0.5, -0.5, -0.5]])
@pytest.mark.parametrize("z", [0.4, 1.0, 3.0])
def test_one_step_bounds_every_small_mechanism_exactly(sampling, others, z):
    """The sum of the drawn values with noise; two of four records, or each with chance one half."""
    sums = []
    for own in (0.5, -0.5):
        values = np.array([own, *others])
        if sampling == "poisson":
            sums.append([values[list(map(bool, drawn))].sum() for drawn in itertools.product((0, 1), repeat=4)])
        else:
            sums.append([values[list(drawn)].sum() for drawn in itertools.combinations(range(4), 2)])
    x = np.linspace(-4 - 12 * z, 4 + 12 * z, 40_001)
    densities = [norm.pdf(x[:, None], np.array(means), z).mean(axis=1) for means in sums]
    bound = profile(SubsampledEvent(noise_multiplier=z, rate=0.5, sampling=sampling))
    for epsilon in (0.0, 0.05, 0.3, 1.0, 2.5):
        for p, q in (densities, densities[::-1]):
            assert exact(p, q, epsilon, x) <= bound.delta(np.array([epsilon]))[0] * (1 + 1e-6) + 1e-12


def test_the_steps_of_a_round_are_that_many_releases():
    for n in (1, 12):
        rounds = SHARED.bound({STEPS: n}, DELTA)
        assert rounds == SHARED.bound({replace(STEPS, steps=1): 5 * n}, DELTA)
        one = IndependentEvent(noise_multiplier=1.0, rate=0.05, steps=1, contraction=1.0)
        assert rounds == pytest.approx(SHARED.bound({one: 5 * n}, DELTA), rel=1e-6)
    found = SHARED.epsilon({STEPS: 12}, DELTA)
    gaussian = SHARED.bound({GaussianEvent(noise_multiplier=1.0): 60}, DELTA)
    assert found.alternatives[UNAMPLIFIED] == pytest.approx(gaussian)
    assert found.alternatives[RDP] >= found.epsilon == found.alternatives[PLD]
    assert RDP not in SHARED.epsilon({replace(STEPS, sampling="poisson"): 12}, DELTA).alternatives


def test_a_pure_release_lies_above_its_gaussian():
    """The trade-off curve of randomised response is nowhere below that of the Gaussian that stands for it."""
    for loss in (0.05, 1.0, 6.0, 40.0):
        event = PureEvent.of(loss)
        gaussian = GaussianEvent(noise_multiplier=1 / gaussian_shift(event))
        for epsilon in np.linspace(0, 1.2 * loss, 30):
            assert profile(event).delta(np.array([epsilon]))[0] <= SHARED.delta({gaussian: 1}, epsilon) * (1 + 1e-9)


def test_pure_releases_through_the_grid_lie_just_above_their_exact_composition():
    event, count = PureEvent.of(0.2), 50
    exactly = SHARED.epsilon({event: count}, DELTA)
    assert exactly.account == PURE
    loss = pld.EventLoss(profile(event))
    grid = pld.compose([loss], [count], pld.SpectrumCache(), delta=DELTA).epsilon(DELTA)
    assert exactly.epsilon <= grid <= exactly.epsilon * (1 + 1e-4)
    assert exactly.epsilon < exactly.alternatives[RENYI] < exactly.alternatives[BASIC] == pytest.approx(10.0)


def test_mixtures_cost_no_less_than_any_part_and_no_more_than_their_sum():
    parts = [{ZcdpEvent.of(0.02): 3}, {EpochEvent(noise_multiplier=1.0, rate=0.1, steps=5, contraction=0.9): 20}]
    parts += [{PureEvent.of(0.1): 5}, {LaplaceEvent.of(4.0, 1.0): 3}, {GaussianEvent(noise_multiplier=6.0): 4}]
    parts += [{ApproximateEvent.of(0.2, 1e-7): 2}, {STEPS: 3}]
    for first, second in itertools.combinations(parts, 2):
        together = SHARED.epsilon({**first, **second}, DELTA)
        alone = [SHARED.bound(part, DELTA) for part in (first, second)]
        halves = [SHARED.bound(part, DELTA / 2) for part in (first, second)]
        assert max(alone) * (1 - 1e-4) <= together.epsilon
        # By moments a mixture with zCDP may lose against two conversions, never by much.
        assert together.epsilon <= sum(halves) * 1.1
        assert together.epsilon == min(together.alternatives.values())


def test_the_delta_of_a_release_is_set_aside():
    event = ApproximateEvent.of(0.1, 1e-6)
    assert SHARED.epsilon({event: 9}, DELTA).epsilon < math.inf
    assert SHARED.epsilon({event: 11}, DELTA).epsilon == math.inf
    assert SHARED.delta({event: 11}, 100.0) == pytest.approx(11e-6, rel=1e-4)
    assert SHARED.delta({event: 11}, math.inf) == pytest.approx(11e-6, rel=1e-4)


@pytest.mark.parametrize("event", KNOWN, ids=lambda event: event.kind)
def test_noise_is_solved_for_every_kind(event):
    z = noise_multiplier_for({event: 7}, 2.0, DELTA)
    assert SHARED.bound({replace(event, noise_multiplier=z): 7}, DELTA) <= 2.0
    assert SHARED.bound({replace(event, noise_multiplier=z / 1.005): 7}, DELTA) > 2.0
    assert SHARED.bound({coarsen(event): 7}, DELTA) >= SHARED.bound({event: 7}, DELTA) * (1 - 1e-4)


def test_a_client_has_an_account_of_each_unit(tmp_path):
    """One record is a part of the whole data set: what protects the set costs a record as much, and counts for it."""
    record, client = GaussianEvent(noise_multiplier=2.0), PureEvent.of(0.4, unit="client", status="claimed")
    of_record = replace(client, unit="record")
    both = [SHARED.bound({record: 4, of_record: 4}, DELTA), SHARED.bound({client: 4}, DELTA)]
    ledger = Ledger(tmp_path / "l.sqlite", 3, delta=DELTA, budgets=[both[0] * (1 + 1e-9), math.inf, math.inf])
    ledger.register([record, client])
    for round in range(4):
        ledger.reserve(round, [0, 0, 1, 2], [0, 1, 1, 0])
    assert [ledger.epsilon(0, unit=unit)[0].epsilon for unit in ("record", "client")] == both
    assert [ledger.epsilon(0, unit=unit)[0].status for unit in ("record", "client")] == ["claimed", "claimed"]
    assert ledger.epsilon(1, unit="record")[0].epsilon == both[1]
    assert (ledger.epsilon(1)[0].epsilon, ledger.epsilon(1)[0].unit) == (both[1], "client")
    assert ledger.epsilon(2)[0].status == "guaranteed"
    worst = ledger.epsilon()[0]
    assert (worst.epsilon, worst.unit) == (both[0], "record")
    assert ledger.summary()["unit"] == "record"
    assert ledger.what_if(client, 2, 0)[0].epsilon == SHARED.bound({client: 6}, DELTA)
    assert ledger.what_if(record, 2, 0)[0].epsilon == SHARED.bound({record: 6, of_record: 4}, DELTA)
    # The record-level account is at its budget, and a release of either unit would pass it.
    assert ledger.reserve(4, [0], 0)[1]
    assert ledger.reserve(5, [0], 1)[1]
    ledger.close()


@pytest.mark.parametrize("kind", [None, "gaussian", "zcdp", "rdp"])
def test_a_budget_holds_for_a_record_whatever_units_the_releases_have(kind, tmp_path):
    """Gaussians of both units, as many as are granted: as a test between two data sets that differ in one record they are
    one Gaussian of √(Σ μ²)."""
    budget = 3.0
    ledger = Ledger(tmp_path / "l.sqlite", 1, delta=DELTA, budgets=[budget], filter=kind)
    ledger.register([GaussianEvent(noise_multiplier=4.0, unit=unit) for unit in ("record", "client")])
    granted = sum(len(ledger.reserve(round, [0], round % 2)[0]) for round in range(60))
    assert granted > 0
    assert gaussian_epsilon(DELTA, math.sqrt(granted) / 4.0) <= budget * (1 + 1e-9)
    ledger.close()
