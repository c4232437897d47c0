"""A replica follows a journal that another ledger writes, and is exact as of every transaction."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.privacy.events import EpochEvent, GaussianEvent
from dualfed.privacy.journal import JournalDamaged
from dualfed.privacy.ledger import Ledger
from dualfed.privacy.replica import Replica, distinct_rows

GAUSS = GaussianEvent(noise_multiplier=2.0)
EPOCH = EpochEvent(noise_multiplier=1.0, rate=0.1, steps=5, contraction=0.9)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", 6, delta=1e-5, budgets=np.full(6, 9.0))
    ledger.register([GAUSS, EPOCH])
    yield ledger
    ledger.close()


@pytest.fixture
def replica(ledger):
    replica = Replica.open(ledger.path)
    yield replica
    replica.close()


def same(replica, ledger):
    fresh = Ledger.open_readonly(ledger.path)
    try:
        assert np.array_equal(replica.counts, fresh.counts)
        assert replica.table().epsilon.tolist() == [loss.epsilon for loss in fresh.epsilon()]
        assert replica.participations.tolist() == fresh.participations.tolist()
        assert replica.position == fresh.position
    finally:
        fresh.close()


def test_it_takes_in_what_is_new_and_nothing_else(ledger, replica):
    assert not replica.refresh()
    assert replica.round == -1
    for t in range(1, 6):
        ledger.reserve(t, [0, 1, t % 6], t % 2)
        assert replica.counts.sum() == 3 * (t - 1), "nothing moves before it is asked to"
        assert replica.refresh()
        same(replica, ledger)
        assert replica.round == t
        assert replica.transaction == ledger.position["seq"]
    assert replica.last_round.tolist() == [5, 5, 2, 3, 4, 5]
    assert not replica.refresh()


def test_events_that_are_registered_later_are_known(ledger, replica):
    events = [GaussianEvent(noise_multiplier=1.0 + k) for k in range(20)]
    ids = ledger.register(events)
    ledger.reserve(1, np.arange(6), ids[-6:])
    replica.refresh()
    same(replica, ledger)
    assert replica.latest(5) == {events[-1]: 1}


def test_reading_the_history_does_not_make_it_miss_charges(ledger, replica):
    ledger.reserve(1, [0, 1], 0)
    replica.history()
    list(replica.entries())
    replica.charges()
    ledger.reserve(2, [0], 0)
    replica.history()
    replica.refresh()
    same(replica, ledger)
    assert replica.counts.sum() == 3


def test_a_void_gives_back_the_round_before(ledger, replica):
    ledger.reserve(1, [0, 1, 2], 1)
    grants, _ = ledger.reserve(2, [0, 3], 0)
    replica.refresh()
    ahead = replica.table()
    assert (replica.round, ahead.last_round.tolist()) == (2, [2, 1, 1, 2, -1, -1])
    ledger.void(grants)
    replica.refresh()
    back = replica.table()
    assert (replica.round, back.last_round.tolist()) == (1, [1, 1, 1, -1, -1, -1])
    same(replica, ledger)
    assert back.epsilon[3] == 0
    assert [charge.voided for charge in replica.charges(0)] == [False, True]
    assert replica.latest(0) == {GAUSS: 1}, "the noise of the next round, although that was voided"
    reopened = Replica.open(ledger.path)
    assert (reopened.round, reopened.last_round.tolist()) == (1, [1, 1, 1, -1, -1, -1])
    reopened.close()


def test_charges_are_the_history(ledger, replica):
    for t in range(1, 4):
        ledger.reserve(t, [t, 0], 1)
    replica.refresh()
    assert replica.charges() == ledger.history()
    assert replica.charges(0) == ledger.history(0)
    first = next(iter(replica.entries())).seq
    last = replica.transaction
    assert [entry.seq for entry in replica.entries(last - 1)] == [last]
    assert first == 0
    assert len(replica.charges(since=last - 1)) == 2


def test_a_journal_that_lost_its_end_is_noticed(ledger, replica, tmp_path):
    import sqlite3

    ledger.reserve(1, [0], 0)
    replica.refresh()
    with sqlite3.connect(ledger.path) as db:
        db.execute("DELETE FROM charges")
        db.execute("UPDATE head SET seq = 0")
    with pytest.raises(JournalDamaged):
        replica.refresh()


def test_table_of_another_delta_says_nothing_of_budgets(ledger, replica):
    ledger.reserve(1, np.arange(6), 1)
    replica.refresh()
    table = replica.table()
    assert table.remaining.tolist() == (9.0 - table.epsilon).tolist()
    other = replica.table(1e-7)
    assert (other.epsilon > table.epsilon).all()
    assert np.isnan(other.budget).all()
    assert np.isnan(other.remaining).all()
    assert table.of(2).epsilon.tolist() == [table.epsilon[2]]


@pytest.mark.parametrize("shape", [(1, 1), (5, 0), (300, 7)])
def test_distinct_rows_are_those_of_numpy(shape):
    table = np.random.default_rng(1).integers(0, 2, shape)
    rows, place = distinct_rows(table)
    assert np.array_equal(rows[place], table)
    assert len(rows) == len({row.tobytes() for row in table})


def test_losses_are_computed_once_an_account(tmp_path):
    ledger = Ledger(tmp_path / "many.sqlite", 2000, delta=1e-5)
    ledger.register([EPOCH])
    clients = np.arange(2000)
    for t in range(1, 9):
        ledger.reserve(t, clients[clients % 8 < t], 0)
    replica = Replica.open(ledger.path)
    table = replica.table()
    assert replica.accountant.compositions == 7  # the account of one release needs none
    assert len(np.unique(table.epsilon)) == 8
    assert table.epsilon.tolist() == [loss.epsilon for loss in ledger.epsilon()]
    replica.close()
    ledger.close()
