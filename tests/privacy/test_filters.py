"""Filters: an adversary who chooses by what it saw, at its best; fixed schedules; and the ledger that keeps one."""

import math
from functools import cache

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.privacy import renyi
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.events import (
    ApproximateEvent,
    EpochEvent,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    SubsampledEvent,
    ZcdpEvent,
)
from dualfed.privacy.filters import ORDERS, Filter
from dualfed.privacy.ledger import Ledger
from dualfed.privacy.profiles import gaussian_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

DELTA = 1e-5
KINDS = ("gaussian", "zcdp", "rdp")


def filter_of(kind, events, budget, delta=DELTA):
    made = Filter(kind, Accountant(rdp=False), delta, np.array([budget]))
    made.extend(events)
    return made


def admits(made, counts):
    row = np.array([counts])
    return bool(made.admits(np.array([0]), row, row)[0])


def best_adversary(admitted, losses, epsilon, most):
    """The largest δ(ε) over all adaptive choices between randomised responses of these losses, or to stop, that
    ``admitted`` lets through: exact, by dynamic programming over what was seen and spent."""

    @cache
    def gain(counts, walk):
        # The chance of the history under the one data set over that under the other is e^{Σ walk·loss}; per unit of
        # the other's chance.
        ratio = math.exp(sum(step * loss for step, loss in zip(walk, losses)))
        best = max(0.0, ratio - math.exp(epsilon))
        if sum(counts) == most:
            return best
        for k, loss in enumerate(losses):
            after = tuple(n + (j == k) for j, n in enumerate(counts))
            if not admitted(after):
                continue
            likely = 1 / (1 + math.exp(-loss))
            up, down = (tuple(s + sign * (j == k) for j, s in enumerate(walk)) for sign in (1, -1))
            best = max(best, (1 - likely) * gain(after, up) + likely * gain(after, down))
        return best

    zero = (0,) * len(losses)
    return gain(zero, zero)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("budget", "delta", "losses"), [(1.0, 0.05, (0.6, 0.25)), (2.0, 1e-2, (0.45, 0.2)), (0.5, 0.1, (0.6, 0.25))]
)
def test_no_adaptive_adversary_passes_the_budget(kind, budget, delta, losses):
    made = filter_of(kind, [PureEvent.of(loss) for loss in losses], budget, delta)
    found = best_adversary(lambda counts: admits(made, counts), losses, budget, 40)
    assert found <= delta
    if kind != "rdp":
        assert found > delta / 100, "the adversary had something to work with"


def test_exact_accounts_do_not_withstand_this_adversary():
    """Why there are filters: checking the exact account of what was chosen so far lets more through than the budget."""
    events, losses = [PureEvent.of(0.45), PureEvent.of(0.2)], (0.45, 0.2)
    accountant = Accountant(rdp=False)

    @cache
    def admitted(counts):
        return accountant.bound(dict(zip(events, counts)), 1e-2) <= 2.0

    assert best_adversary(admitted, losses, 2.0, 40) > 1.2e-2


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_an_adaptive_schedule_never_costs_more_than_its_limit(data):
    kind = data.draw(st.sampled_from(KINDS))
    budget = data.draw(st.floats(0.2, 20.0))
    events = [GaussianEvent(noise_multiplier=data.draw(st.floats(1.0, 50.0))) for _ in range(3)]
    events += [PureEvent.of(data.draw(st.floats(0.01, 0.5)))]
    made = filter_of(kind, events, budget)
    counts = np.zeros(4, dtype=np.int64)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    for _ in range(60):
        # What was released decides what is asked for next.
        chosen = int(np.argmax(rng.normal(size=4) + np.eye(4)[counts.argmax()]))
        after = counts + np.eye(4, dtype=np.int64)[chosen]
        if admits(made, after):
            counts = after
    assert Accountant(rdp=False).bound(dict(zip(events, counts.tolist())), DELTA) <= budget * (1 + 1e-8)


