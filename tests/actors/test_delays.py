"""Delay models without any training: distributions, keys, traces, churn."""

from __future__ import annotations

import random

import numpy as np
import pytest
from dualfed.actors.delays import DelayModel, Delays, Trace
from dualfed.errors import InvalidValue
from dualfed.keys import philox_words, public_key, uniforms

MANY = np.arange(20_000)


def test_philox_gives_the_published_words():
    """Known answers of Random123 (Salmon et al. 2011)."""
    ones = 0xFFFFFFFF
    cases = [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ones,) * 4, (ones, ones), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ]
    for counter, key, expected in cases:
        assert " ".join(f"{int(word):08x}" for word in philox_words(counter, key)) == expected


def test_a_draw_is_the_same_in_any_company_and_leaves_other_randomness_alone():
    key = public_key(3)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 (that the global generator is left alone is what is tested)
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    together = uniforms(key, "a", MANY, 5)
    alone = uniforms(key, "a", MANY[17:18], np.array([5]))
    assert together[17] == alone[0]
    assert uniforms(key, "b", MANY[:3], 5).tolist() != together[:3].tolist()
    assert uniforms(key, "a", MANY[:3], 6).tolist() != together[:3].tolist()
    assert ((together > 0) & (together < 1)).all()
    assert abs(together.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(together[:-1], together[1:])[0, 1]) < 0.03
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


@pytest.mark.parametrize(
    ("compute", "options", "quantiles"),
    [
        ("exponential", {}, lambda q: -2 * np.log(1 - q)),
        ("pareto", {"shape": 2.5}, lambda q: 2 * 1.5 / 2.5 * (1 - q) ** (-1 / 2.5)),
        ("lognormal", {"sigma": 0.5}, None),
        ("constant", {}, lambda q: 2 + 0 * q),
    ],
)
def test_delays_follow_their_distribution_and_mean(compute, options, quantiles):
    drawn = Delays(DelayModel(1, len(MANY), compute, mean_s=2.0, **options)).work(MANY, 4, 0.0)[0]
    assert drawn.mean() == pytest.approx(2.0, rel=0.05)
    levels = np.array([0.1, 0.5, 0.9])
    if quantiles is None:
        assert np.log(drawn).std() == pytest.approx(0.5, rel=0.02)
    else:
        np.testing.assert_allclose(np.quantile(drawn, levels), quantiles(levels), rtol=0.05)


def test_slow_clients_and_speeds_are_their_own_for_the_whole_run():
    delays = Delays(DelayModel(1, 100, "constant", slow_fraction=0.2, slow_factor=10.0, speeds=np.full(100, 2.0)))
    for round in (1, 7):
        drawn = delays.work(np.arange(100), round, 0.0)[0]
        assert sorted(drawn.tolist()) == [0.5] * 80 + [5.0] * 20
    spread = Delays(DelayModel(1, 5000, "constant", speed_spread=0.3)).factors
    assert np.log(spread).std() == pytest.approx(0.3, rel=0.05)


def test_messages_take_latency_and_their_bytes():
    assert Delays(DelayModel(1, 2, latency_s=0.1, bandwidth=1000.0)).message(500) == pytest.approx(0.6)
    assert Delays(DelayModel(1, 2)).message(10**9) == 0.0


def test_dropouts_and_lost_messages_have_their_rate():
    delays = Delays(DelayModel(1, len(MANY), dropout=0.3, message_drop=0.1))
    assert delays.work(MANY, 3, 0.0)[1].mean() == pytest.approx(0.3, abs=0.02)
    assert delays.lost_messages(len(MANY), 3).mean() == pytest.approx(0.1, abs=0.02)
    assert (delays.lost_messages(50, 3) == delays.lost_messages(100, 3)[:50]).all()


def _trace(by, rows, clients):
    who, at, seconds = (np.array(column) for column in zip(*rows))
    return Trace(by, who, at.astype(float), seconds.astype(float), clients)


