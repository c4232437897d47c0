import math
import os
import subprocess
import sys

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.calibration import noise_multiplier_for
from dualfed.privacy.envelope import Envelope
from dualfed.privacy.events import EpochEvent, GaussianEvent, IidEvent
from dualfed.privacy.journal import Journal, JournalDamaged, JournalUnwritable
from dualfed.privacy.ledger import Grants, Ledger
from dualfed.privacy.profiles import gaussian_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

DELTA = 1e-5
GAUSS = GaussianEvent(noise_multiplier=2.0)
EPOCH = EpochEvent(noise_multiplier=1.0, rate=0.1, steps=5, contraction=0.9)
SILENT = GaussianEvent(noise_multiplier=0.0)


@pytest.fixture
def make(tmp_path):
    opened = []

    def make(n_clients=4, name="ledger.sqlite", events=(GAUSS, EPOCH), **given):
        ledger = Ledger(tmp_path / name, n_clients, **{"delta": DELTA, **given})
        opened.append(ledger)
        ledger.register(events)
        return ledger

    yield make
    for ledger in opened:
        ledger.close()


def test_epsilon_after_n_releases_is_the_closed_form(make):
    ledger = make()
    for round in range(9):
        grants, refusals = ledger.reserve(round, [0, 2] if round < 4 else [2], 0)
        assert not refusals
        assert grants.numbers.tolist() == ([round, round] if round < 4 else [round])
    losses = [loss.epsilon for loss in ledger.epsilon()]
    assert losses == [gaussian_epsilon(DELTA, math.sqrt(n) / 2) for n in (4, 0, 9, 0)]
    assert ledger.epsilon(2, delta=1e-3)[0].epsilon == gaussian_epsilon(1e-3, 1.5)
    assert ledger.epsilon(np.int64(2)) == ledger.epsilon([2]) == [ledger.epsilon()[2]]
    assert ledger.what_if(GAUSS, 1, np.int64(2)) == ledger.what_if(GAUSS, 1, [2])
    summary = ledger.summary()
    assert summary["max"] == losses[2]
    assert summary["client"] == 2
    assert summary["median"] == np.median(losses)
    assert summary["round"] == 8
    assert summary["status"] == "guaranteed"
    assert ledger.participations.tolist() == [4, 0, 9, 0]
    assert ledger.account(2) == {GAUSS: 9}


@pytest.mark.parametrize("event", [0, 1])
def test_a_run_stops_exactly_where_the_formula_says(make, event):
    accountant = Accountant(rdp=False)
    twelve, thirteen = (accountant.bound({(GAUSS, EPOCH)[event]: n}, DELTA) for n in (12, 13))
    for k, budget in enumerate((twelve, (twelve + thirteen) / 2, thirteen * (1 - 1e-6))):
        ledger = make(3, f"{k}.sqlite", budgets=np.full(3, budget))
        taken = np.zeros(3, int)
        for round in range(20):
            grants, refusals = ledger.reserve(round, [0, 1, 2], event)
            taken[grants.clients] += 1
            assert {refusal.client for refusal in refusals} == {0, 1, 2} - set(grants.clients.tolist())
        assert taken.tolist() == [12, 12, 12]
        assert "budget" in refusals[0].reason
        assert max(loss.epsilon for loss in ledger.epsilon()) <= budget * (1 + 1e-9)
        assert ledger.remaining(0, (GAUSS, EPOCH)[event]).releases == 0


def test_a_calibrated_plan_is_used_up_to_its_last_release(make):
    template = {EpochEvent(rate=0.1, steps=5, contraction=0.9 + 0.02 * k): 5 + k for k in range(4)}
    z = noise_multiplier_for(template, 3.0, DELTA)
    events = [EpochEvent(noise_multiplier=z, rate=e.rate, steps=5, contraction=e.contraction) for e in template]
    accountant = Accountant(rdp=False)
    ledger = make(5, events=events, budgets=np.full(5, 3.0), accountant=accountant)
    plan = np.tile(list(template.values()), (5, 1))
    assert ledger.certify(plan).all()
    assert accountant.compositions == 1
    for event, count in enumerate(template.values()):
        for round in range(count):
            _, refusals = ledger.reserve(round, range(5), event)
            assert not refusals
    assert accountant.compositions == 1
    # What is left of the budget is less than a third of a percent of noise: no room for one more.
    _, refusals = ledger.reserve(99, range(5), 0)
    assert len(refusals) == 5
    assert not ledger.certify(plan + 5).any()
    with pytest.raises(ValueError, match="shape"):
        ledger.certify(plan[:, :2])


