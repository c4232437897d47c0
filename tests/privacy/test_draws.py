"""Keyed draws against the distributions that they claim."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from dualfed.keys import noise_key, stream_key, words
from dualfed.privacy.draws import as_uniform, distinct_records, normal_single
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

KEY = noise_key(1)


def streams(count, start=0):
    return [stream_key(KEY, "test", i) for i in range(start, start + count)]


def test_words_depend_on_their_stream_alone():
    together = words(streams(3), 10)
    assert (together[1] == words(streams(1, 1), 10)[0]).all()
    assert (together[:, :4] == words(streams(3), 4)).all()
    assert len(np.unique(together)) == 30


def test_single_precision_normals_are_normal_far_into_the_tails():
    noise = normal_single(streams(40), 100_001)
    assert noise.shape == (40, 100_001)
    assert noise.dtype == torch.float32
    values = noise.double().numpy().ravel()
    assert stats.kstest(values[::20], "norm").pvalue > 1e-3
    assert values.std() == pytest.approx(1, abs=2e-3)
    assert stats.skew(values) == pytest.approx(0, abs=5e-3)
    assert stats.kurtosis(values) == pytest.approx(0, abs=1e-2)
    for far in (3.0, 4.0):
        expected = len(values) * 2 * stats.norm.sf(far)
        assert (np.abs(values) > far).sum() == pytest.approx(expected, abs=5 * np.sqrt(expected))


def test_the_two_halves_of_a_pair_are_uncorrelated():
    noise = normal_single(streams(1), 2_000_000)[0].double().numpy()
    first, second = noise[:1_000_000], noise[1_000_000:]
    for power in (1, 2):
        assert np.corrcoef(first**power, second**power)[0, 1] == pytest.approx(0, abs=5e-3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(5, 60), min_size=1, max_size=6), st.integers(1, 5))
def test_distinct_records_are_distinct_and_in_range(sizes, count):
    drawn = distinct_records(streams(len(sizes)), np.array(sizes), count)
    for row, size in zip(drawn, sizes):
        assert len(set(row.tolist())) == count
        assert row.min() >= 0
        assert row.max() < size


@pytest.mark.parametrize(("size", "count"), [(5, 3), (4, 4), (12, 2)])
def test_every_ordered_sample_is_as_likely_as_every_other(size, count):
    """Also where many clients' streams repeat themselves too often and the second way is taken."""
    drawn = distinct_records(streams(30_000), np.full(30_000, size), count)
    orders = list(itertools.permutations(range(size), count))
    number = {order: index for index, order in enumerate(orders)}
    counts = np.bincount([number[tuple(row)] for row in drawn.tolist()], minlength=len(orders))
    assert stats.chisquare(counts).pvalue > 1e-3


def test_all_records_can_be_drawn():
    drawn = distinct_records(streams(50), np.full(50, 8), 8)
    assert (np.sort(drawn, axis=1) == np.arange(8)).all()
    assert len({tuple(row) for row in drawn.tolist()}) == 50


def test_uniform_numbers_stay_below_one():
    assert as_uniform(np.array([0, 2**64 - 1], dtype=np.uint64)).tolist() == [0.0, 1 - 2.0**-53]
