import itertools
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dualfed.errors import InvalidValue
from dualfed.privacy import pld
from dualfed.privacy.accountants import PLD, RDP, UNAMPLIFIED, ZCDP, Accountant
from dualfed.privacy.events import (
    EpochEvent,
    Event,
    GaussianEvent,
    IidEvent,
    IndependentEvent,
    LaplaceEvent,
    SubsampledEvent,
    event_from_json,
)
from dualfed.privacy.profiles import gaussian_delta, gaussian_epsilon, position_shares, profile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

DELTA = 1e-5
EXAMPLE = EpochEvent(noise_multiplier=1.0, rate=50 / 600, steps=5, contraction=0.9)
SHARED = Accountant(rdp=False)


def test_worked_example_of_epoch_batches():
    found = Accountant().epsilon({EXAMPLE: 100}, DELTA)
    assert found.alternatives[RDP] == pytest.approx(11.20, abs=0.005)
    assert found.alternatives[PLD] == found.epsilon == pytest.approx(4.12, abs=0.005)
    assert found.account == PLD
    assert found.status == "guaranteed"
    # κ = 0 makes all positions as bad as the worst.
    worst = EpochEvent(noise_multiplier=1.0, rate=50 / 600, steps=5, contraction=0.0)
    assert SHARED.epsilon({worst: 100}, DELTA).epsilon == pytest.approx(6.47, abs=0.005)


@pytest.mark.parametrize(
    "event",
    [
        GaussianEvent(noise_multiplier=1.0),
        EpochEvent(noise_multiplier=1.0, rate=0.3, steps=3, contraction=0.5),
        SubsampledEvent(noise_multiplier=1.0, rate=0.1, steps=3),
        LaplaceEvent(noise_multiplier=1.0),
    ],
    ids=lambda event: event.kind,
)
@pytest.mark.parametrize("count", [1, 3])
def test_next_to_no_noise_has_a_loss_too(event, count):
    """No grid holds losses of a billion, and the formulas cancel before that."""
    account = [{replace(event, noise_multiplier=10.0**-k): count} for k in range(0, 160, 5)]
    losses = [SHARED.bound(releases, DELTA) for releases in account]
    assert losses == sorted(losses)
    assert losses[4] > 1e7
    assert losses[-1] == math.inf
    assert SHARED.delta(account[4], 1.0) > 0.01


@pytest.mark.parametrize("z", [0.02, 0.5, 1.0, 4.0, 1000.0])
@pytest.mark.parametrize("count", [1, 7, 300])
def test_gaussian_releases_follow_the_closed_form(z, count):
    found = Accountant().epsilon({GaussianEvent(noise_multiplier=z): count}, DELTA)
    mu = math.sqrt(count) / z
    assert found.account == UNAMPLIFIED
    assert gaussian_delta(found.epsilon, mu) == pytest.approx(DELTA, rel=1e-6)
    assert gaussian_delta(found.epsilon, mu) <= DELTA
    rho = count / (2 * z * z)
    assert found.alternatives[ZCDP] == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / DELTA)))
    assert found.alternatives[ZCDP] >= found.epsilon


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 1.0), (1.0, 0.3), (-1.0, 0.3), (3.0, 0.05), (40.0, 5.0)])
def test_gaussian_profile_against_quadrature(epsilon, mu):
    x = np.linspace(-60, 60, 2_000_001)
    gap = norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x)
    exact = np.maximum(gap, 0).sum() * (x[1] - x[0])
    assert gaussian_delta(epsilon, mu) == pytest.approx(exact, rel=1e-6, abs=1e-16)


def exact_hockey_sticks(p, q, sigma, epsilons):
    """δ(ε) of two mixtures of Gaussians with equal weights, both directions, by quadrature."""
    x = np.linspace(min(*p, *q) - 12 * sigma, max(*p, *q) + 12 * sigma, 40_001)
    (pc, pn), (qc, qn) = (np.unique(np.round(c, 12), return_counts=True) for c in (p, q))
    density_p = norm.pdf(x[:, None], pc, sigma) @ (pn / pn.sum())
    density_q = norm.pdf(x[:, None], qc, sigma) @ (qn / qn.sum())
    for a, b in ((density_p, density_q), (density_q, density_p)):
        for epsilon in epsilons:
            yield epsilon, np.maximum(a - math.exp(epsilon) * b, 0).sum() * (x[1] - x[0])