def test_budget_checks_compose_a_logarithmic_number_of_times(make):
    accountant = Accountant(rdp=False)
    budget = accountant.bound({EPOCH: 400}, DELTA)
    accountant.compositions = 0
    ledger = make(50, budgets=np.full(50, budget), accountant=accountant)
    for round in range(420):
        grants, _ = ledger.reserve(round, range(50), 1)
        assert len(grants) == (50 if round < 400 else 0)
    assert accountant.compositions <= 25


def test_the_work_of_a_charge_does_not_grow_with_history(make):
    ledger = make(100)
    statements: list[str] = []
    ledger._journal._db.set_trace_callback(statements.append)
    work = []
    for round in range(600):
        del statements[:]
        ledger.reserve(round, range(100), round % 2)
        work.append(len(statements))
    assert len(set(work)) == 1
    assert ledger.counts.sum() == 60_000
    assert ledger.accountant.compositions == 0


def test_unequal_budgets_caps_and_clients_without_either(make):
    one = gaussian_epsilon(DELTA, 0.5)
    ledger = make(4, budgets=[one, math.inf, 0.0, 10 * one], caps=[9, 3, 9, 0])
    for round in range(5):
        grants, refusals = ledger.reserve(round, [3, 2, 1, 0], 0)
    assert ledger.participations.tolist() == [1, 3, 0, 0]
    assert len(grants) == 0
    assert grants.transaction == -1
    reasons = {refusal.client: refusal.reason for refusal in refusals}
    assert "budget" in reasons[0]
    assert "3 planned participations" in reasons[1]
    assert "budget" in reasons[2]
    assert ledger.remaining(1, GAUSS).releases == math.inf
    assert ledger.remaining(1).participations == 0
    assert ledger.remaining(1).epsilon == math.inf
    assert ledger.remaining(0).epsilon == pytest.approx(0, abs=1e-9)
    assert ledger.remaining(3, GAUSS).releases > 10


def test_a_release_without_noise_costs_everything(make):
    ledger = make(2, events=[GAUSS, SILENT], budgets=[1e9, math.inf])
    grants, refusals = ledger.reserve(0, [0, 1], 1)
    assert grants.clients.tolist() == [1]
    assert refusals[0].client == 0
    assert [loss.epsilon for loss in ledger.epsilon()] == [0, math.inf]
    grants, _ = ledger.reserve(1, [0, 1], 0)
    assert len(grants) == 2


def test_a_client_that_releases_several_times_in_a_round_gets_all_or_nothing(make):
    ledger = make(2, budgets=np.full(2, gaussian_epsilon(DELTA, math.sqrt(7) / 2)))
    grants, _ = ledger.reserve(0, [0, 1, 0, 0], [0, 0, 0, 0])
    assert grants.numbers.tolist() == [0, 0, 1, 2]
    grants, _ = ledger.reserve(1, [0] * 3, 0)
    assert grants.numbers.tolist() == [3, 4, 5]
    grants, refusals = ledger.reserve(2, [0, 0, 1], 0)
    assert grants.clients.tolist() == [1]
    assert refusals[0].client == 0
    assert ledger.participations.tolist() == [2, 2]
    assert ledger.remaining(0, GAUSS).releases == 1


