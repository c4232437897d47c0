import math
from dataclasses import replace

import pytest
from dualfed.errors import InvalidValue
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.events import EpochEvent, GaussianEvent, PureEvent, SubsampledEvent, ZcdpEvent
from dualfed.privacy.ledger import Ledger
from dualfed.privacy.what_if import client_noise_for, client_rounds_left, noise_for, rounds_left

DELTA = 1e-5
SHARED = Accountant(rdp=False)
GAUSS = GaussianEvent(noise_multiplier=4.0)
EPOCH = EpochEvent(noise_multiplier=1.0, rate=0.1, steps=5, contraction=0.9)
ACCOUNTS = [
    ({}, GAUSS),
    ({GAUSS: 7}, GAUSS),
    ({GAUSS: 3}, EPOCH),
    ({EPOCH: 20}, PureEvent.of(0.2)),
    ({PureEvent.of(0.3): 4}, PureEvent.of(0.2)),
    ({ZcdpEvent.of(0.02): 2}, GAUSS),
    ({EPOCH: 10}, SubsampledEvent(noise_multiplier=2.0, rate=0.05, steps=3)),
]


@pytest.mark.parametrize(("account", "event"), ACCOUNTS)
def test_rounds_left_is_where_stepping_passes_the_budget(account, event):
    budget, fits = 4.0, 0
    while True:
        after = dict(account)
        after[event] = after.get(event, 0) + fits + 1
        if SHARED.bound(after, DELTA) > budget:
            break
        fits += 1
    assert rounds_left(account, event, budget, DELTA, SHARED) == fits > 0


@pytest.mark.parametrize(("account", "event"), ACCOUNTS)
@pytest.mark.parametrize("rounds", [1, 30])
def test_noise_for_rounds_is_the_least_that_fits(account, event, rounds):
    z = noise_for(account, event, rounds, 4.0, DELTA, SHARED)

    def loss(z):
        noised, after = replace(event, noise_multiplier=z), dict(account)
        after[noised] = after.get(noised, 0) + rounds
        return SHARED.bound(after, DELTA)

    assert loss(z) <= 4.0 * (1 + 1e-9)
    assert loss(z * (1 - 1e-3)) > 4.0
    assert rounds_left(account, replace(event, noise_multiplier=z), 4.0, DELTA, SHARED) == rounds


def test_gaussian_noise_is_the_closed_form():
    z = noise_for({GAUSS: 16}, GAUSS, 9, 5.0, DELTA)
    spent = SHARED.delta({replace(GAUSS, noise_multiplier=z): 9, GAUSS: 16}, 5.0)
    assert spent == pytest.approx(DELTA, rel=1e-3)
    assert spent <= DELTA * (1 + 1e-6)


def test_limits():
    assert rounds_left({GAUSS: 5}, GAUSS, math.inf, DELTA) == math.inf
    assert rounds_left({GAUSS: 500}, GAUSS, 1.0, DELTA) == 0
    assert rounds_left({}, GaussianEvent(), 1.0, DELTA) == 0
    assert noise_for({GAUSS: 500}, GAUSS, 1, 1.0, DELTA) == math.inf
    assert noise_for({}, GAUSS, 0, 1.0, DELTA) == 0
    assert noise_for({}, GAUSS, 5, math.inf, DELTA) == 0
    # What protects a whole data set counts for a record of it; the ledger refuses both alike.
    client = replace(GAUSS, unit="client")
    assert rounds_left({client: 500}, GAUSS, 1.0, DELTA) == rounds_left({GAUSS: 500}, client, 1.0, DELTA) == 0
    assert rounds_left({client: 3}, GAUSS, 2.0, DELTA) == rounds_left({GAUSS: 3}, GAUSS, 2.0, DELTA) > 0
    for wrong in ({"budget": -1.0}, {"budget": math.nan}, {"delta": 0.0}):
        with pytest.raises(InvalidValue):
            rounds_left({}, GAUSS, **{"budget": 1.0, "delta": DELTA, **wrong})
    with pytest.raises(InvalidValue):
        noise_for({}, GAUSS, -1, 1.0, DELTA)


def test_a_ledger_grants_what_was_foretold(tmp_path):
    ledger = Ledger(tmp_path / "l.sqlite", 2, delta=DELTA, budgets=[3.0, 6.0])
    ledger.register([GAUSS, EPOCH])
    for round in range(4):
        ledger.reserve(round, [0, 1], [0, 1])
    before = ledger.path.read_bytes()
    foretold = [client_rounds_left(ledger, client, GAUSS) for client in (0, 1)]
    z = client_noise_for(ledger, 0, EPOCH, 25)
    assert client_rounds_left(ledger, 0, GAUSS, budget=6.0) > foretold[0]
    assert ledger.path.read_bytes() == before
    # Client 0 makes 25 more epoch rounds at that noise, and a 26th is refused.
    (noised,) = ledger.register([replace(EPOCH, noise_multiplier=z)])
    refused = [bool(ledger.reserve(4 + round, [0], noised)[1]) for round in range(26)]
    assert refused == [False] * 25 + [True]
    refused = [bool(ledger.reserve(40 + round, [1], 0)[1]) for round in range(int(foretold[1]) + 1)]
    assert refused == [False] * int(foretold[1]) + [True]
    ledger.close()
