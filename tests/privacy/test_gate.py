"""The gate: what it adds, what it refuses, and that its draws are a function of their names alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.keys import noise_key
from dualfed.privacy.gate import Bound, Granted, GrantMissing, NoiseGate, NotFinite

KEY = noise_key(3)


def gate(clients=(0, 1, 2), z=1.0, sensitivity=1.0, number=0, round=1, **bound):
    ids = np.array(clients)
    n = len(ids)
    granted = Granted(round, ids, np.full(n, number), np.full(n, float(z)))
    return NoiseGate(granted, Bound(np.full(n, float(sensitivity)), **bound), KEY)


def test_noise_has_the_deviation_of_multiplier_times_sensitivity():
    released = gate(z=1.5, sensitivity=0.2).release(torch.zeros(3, 20_000, dtype=torch.float64))
    assert released.std(dim=1).numpy() == pytest.approx(0.3, rel=0.02)
    assert released.mean(dim=1).numpy() == pytest.approx(0.0, abs=0.01)
    correlation = np.corrcoef(released.numpy())
    assert np.abs(correlation - np.eye(3)).max() < 0.03


def test_each_client_gets_its_own_deviation():
    ids = np.arange(2)
    granted = Granted(1, ids, np.zeros(2, int), np.array([1.0, 3.0]))
    released = NoiseGate(granted, Bound(np.array([1.0, 2.0])), KEY).release(torch.zeros(2, 50_000))
    assert released.std(dim=1).numpy() == pytest.approx([1.0, 6.0], rel=0.02)


def test_a_draw_depends_on_its_name_and_on_nothing_else():
    alone = gate(clients=[7], number=4).release(torch.zeros(1, 5, dtype=torch.float64))
    among = gate(clients=[2, 7], number=4).release(torch.zeros(2, 5, dtype=torch.float64))
    assert torch.equal(alone[0], among[1])
    for other in (gate(clients=[7], number=5), gate(clients=[7], number=4, round=2), gate(clients=[8], number=4)):
        assert not torch.equal(alone, other.release(torch.zeros(1, 5, dtype=torch.float64)))


def test_a_grant_is_used_once():
    one = gate()
    one.release(torch.zeros(3, 2))
    with pytest.raises(GrantMissing):
        one.release(torch.zeros(3, 2))
    two = gate(parts=2)
    first = two.release(torch.zeros(3, 2)).clone()
    assert not torch.equal(first, two.release(torch.zeros(3, 2), part=1))
    with pytest.raises(GrantMissing):
        two.release(torch.zeros(3, 2), part=2)


def test_rows_without_a_grant_are_refused():
    with pytest.raises(GrantMissing):
        gate().release(torch.zeros(4, 2))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_named_and_not_released(bad):
    value = torch.zeros(3, 4)
    value[1, 2] = bad
    with pytest.raises(NotFinite, match="client 11, round 5"):
        gate(clients=[10, 11, 12], round=5).release(value)
    assert value[0].eq(0).all()


def test_clipping_scales_long_rows_and_leaves_a_zero_row_to_pure_noise():
    value = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    clipping = gate(z=0.0, clip=1.0)
    released = clipping.release(value.clone())
    assert released.tolist() == [pytest.approx([0.6, 0.8]), pytest.approx([0.3, 0.4]), [0.0, 0.0]]
    assert clipping.clipped.tolist() == [True, False, False]
    noisy = gate(z=1.0, clip=1.0).release(torch.zeros(3, 4))
    assert torch.isfinite(noisy).all()
    assert noisy.ne(0).all()


def test_epoch_batches_are_distinct_records_of_the_client():
    sizes = [50, 64, 1000]
    drawn = gate().batches("epoch", sizes, steps=5, batch=10)
    assert drawn.shape == (3, 50)
    for row, size in zip(drawn.tolist(), sizes):
        assert len(set(row)) == 50
        assert min(row) >= 0
        assert max(row) < size


def test_independent_batches_are_distinct_within_a_batch_and_differ_between_batches():
    drawn = gate().batches("independent", [12, 12, 12], steps=6, batch=8).view(3, 6, 8)
    assert all(len(set(batch)) == 8 for client in drawn.tolist() for batch in client)
    assert any(len(set(client[0]) | set(client[1])) > 8 for client in drawn.tolist())


@pytest.mark.parametrize("kind", ["epoch", "independent", "iid"])
def test_every_record_is_as_likely_as_every_other_in_every_batch(kind):
    size, counts = 10, np.zeros((2, 10))
    for number in range(3000):
        drawn = gate(clients=[0], number=number).batches(kind, [size], steps=2, batch=3).view(2, 3)
        for step in range(2):
            counts[step] += np.bincount(drawn[step].numpy(), minlength=size)
    expected = 3000 * 3 / size
    assert (((counts - expected) ** 2 / expected).sum(axis=1) < 30).all()  # χ² with 9 degrees of freedom


def test_injected_values_replace_noise_and_only_where_no_privacy_is_claimed():
    ids = np.arange(2)
    injected = torch.full((2, 3), 5.0)
    open_gate = NoiseGate(Granted(1, ids, np.zeros(2, int), np.zeros(2)), Bound(np.ones(2)), KEY, injected)
    assert open_gate.release(torch.ones(2, 3)).eq(6).all()
    with pytest.raises(GrantMissing):
        NoiseGate(Granted(1, ids, np.zeros(2, int), np.ones(2)), Bound(np.ones(2)), KEY, injected)


def test_the_global_generators_are_left_alone():
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    gate().release(torch.zeros(3, 8))
    gate().batches("iid", [5, 5, 5], 2, 2)
    assert torch.equal(before, torch.random.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()  # noqa: NPY002


def test_an_unbounded_value_without_noise_is_released_as_it_is():
    """∞ sensitivity and no noise is what a run without privacy may have: nothing is added, not 0·∞."""
    value = torch.ones(3, 4)
    assert gate(z=0.0, sensitivity=float("inf")).release(value).eq(1).all()


def test_a_method_cannot_draw_the_gates_own_noise():
    one = gate()
    mine = np.random.Generator(np.random.Philox(key=one.stream_keys("noise")[0])).standard_normal(6)
    released = one.release(torch.zeros(3, 6, dtype=torch.float64))
    assert not np.allclose(released[0].numpy(), mine)


def test_rows_of_records_get_each_clients_own_noise():
    """Unequal numbers of rows, noise of each client's scale, the same whoever is released with it, and once."""
    counts, ids = np.array([3, 1, 4000]), np.array([5, 2, 9])
    bound = Bound(np.array([1.0, 2.0, 0.5]))

    def gate(rows):
        granted = Granted(0, ids[rows], np.zeros(len(rows), np.int64), np.full(len(rows), 2.0))
        return NoiseGate(granted, Bound(bound.sensitivity[rows]), b"k" * 32)

    every = np.arange(3)
    together = gate(every).release_rows(torch.zeros(4004, 2, dtype=torch.float64), counts)
    alone = gate(every[1:2]).release_rows(torch.zeros(1, 2, dtype=torch.float64), counts[1:2])
    assert torch.equal(together[3:4], alone)
    assert float(together[4:].std()) == pytest.approx(1.0, rel=0.05)
    assert len(torch.unique(together)) == together.numel()
    used = gate(every)
    used.release_rows(torch.zeros(4004, 2), counts)
    with pytest.raises(GrantMissing, match="used already"):
        used.release_rows(torch.zeros(4004, 2), counts)
    with pytest.raises(GrantMissing, match="4003 rows for 4004"):
        gate(every).release_rows(torch.zeros(4003, 2), counts)
    wrong = torch.zeros(4004, 2)
    wrong[3, 0] = float("nan")
    with pytest.raises(NotFinite, match="client 2"):
        gate(every).release_rows(wrong, counts)


def test_a_round_without_a_grant_lets_nothing_out():
    nothing = np.zeros(2)
    gate = NoiseGate(Granted(3, np.arange(2), np.full(2, -1), nothing), Bound(nothing, parts=0), b"k" * 32)
    with pytest.raises(GrantMissing, match="not granted"):
        gate.release(torch.zeros(2, 3))
    with pytest.raises(GrantMissing, match="not granted"):
        gate.release_rows(torch.zeros(2, 3), np.ones(2, np.int64))