def test_void_takes_back_the_charge_and_not_the_number(make):
    ledger = make(3, caps=[2, 2, 2])
    ledger.reserve(0, [0, 1], 0)
    before = [loss.epsilon for loss in ledger.epsilon()]
    grants, _ = ledger.reserve(1, [0, 1, 2, 2], [0, 0, 1, 1])
    during = ledger.epsilon(2)[0].epsilon
    assert during > 0
    part = Grants(1, grants.clients[2:3], grants.numbers[2:3], grants.events[2:3], grants.transaction)
    with pytest.raises(ValueError, match="not all that a client got"):
        ledger.void(part)
    ledger.void(grants)
    with pytest.raises(ValueError, match="only once"):
        ledger.void(grants)
    with pytest.raises(ValueError, match="journal holds"):
        ledger.void(Grants(1, np.array([0]), np.array([7]), np.array([0]), 1))
    assert [loss.epsilon for loss in ledger.epsilon()] == before
    assert ledger.participations.tolist() == [1, 1, 0]
    again, _ = ledger.reserve(2, [0, 2], 0)
    assert again.numbers.tolist() == [2, 2]
    history = ledger.history(2)
    assert [(charge.number, charge.voided) for charge in history] == [(0, True), (1, True), (2, False)]
    assert history[0].event == EPOCH
    assert len(ledger.history()) == 8
    ledger.void(Grants(3, *(np.empty(0, np.int64),) * 3))


def test_reopened_ledger_goes_on_where_it_was(make, tmp_path):
    ledger = make(3, budgets=[50.0, 60.0, math.inf], meta={"noise": "seeded"})
    for round in range(5):
        grants, _ = ledger.reserve(round, [0, 1], [0, 1])
    ledger.void(grants)
    losses, counts = [loss.epsilon for loss in ledger.epsilon()], ledger.counts
    ledger.close()
    again = make(3, budgets=[50.0, 60.0, math.inf])
    assert [loss.epsilon for loss in again.epsilon()] == losses
    np.testing.assert_array_equal(again.counts, counts)
    assert again.events == [GAUSS, EPOCH]
    assert again.round == 4
    assert again.participations.tolist() == [4, 4, 0]
    assert again.meta["noise"] == "seeded"
    grants, _ = again.reserve(5, [0, 2], 0)
    assert grants.numbers.tolist() == [5, 0]
    others = {"n_clients": 4, "budgets": None}, {"delta": 1e-6}, {"budgets": [50.0, 60.0, 70.0]}, {"caps": [1, 1, 1]}
    for other in others:
        with pytest.raises(InvalidValue, match="same settings"):
            make(**{"n_clients": 3, "budgets": [50.0, 60.0, math.inf], **other})


def test_readers_follow_the_writer_and_change_nothing(make):
    ledger = make()
    ledger.reserve(0, [0, 1], 1)
    reader = Ledger.open_readonly(ledger.path)
    assert reader.summary()["max"] == ledger.summary()["max"]
    with pytest.raises(JournalUnwritable):
        reader.reserve(1, [0], 0)
    assert reader.account(0) == {EPOCH: 1}
    ledger.reserve(1, [0], 1)
    assert len(reader.history(0)) == 2
    reader.close()
    later = Ledger.open_readonly(ledger.path)
    assert later.account(0) == {EPOCH: 2}
    later.close()


def test_queries_have_no_side_effects(make):
    ledger = make(budgets=np.full(4, 5.0))
    ledger.reserve(0, [0, 1], 1)
    before, losses = ledger.path.read_bytes(), ledger.epsilon()
    what_if = ledger.what_if(EPOCH, 10)
    assert what_if[0].epsilon == Accountant(rdp=False).bound({EPOCH: 11}, DELTA)
    assert what_if[2].epsilon == Accountant(rdp=False).bound({EPOCH: 10}, DELTA)
    assert ledger.what_if(IidEvent(noise_multiplier=1.0, rate=0.1), 3, 0)[0].epsilon > losses[0].epsilon
    for _ in range(2):
        ledger.summary()
        ledger.remaining(0, EPOCH)
        ledger.history()
    assert ledger.epsilon() == losses
    assert ledger.path.read_bytes() == before
    assert ledger.counts.sum() == 2
    ledger.counts[:] = 0
    ledger.participations[:] = 0
    assert ledger.counts.sum() == 2


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=6), st.integers(0, 2)), max_size=12))
def test_loss_never_falls_and_equals_that_of_the_account(tmp_path_factory, rounds):
    tiny = EpochEvent(noise_multiplier=50.0, rate=0.001, steps=2, contraction=0.5)
    ledger = Ledger(tmp_path_factory.mktemp("l") / "l.sqlite", 4, delta=DELTA, budgets=np.full(4, 2.5))
    ledger.register([GAUSS, EPOCH, tiny])
    last = np.zeros(4)
    for round, (clients, event) in enumerate(rounds):
        ledger.reserve(round, clients, event)
        now = np.array([loss.epsilon for loss in ledger.epsilon()])
        assert (now >= last).all()
        assert (now <= 2.5 * (1 + 1e-9)).all()
        last = now
    fresh = Accountant(rdp=False)
    for client in range(4):
        assert last[client] == pytest.approx(fresh.epsilon(ledger.account(client), DELTA).epsilon, rel=1e-4)
    ledger.close()