def test_a_trace_gives_what_it_holds():
    by_round = _trace("round", [(1, 2, 5.0), (0, 1, 3.0), (0, 2, 4.0)], 2)
    assert by_round.at(np.array([0, 1]), np.array([2, 2]), np.zeros(2)).tolist() == [4.0, 5.0]
    by_time = _trace("time", [(0, 0, 3.0), (0, 10, 4.0), (1, 0, 1.0)], 2)
    assert by_time.at(np.array([0, 0, 0, 1]), np.ones(4), np.array([0, 9.9, 10.0, 99])).tolist() == [3.0, 3.0, 4.0, 1.0]


def test_a_missing_time_is_refused_and_never_zero():
    trace = _trace("round", [(0, 1, 3.0), (1, 1, 1.0), (1, 2, 2.0)], 2)
    with pytest.raises(InvalidValue, match=r"no row for client 0.* round 2"):
        trace.at(np.array([1, 0]), np.array([2, 2]), np.zeros(2))
    with pytest.raises(InvalidValue, match=r"no row for client 1.*start"):
        _trace("time", [(0, 0, 3.0), (1, 5, 3.0)], 2)
    with pytest.raises(InvalidValue, match="seconds ≥ 0"):
        _trace("round", [(0, 1, float("nan"))], 2)
    with pytest.raises(InvalidValue, match="two rows"):
        _trace("round", [(0, 1, 1.0), (0, 1, 2.0)], 2)
    with pytest.raises(InvalidValue, match="they are 0 to 1"):
        _trace("round", [(2, 1, 1.0)], 2)


def test_churn_has_its_share_and_its_lengths_and_does_not_depend_on_who_asks_when():
    model = DelayModel(5, 3000, online_s=3.0, offline_s=1.0)
    everyone = np.arange(3000)
    first, second = Delays(model).presence, Delays(model).presence
    on = first.next_online(everyone, 40.0) == 40.0
    assert on.mean() == pytest.approx(0.75, abs=0.03)
    returns = first.next_online(everyone, 40.0)[~on] - 40.0
    assert returns.mean() == pytest.approx(1.0, abs=0.1)  # exponential times have no memory
    for client in (7, 2, 2999):
        second.next_online(np.array([client]), 3.0)
    assert (second.next_online(everyone, 40.0) == first.next_online(everyone, 40.0)).all()
    again = first.next_online(everyone, 2.0)
    assert (again == Delays(model).presence.next_online(everyone, 2.0)).all(), "an earlier time is answered as at first"
    late = 40_000.0
    assert (first.next_online(everyone[:5], late) == second.next_online(everyone[:5], late)).all()


def test_churn_is_the_chain_of_its_keyed_stays():
    online, offline, key = 3.0, 1.0, public_key(5)
    presence = Delays(DelayModel(5, 40, online_s=online, offline_s=offline)).presence
    for client in range(40):
        who = np.array([client])
        on, turns = bool(uniforms(key, "time/present", who, 0)[0] < 0.75), [0.0]
        stretches = []
        while turns[-1] < 60:
            u = uniforms(key, "time/turn", who, len(turns))[0]
            turns.append(turns[-1] - np.log1p(-u) * (online if on else offline))
            stretches.append((turns[-2], turns[-1], on))
            on = not on
        for at in (0.0, 7.3, 31.0, 50.0, 12.0):
            _, ends, on = next(stretch for stretch in stretches if stretch[0] <= at < stretch[1])
            assert presence.next_online(who, at)[0] == pytest.approx(at if on else ends)


def test_recorded_absences():
    rows = np.array([[1, 2.0, 0], [1, 5.0, 1], [0, 0.0, 0], [0, 3.0, 0]])
    presence = Delays(DelayModel(1, 3, absences=rows)).presence
    for client, at, back in (
        (1, 1.0, 1.0),
        (1, 2.0, 5.0),
        (1, 5.0, 5.0),
        (1, 1.0, 1.0),
        (2, 9.0, 9.0),
        (0, 1.0, np.inf),
    ):
        assert presence.next_online(np.array([client]), at).tolist() == [back]
