"""The generator: published answers, and the statistics of what is made from it."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.algorithms.queries.draws import batches, noises
from dualfed.algorithms.queries.words import philox
from scipy import stats

from . import cases, reference

# Philox4x32-10 of the Random123 distribution: counter, key, answer.
ANSWERS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), ANSWERS)
def test_published_answers(counter, key, answer):
    found = philox(*(np.uint64(word) for word in counter + key))
    assert [int(word) for word in found] == answer
    assert reference.philox(counter, key).tolist() == answer


def test_batches_are_distinct_and_uniform():
    drawn = batches(cases.keys(1)[0], 12, 6000, 3)
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    for place in range(3):
        assert stats.chisquare(np.bincount(drawn[:, place], minlength=12)).pvalue > 1e-3
    pairs = np.bincount(12 * drawn[:, 0] + drawn[:, 1], minlength=144).reshape(12, 12)
    assert stats.chisquare(pairs[~np.eye(12, dtype=bool)]).pvalue > 1e-3
    # Successive steps have nothing to do with each other.
    after = np.bincount(12 * drawn[:-1, 0] + drawn[1:, 0], minlength=144)
    assert stats.chisquare(after).pvalue > 1e-3


def test_a_whole_batch_holds_every_component():
    assert sorted(batches(cases.keys(1)[0], 5, 1, 5)[0].tolist()) == list(range(5))


def test_noise_is_standard_normal():
    n = 20000
    found = noises(np.broadcast_to(cases.keys(1), (n, 2)), np.arange(n) % 100, np.arange(n) // 100)
    assert stats.kstest(found.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(found.T)[0, 1]) < 4 / np.sqrt(n)