def centres(kind, values, steps, batch, contraction):
    """All equally likely means of the toy release Σ_r t_r · mean(batch r), with Σ t_r = 1."""
    shares = position_shares(steps, contraction)
    m = len(values)
    if kind == "epoch":
        batches = itertools.permutations(range(m), steps * batch)
    elif kind == "independent":
        one = list(itertools.permutations(range(m), batch))
        batches = (sum(chosen, ()) for chosen in itertools.product(one, repeat=steps))
    else:
        batches = itertools.product(range(m), repeat=steps * batch)
    drawn = np.array(list(batches))
    return np.asarray(values)[drawn].reshape(-1, steps, batch).mean(axis=2) @ shares


@pytest.mark.parametrize("kind", ["epoch", "independent", "iid"])
@pytest.mark.parametrize("others", [[0.5, 0.5, 0.5], [-0.5, 0.5, 0.1], [0.0, 0.0, 0.0], [-0.5, -0.5, -0.5]])
@pytest.mark.parametrize("contraction", [0.0, 0.7, 1.4])
@pytest.mark.parametrize("z", [0.4, 1.0, 3.0])
def test_profiles_bound_every_small_mechanism_exactly(kind, others, contraction, z):
    steps, batch, m = 2, 1 if kind != "iid" else 2, 1 + len(others)
    p = centres(kind, [0.5, *others], steps, batch, contraction)
    q = centres(kind, [-0.5, *others], steps, batch, contraction)
    event: Event
    if kind == "epoch":
        # One batch holds the record: the largest shift is the first batch's share.
        sigma = z * position_shares(steps, contraction)[0] / batch
        event = EpochEvent(noise_multiplier=z, rate=steps * batch / m, steps=steps, contraction=contraction)
    elif kind == "independent":
        sigma = z / batch
        event = IndependentEvent(noise_multiplier=z, rate=batch / m, steps=steps, contraction=contraction)
    else:
        sigma = z
        event = IidEvent(noise_multiplier=z, rate=1 - (1 - 1 / m) ** (steps * batch))
    bound = profile(event)
    for epsilon, exact in exact_hockey_sticks(p, q, sigma, [0.0, 0.05, 0.3, 1.0, 2.5]):
        assert exact <= bound.delta(np.array([epsilon]))[0] * (1 + 1e-6) + 1e-12


def test_profile_is_reached_where_the_other_records_lie_on_one_side():
    # At ε = 0 nothing is lost: the total variation of the release is the bound.
    p = centres("epoch", [0.5, -0.5, -0.5, -0.5], 2, 1, 0.0)
    q = centres("epoch", [-0.5, -0.5, -0.5, -0.5], 2, 1, 0.0)
    event = EpochEvent(noise_multiplier=1.0, rate=0.5, steps=2, contraction=0.0)
    _, exact = next(iter(exact_hockey_sticks(p, q, 0.5, [0.0])))
    assert exact == pytest.approx(profile(event).delta(np.zeros(1))[0], rel=1e-6)


def independent_epsilon(account, delta, step):
    """dp-accounting's own distributions, composed one convolution after another."""
    total = None
    for event, count in account.items():
        p = profile(event)
        top = math.ceil(p.ceiling / step)
        grid = np.arange(-top, top + 1)
        losses = grid * step
        upper = p.delta(np.abs(losses))
        deltas = np.where(losses >= 0, upper, -np.expm1(losses) + np.exp(losses) * upper)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, deltas)
        pmf = pmf.self_compose(count, tail_mass_truncation=1e-14)
        total = pmf if total is None else total.compose(pmf, tail_mass_truncation=1e-14)
    return total.get_epsilon_for_delta(delta)


