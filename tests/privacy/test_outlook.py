"""What-if answers against the accountant itself."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.events import EpochEvent, GaussianEvent
from dualfed.privacy.keeping import MOST_ROUNDS, most_that_fit
from dualfed.privacy.ledger import Ledger
from dualfed.privacy.outlook import Question, Standing, outlook, rounds_that_fit
from dualfed.privacy.profiles import gaussian_epsilon
from dualfed.privacy.replica import Replica
from dualfed.privacy.what_if import client_noise_for, client_rounds_left

GAUSS = GaussianEvent(noise_multiplier=4.0)
EPOCH = EpochEvent(noise_multiplier=1.0, rate=0.1, steps=5, contraction=0.9, status="claimed")
DELTA = 1e-5


@pytest.fixture
def standing(tmp_path):
    """Client 0: Gaussian releases, budget 3; 1: epoch releases, budget 4; 2: none yet; 3: as 0 without a budget."""
    ledger = Ledger(tmp_path / "l.sqlite", 4, delta=DELTA, budgets=[3.0, 4.0, 3.0, math.inf])
    ledger.register([GAUSS, EPOCH])
    for t in range(1, 6):
        ledger.reserve(t, [0, 1, 3], [0, 1, 0])
    replica = Replica.open(ledger.path)
    yield Standing.of(replica)
    replica.close()
    ledger.close()


def test_epsilon_after_more_rounds(standing):
    ahead = outlook(standing, Question(rounds=20))
    assert ahead.epsilon[0] == gaussian_epsilon(DELTA, math.sqrt(25) / 4)
    assert ahead.epsilon[1] == Accountant(rdp=False).bound({EPOCH: 25}, DELTA)
    assert ahead.epsilon[3] == ahead.epsilon[0]
    assert ahead.epsilon[2] == 0
    assert math.isnan(ahead.noise[2])
    assert ahead.noise.tolist()[:2] == [4.0, 1.0]
    assert ahead.status.tolist() == ["guaranteed", "claimed", "guaranteed", "guaranteed"]
    assert ahead.round == 5
    assert outlook(standing, Question(rounds=0)).epsilon[0] == gaussian_epsilon(DELTA, math.sqrt(5) / 4)


def test_releases_of_both_units_count_for_a_record(tmp_path):
    with closing(Ledger(tmp_path / "l.sqlite", 1, delta=DELTA, budgets=[3.0])) as ledger:
        ledger.register([GAUSS, replace(GAUSS, unit="client")])
        for t in range(1, 5):
            ledger.reserve(t, [0], t % 2)
        with closing(Replica.open(ledger.path)) as replica:
            ahead = outlook(Standing.of(replica), Question())
        fits = ahead.rounds[0]
        assert ahead.unit[0] == "record"
        assert ahead.epsilon[0] == gaussian_epsilon(DELTA, math.sqrt(4 + fits) / 4)
        refused = [bool(ledger.reserve(5 + k, [0], 0)[1]) for k in range(int(fits) + 1)]
        assert refused == [False] * int(fits) + [True]


def test_another_noise(standing):
    ahead = outlook(standing, Question(rounds=16, noise=2.0))
    assert ahead.epsilon[0] == gaussian_epsilon(DELTA, math.sqrt(5 / 16 + 16 / 4))
    assert outlook(standing, Question(rounds=16, noise=2.0), 1e-7).epsilon[0] > ahead.epsilon[0]


@pytest.mark.parametrize("question", [Question(), Question(noise=3.0), Question(budget=2.5)])
def test_the_rounds_that_fit_are_the_most(standing, question):
    ahead = outlook(standing, question)
    accountant = Accountant(rdp=False)
    for client, spent in ((0, {GAUSS: 5}), (1, {EPOCH: 5})):
        event = replace((GAUSS, EPOCH)[client], noise_multiplier=float(ahead.noise[client]))
        budget, n = ahead.budget[client], int(ahead.rounds[client])
        loss = [accountant.bound({**spent, event: n + k + spent.get(event, 0)}, DELTA) for k in (0, 1)]
        assert loss[0] <= budget * (1 + 1e-9) < loss[1]
        assert ahead.epsilon[client] == pytest.approx(loss[0], rel=1e-12)
    if question.budget is None:
        assert math.isinf(ahead.rounds[3])


def test_the_ledger_refuses_where_what_if_said_so(tmp_path):
    ledger = Ledger(tmp_path / "l.sqlite", 1, delta=DELTA, budgets=[3.0])
    ledger.register([GAUSS])
    ledger.reserve(1, [0], 0)
    replica = Replica.open(ledger.path)
    left = int(outlook(Standing.of(replica), Question()).rounds[0])
    granted = sum(len(ledger.reserve(t, [0], 0)[0]) for t in range(2, left + 10))
    assert granted == left
    replica.close()
    ledger.close()


@pytest.mark.parametrize(("kind", "event"), [("gaussian", GAUSS), ("zcdp", GAUSS), ("rdp", EPOCH)])
def test_under_a_filter_that_many_fit_as_it_lets_pass(kind, event, tmp_path):
    with closing(Ledger(tmp_path / "l.sqlite", 1, delta=DELTA, budgets=[3.0], filter=kind)) as ledger:
        ledger.register([event])
        ledger.reserve(1, [0], 0)
        with closing(Replica.open(ledger.path)) as replica:
            standing = Standing.of(replica)
        left = int(outlook(standing, Question()).rounds[0])
        spent = ledger.account(0)
        assert client_rounds_left(ledger, 0, event) == left > 0
        needed = float(outlook(standing, Question(rounds=2 * left, budget=3.0)).noise[0])
        assert needed == pytest.approx(client_noise_for(ledger, 0, event, 2 * left), rel=2e-3)
        assert sum(len(ledger.reserve(t, [0], 0)[0]) for t in range(2, left + 10)) == left
    free = replace(event, noise_multiplier=needed)
    for noise in (needed, needed / 1.0011):
        path = tmp_path / f"{noise}.sqlite"
        with closing(Ledger(path, 1, delta=DELTA, budgets=[3.0], filter=kind)) as ledger:
            ledger.register([event, replace(free, noise_multiplier=noise)])
            ledger.reserve(1, [0] * spent[event], 0)
            passed = sum(len(ledger.reserve(t, [0], 1)[0]) for t in range(2, 2 * left + 2))
            assert (passed == 2 * left) is (noise == needed)


def test_a_filter_is_asked_about_other_budgets_too(tmp_path):
    """With the exact account the same releases of epochs would fit longer: amplification is not in this filter."""
    answers = []
    for kind in (None, "gaussian"):
        with closing(Ledger(tmp_path / f"{kind}.sqlite", 1, delta=DELTA, filter=kind)) as ledger:
            ledger.register([EPOCH])
            ledger.reserve(1, [0], 0)
            with closing(Replica.open(ledger.path)) as replica:
                answers.append(outlook(Standing.of(replica), Question(budget=8.0)).rounds[0])
                assert math.isinf(outlook(Standing.of(replica), Question()).rounds[0])
    assert 0 < answers[1] < answers[0]


@pytest.mark.parametrize("kind", [None, "gaussian"])
def test_where_a_cap_ends_the_rounds_epsilon_is_that_of_those_rounds(kind, tmp_path):
    budgets, caps = [3.0, 3.0, math.inf], [5, 1000, 9]
    with closing(Ledger(tmp_path / "l.sqlite", 3, delta=DELTA, budgets=budgets, caps=caps, filter=kind)) as ledger:
        ledger.register([GAUSS])
        ledger.reserve(1, [0, 1, 2], 0)
        with closing(Replica.open(ledger.path)) as replica:
            ahead = outlook(Standing.of(replica), Question())
    assert ahead.rounds.tolist() == [4.0, 7.0, 8.0]
    assert ahead.epsilon.tolist() == [gaussian_epsilon(DELTA, math.sqrt(1 + n) / 4) for n in ahead.rounds]


@pytest.mark.parametrize(("rounds", "budget"), [(50, 6.0), (3, 40.0), (500, 3.5)])
def test_the_noise_that_fits_is_the_smallest_on_its_grid(standing, rounds, budget):
    ahead = outlook(standing, Question(rounds=rounds, budget=budget))
    for client in (0, 1):
        z = float(ahead.noise[client])
        assert ahead.epsilon[client] <= budget * (1 + 1e-9)
        below = outlook(standing, Question(rounds=rounds, noise=z / 1.0011))
        assert below.epsilon[client] > budget
        assert outlook(standing, Question(rounds=rounds, noise=z)).epsilon[client] <= budget * (1 + 1e-9)


@pytest.mark.parametrize("budget", [1e6, 1e9, 1e300])
def test_a_vast_budget_takes_next_to_no_noise(standing, budget):
    ahead = outlook(standing, Question(rounds=5, budget=budget))
    assert (ahead.noise[:2] > 0).all()
    assert (ahead.noise[:2] < 1e-2).all()
    assert (ahead.epsilon[:2] <= budget * (1 + 1e-9)).all()


def test_where_the_budget_is_spent_no_noise_is_enough(standing):
    ahead = outlook(standing, Question(rounds=5, budget=0.5))
    assert np.isinf(ahead.noise[:2]).all()
    assert np.isnan(ahead.epsilon[:2]).all()
    assert outlook(standing, Question(budget=0.5)).rounds[:2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": -1}, {"noise": 0.0}, {"noise": math.inf}, {"budget": -1.0}, {"rounds": 1, "noise": 1.0, "budget": 1.0}],
)
def test_what_cannot_be_asked(wrong):
    with pytest.raises(InvalidValue):
        Question(**wrong)


def test_budgets_hold_at_their_own_delta_alone(standing):
    with pytest.raises(InvalidValue, match="budget"):
        outlook(standing, Question(), 1e-7)
    assert (outlook(standing, Question(budget=3.0), 1e-7).rounds[:2] >= 0).all()


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 17, 1000, 65537, MOST_ROUNDS, MOST_ROUNDS + 1, 3 * MOST_ROUNDS // 2])
def test_the_search_for_rounds(limit):
    asked = []

    def after(n):
        asked.append(n)
        return math.sqrt(n)

    expected = limit if limit <= MOST_ROUNDS else math.inf
    assert rounds_that_fit(after, math.sqrt(limit) + 1e-6) == most_that_fit(lambda n: n <= limit) == expected
    assert len(asked) < 2 * math.log2(limit + 2) + 12