@pytest.mark.parametrize("z", [0.7, 2.0, 9.0])
def test_a_fixed_schedule_gets_its_plain_composition(z):
    event = GaussianEvent(noise_multiplier=z)
    for count in (1, 6, 50):
        rho = count / (2 * z * z)
        exact = gaussian_epsilon(DELTA, math.sqrt(count) / z)
        concentrated = renyi.epsilon(lambda t, rho=rho: t * (t + 1) * rho, DELTA)
        shares = renyi.hoelder(ORDERS) - math.log(DELTA / len(ORDERS))
        several = float(np.min((ORDERS + 1) * rho + shares / ORDERS))
        for kind, epsilon in (("gaussian", exact), ("zcdp", concentrated), ("rdp", several)):
            assert admits(filter_of(kind, [event], epsilon * (1 + 1e-6)), [count])
            assert not admits(filter_of(kind, [event], epsilon * (1 - 1e-6)), [count])
            made = filter_of(kind, [event], epsilon * (1 + 1e-6))
            assert made.releases_left(0, np.array([0]), np.array([1])) == count


def test_sampled_events_are_amplified_by_the_renyi_filter_alone():
    event = SubsampledEvent(noise_multiplier=1.0, rate=0.01, steps=5)
    left = {kind: filter_of(kind, [event], 3.0).releases_left(0, np.array([0]), np.array([1])) for kind in KINDS}
    assert left["gaussian"] == left["zcdp"] == 0
    assert left["rdp"] > 50
    planned = Accountant(rdp=False).bound({event: left["rdp"]}, DELTA)
    assert planned <= 3.0


def test_what_a_filter_cannot_bound_is_refused():
    events = [ZcdpEvent.of(1e-6), ApproximateEvent.of(1e-3, 1e-9), GaussianEvent(), LaplaceEvent.of(100.0, 1.0)]
    for kind, allowed in (("gaussian", [3]), ("zcdp", [0, 3]), ("rdp", [0, 3])):
        made = filter_of(kind, events, 2.0)
        assert [k for k in range(4) if admits(made, np.eye(4, dtype=int)[k])] == allowed
    unlimited = filter_of("gaussian", events, math.inf)
    assert admits(unlimited, [1, 1, 1, 1])
    assert unlimited.releases_left(0, np.zeros(4, int), np.ones(4, int)) == math.inf
    assert not admits(filter_of("gaussian", events, 0.0), [0, 0, 0, 1])


def test_what_protects_a_whole_data_set_counts_for_a_record_of_it():
    events = [GaussianEvent(noise_multiplier=1.0), GaussianEvent(noise_multiplier=1.0, unit="client")]
    for kind in KINDS:
        # Of all that is spent, one more release of either unit is too much.
        budget = gaussian_epsilon(DELTA, math.sqrt(2)) * (1 + 1e-9) if kind != "rdp" else 8.0
        made = filter_of(kind, events, budget)
        most = int(made.releases_left(0, np.zeros(2, int), np.array([1, 0])))
        assert most >= 1
        assert all(admits(made, [most - k, k]) for k in range(most + 1))
        assert not any(admits(made, [most + 1 - k, k]) for k in range(most + 2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_refuses_before_the_release_and_goes_on_after_a_restart(kind, tmp_path):
    event = EpochEvent(noise_multiplier=3.0, rate=0.1, steps=5, contraction=0.9)
    budget = {"gaussian": 3.0, "zcdp": 3.0, "rdp": 0.7}[kind]
    settings = {"delta": DELTA, "budgets": [budget, math.inf], "filter": kind}
    ledger = Ledger(tmp_path / "l.sqlite", 2, **settings)
    ledger.register([event])
    fits = ledger.remaining(0, event).releases
    assert fits > 2
    taken = 0
    for round in range(int(fits) + 3):
        if round == 2:
            ledger.close()
            ledger = Ledger(tmp_path / "l.sqlite", 2, **settings)
        grants, refusals = ledger.reserve(round, [0, 1], 0)
        taken += int(0 in grants.clients)
        assert [refusal.client for refusal in refusals] == ([] if round < fits else [0])
    assert taken == fits
    assert ledger.account(0) == {event: fits}
    assert ledger.epsilon(0)[0].epsilon <= budget
    ledger.close()
    with pytest.raises(InvalidValue, match="same settings"):
        Ledger(tmp_path / "l.sqlite", 2, **{**settings, "filter": None})