@pytest.mark.parametrize(
    "account",
    [
        {EXAMPLE: 100},
        {EpochEvent(noise_multiplier=0.8, rate=0.9, steps=3, contraction=1.2): 5},
        {IndependentEvent(noise_multiplier=1.0, rate=0.02, steps=5, contraction=0.8): 40},
        {IidEvent(noise_multiplier=2.0, rate=0.1): 60},
        {EXAMPLE: 30, GaussianEvent(noise_multiplier=5.0): 3, IidEvent(noise_multiplier=1.5, rate=0.03): 10},
    ],
)
def test_pld_agrees_with_a_finer_grid_computed_otherwise(account):
    found = SHARED.bound(account, DELTA)
    fine = independent_epsilon(account, DELTA, 5e-4)
    assert found == pytest.approx(fine, rel=1e-4)
    assert SHARED.bound(account, DELTA, tolerance=1e-2) >= Accountant(tolerance=1e-7).bound(account, DELTA)


def test_pld_of_a_rare_record_with_a_heavy_tail():
    event = EpochEvent(noise_multiplier=1.0, rate=1e-3, steps=5, contraction=0.9)
    fine = Accountant(tolerance=1e-7).bound({event: 100}, DELTA)
    assert fine <= SHARED.bound({event: 100}, DELTA) <= fine * (1 + 1e-4)


@pytest.mark.parametrize("count", [1, 50, 4000])
def test_pld_of_gaussians_lies_just_above_the_closed_form(count):
    loss = pld.EventLoss(profile(GaussianEvent(noise_multiplier=20.0)))
    composed = pld.compose([loss], [count], pld.SpectrumCache(), delta=DELTA)
    exact = gaussian_epsilon(DELTA, math.sqrt(count) / 20)
    assert exact <= composed.epsilon(DELTA) <= exact * (1 + 1e-4)
    for epsilon in (0.0, exact / 2, exact):
        assert composed.delta(epsilon) >= gaussian_delta(epsilon, math.sqrt(count) / 20)


def test_many_independent_batches_are_merged_upwards():
    event = IndependentEvent(noise_multiplier=1.0, rate=0.05, steps=14, contraction=0.95)
    shares = position_shares(14, 0.95)
    sets = np.array(list(itertools.product([0, 1], repeat=14)))[1:]
    weights = 0.05 ** sets.sum(1) * 0.95 ** (14 - sets.sum(1))
    drawn = 1 - 0.95**14
    for epsilon in (0.0, 0.2, 1.0):
        inner = math.log1p(math.expm1(epsilon) / drawn)
        exact, raised = (
            drawn * sum(w * gaussian_delta(inner, s * more) for w, s in zip(weights / drawn, sets @ shares))
            for more in (1.0, 1.03)
        )
        assert exact <= profile(event).delta(np.array([epsilon]))[0] <= raised


def test_epsilon_and_delta_are_inverse():
    for account in ({EXAMPLE: 40}, {GaussianEvent(noise_multiplier=3.0): 9}):
        epsilon = SHARED.epsilon(account, DELTA).epsilon
        assert SHARED.delta(account, epsilon) == pytest.approx(DELTA, rel=1e-3)
    assert SHARED.delta({EXAMPLE: 40}, 0.0) <= 1
    assert SHARED.delta({GaussianEvent(): 1}, 5.0) == 1
    assert SHARED.delta({}, 0.0) == 0


def test_limits():
    assert SHARED.epsilon({}, DELTA).epsilon == 0
    assert SHARED.epsilon({EXAMPLE: 0}, DELTA).epsilon == 0
    assert SHARED.epsilon({GaussianEvent(): 0}, DELTA).epsilon == 0
    silent = EpochEvent(rate=0.1, steps=2, contraction=0.9)
    assert Accountant().epsilon({silent: 1, EXAMPLE: 3}, DELTA).epsilon == math.inf
    assert SHARED.epsilon({GaussianEvent(noise_multiplier=1e9): 1}, 0.1).epsilon == 0
    assert SHARED.epsilon({EXAMPLE: 3}, 0.9).epsilon == 0
    # Where δ is below what floating point can prove, the closed form answers.
    assert math.isfinite(SHARED.epsilon({EXAMPLE: 3}, 1e-30).epsilon)