def test_what_the_envelope_admits_is_within_the_budget():
    accountant = Accountant(rdp=False)
    rng = np.random.default_rng(0)
    envelope = Envelope(accountant, DELTA, np.full(30, 3.0))
    events = [EPOCH, GaussianEvent(noise_multiplier=5.0), IidEvent(noise_multiplier=1.0, rate=0.05)]
    envelope.extend(events[:2])
    envelope.extend(events[2:])
    accounts = np.stack([rng.integers(0, 60, 30), rng.integers(0, 8, 30), rng.integers(0, 40, 30)], axis=1)
    good = envelope.admits(np.arange(30), accounts, np.tile([1, 0, 0], (30, 1)))
    exact = [accountant.bound(dict(zip(events, row.tolist())), DELTA) <= 3.0 for row in accounts]
    assert good.tolist() == exact
    assert 3 < good.sum() < 27


def test_nonsense_is_refused_before_anything_is_charged(make, tmp_path):
    ledger = make()
    for clients, events in (([4], 0), ([-1], 0), ([0], 2), ([0], -1)):
        with pytest.raises(ValueError, match=r"clients must|not registered"):
            ledger.reserve(0, clients, events)
    with pytest.raises(ValueError, match="does not exist"):
        ledger.account(4)
    assert ledger.reserve(0, [], 0)[1] == []
    assert ledger.counts.sum() == 0
    for wrong in ({"delta": 1.0}, {"budgets": [1.0]}, {"budgets": [1.0, math.nan, 1.0, 1.0]}, {"caps": [-1] * 4}):
        with pytest.raises(InvalidValue):
            make(4, "other.sqlite", **wrong)
    assert not (tmp_path / "other.sqlite").exists()


def test_a_failed_write_charges_nothing(make):
    ledger = make()
    ledger.reserve(0, [0], 0)
    rival = Journal.open(ledger.path, {})
    rival.append("note", 0, np.empty((0, 3), np.int64), "a second writer")
    with pytest.raises(JournalUnwritable):
        ledger.reserve(1, [0], 0)
    assert ledger.participations.tolist() == [1, 0, 0, 0]
    rival.append("reserve", 1, np.array([[0, 0, 0]]))
    rival.close()
    with pytest.raises(JournalDamaged, match="grant numbers"):
        Ledger.open_readonly(ledger.path)


WORKER = """
import sys
from dualfed.privacy.events import GaussianEvent
from dualfed.privacy.ledger import Ledger
ledger = Ledger(sys.argv[1], 4, delta=1e-5)
ledger.register([GaussianEvent(noise_multiplier=2.0)])
for round in range(10**6):
    grants, _ = ledger.reserve(round, [0, 1], 0)
    print(*grants.numbers, flush=True)
"""


def test_no_number_is_granted_twice_across_a_kill(tmp_path):
    path = tmp_path / "ledger.sqlite"
    seen: list[str] = []
    for _ in range(2):
        worker = subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        seen += [worker.stdout.readline().strip() for _ in range(10)]
        os.kill(worker.pid, 9)
        seen += [line for line in worker.stdout.read().splitlines() if len(line.split()) == 2]
        worker.wait()
    assert len(set(seen)) == len(seen)
    ledger = Ledger(path, 4, delta=DELTA)
    assert ledger.participations[0] >= len(seen)
    assert ledger.reserve(0, [0], 0)[0].numbers[0] == ledger.participations[0] - 1
    ledger.close()