def test_units_and_status():
    client = GaussianEvent(noise_multiplier=1.0, unit="client")
    with pytest.raises(ValueError, match="do not add up"):
        SHARED.epsilon({client: 1, EXAMPLE: 1}, DELTA)
    with pytest.raises(ValueError, match="do not add up"):
        Accountant("record").epsilon({client: 1}, DELTA)
    assert SHARED.epsilon({client: 1}, DELTA).unit == "client"
    claimed = GaussianEvent(noise_multiplier=1.0, status="claimed")
    assert SHARED.epsilon({claimed: 1, EXAMPLE: 1}, DELTA).status == "claimed"
    assert SHARED.epsilon({claimed: 0, EXAMPLE: 1}, DELTA).status == "guaranteed"
    with pytest.raises(ValueError, match="negative"):
        SHARED.epsilon({EXAMPLE: -1}, DELTA)
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(InvalidValue):
            SHARED.epsilon({EXAMPLE: 1}, delta)
    with pytest.raises(InvalidValue):
        SHARED.delta({EXAMPLE: 1}, -0.1)
    with pytest.raises(ValueError, match="no account is known"):
        SHARED.epsilon({Event(noise_multiplier=1.0): 1}, DELTA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"rate": 0.0},
        {"rate": 1.5},
        {"steps": 0},
        {"contraction": -0.1},
    ],
)
def test_events_refuse_values_out_of_range(wrong):
    fields = {"noise_multiplier": 1.0, "rate": 0.1, "steps": 2, "contraction": 0.5, **wrong}
    for kind in (EpochEvent, IndependentEvent):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            kind(**fields)


def test_events_survive_json():
    for event in (EXAMPLE, GaussianEvent(noise_multiplier=0.1, unit="client"), IidEvent(rate=0.3)):
        assert event_from_json(event.to_json()) == event
        assert event_from_json(event.to_json()).digest == event.digest


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["epoch", "independent", "iid"]),
    z=st.floats(0.3, 20),
    rate=st.floats(1e-3, 0.8),
    contraction=st.floats(0, 1.3),
    steps=st.integers(1, 6),
    count=st.integers(1, 200),
)
def test_loss_rises_with_releases_and_rate_and_falls_with_noise(kind, z, rate, contraction, steps, count):
    def loss(z, rate, count):
        event: Event
        if kind == "iid":
            event = IidEvent(noise_multiplier=z, rate=rate)
        else:
            sampled = EpochEvent if kind == "epoch" else IndependentEvent
            event = sampled(noise_multiplier=z, rate=rate, steps=steps, contraction=contraction)
        return SHARED.bound({event: count}, DELTA)

    base = loss(z, rate, count)
    slack = 1 + 1e-4
    assert 0 <= base < math.inf
    assert base <= loss(z, rate, count + 1) * slack
    assert base <= loss(z, min(1.0, rate * 1.1), count) * slack
    assert base <= loss(z / 1.1, rate, count) * slack
    assert base <= gaussian_epsilon(DELTA, math.sqrt(count) / z)


def test_an_answer_does_not_depend_on_what_was_asked_before_or_on_order():
    other = IidEvent(noise_multiplier=1.5, rate=0.03)
    first = SHARED.bound({EXAMPLE: 17, other: 4}, DELTA)
    fresh = Accountant(rdp=False)
    fresh.bound({other: 300}, 1e-7)
    assert fresh.bound({other: 4, EXAMPLE: 17}, DELTA) == first


def test_ledger_imports_neither_torch_nor_ray():
    import subprocess

    code = "import sys, dualfed.privacy.ledger, dualfed.privacy.calibration; print({'torch', 'ray'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
