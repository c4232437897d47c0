"""Every record to one client, every client its minimum, whatever the skew."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.config import PartitionConfig
from dualfed.runs.partition import partition
from hypothesis import given, settings
from hypothesis import strategies as st


def assert_deals_all(parts: list[np.ndarray], records: int, min_size: int) -> None:
    assert sorted(np.concatenate(parts).tolist()) == list(range(records))
    for rows in parts:
        assert rows.dtype == np.int64
        assert len(rows) >= min_size
        assert (np.diff(rows) > 0).all()


def skew(labels: np.ndarray, parts: list[np.ndarray]) -> float:
    """Mean over clients of the largest class share."""
    return float(np.mean([np.bincount(labels[rows]).max() / len(rows) for rows in parts]))


@settings(max_examples=150, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    clients=st.integers(1, 60),
    min_size=st.integers(1, 5),
    scheme=st.sampled_from(["iid", "dirichlet"]),
    alpha=st.sampled_from([5e-324, 1e-300, 1e-3, 0.1, 1.0, 1e3, 1e300, float("inf")]),
    seed=st.integers(0, 2**40),
)
def test_disjoint_cover_with_a_minimum(
    labels: list[int], clients: int, min_size: int, scheme: str, alpha: float, seed: int
) -> None:
    config = PartitionConfig(scheme=scheme, clients=clients, alpha=alpha, min_size=min_size)
    if clients * min_size > len(labels):
        with pytest.raises(InvalidValue) as caught:
            partition(np.array(labels), config, seed)
        assert caught.value.field == "partition.clients"
        return
    parts = partition(np.array(labels), config, seed)
    assert len(parts) == clients
    assert_deals_all(parts, len(labels), min_size)
    if scheme == "iid":
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("scheme", ["iid", "dirichlet"])
def test_same_seed_same_clients_and_another_seed_others(scheme: str) -> None:
    labels = np.arange(500) % 10
    config = PartitionConfig(scheme=scheme, clients=7, alpha=0.5)
    first, again, other = (partition(labels, config, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other))


def test_iid_is_shuffled() -> None:
    labels = np.repeat(np.arange(10), 200)  # sorted by class, as files often are
    parts = partition(labels, PartitionConfig(clients=10), 0)
    assert skew(labels, parts) < 0.2


def test_tiny_alpha_gives_each_class_to_one_client() -> None:
    labels = np.arange(2000) % 10
    parts = partition(labels, PartitionConfig(scheme="dirichlet", clients=5, alpha=1e-3), 1)
    assert_deals_all(parts, 2000, 1)
    largest = [max(np.sum(labels[rows] == label) for rows in parts) for label in range(10)]
    assert sum(count >= 195 for count in largest) >= 8  # but for ties and the few that filled up empty clients


def test_large_alpha_approaches_iid() -> None:
    labels = np.arange(10_000) % 10
    parts = partition(labels, PartitionConfig(scheme="dirichlet", clients=20, alpha=1e7), 2)
    counts = np.array([np.bincount(labels[rows], minlength=10) for rows in parts])
    assert np.abs(counts - 50).max() <= 1


def test_skew_falls_with_alpha() -> None:
    labels = np.arange(5000) % 10
    skews = [
        skew(labels, partition(labels, PartitionConfig(scheme="dirichlet", clients=20, alpha=alpha), 5))
        for alpha in (0.01, 0.1, 1.0, 100.0)
    ]
    assert skews == sorted(skews, reverse=True)
    assert skews[0] > 0.8
    assert skews[-1] < 0.2


def test_shares_follow_the_dirichlet_distribution() -> None:
    """Mean 1/N and variance (1/N)(1 − 1/N)/(Nα + 1) of a client's share of a class, over many classes."""
    clients, alpha, classes, each = 4, 0.3, 3000, 400
    labels = np.repeat(np.arange(classes), each)
    parts = partition(labels, PartitionConfig(scheme="dirichlet", clients=clients, alpha=alpha), 9)
    for rows in parts:
        shares = np.bincount(labels[rows], minlength=classes) / each
        assert shares.mean() == pytest.approx(0.25, abs=0.02)
        assert shares.var() == pytest.approx(0.25 * 0.75 / (clients * alpha + 1), rel=0.08)


def test_rare_classes_are_not_piled_on_the_same_clients() -> None:
    labels = np.repeat(np.arange(20), 7)  # 7 records of each of 20 classes for 50 clients
    parts = partition(labels, PartitionConfig(scheme="dirichlet", clients=50, alpha=1e6), 0)
    assert max(map(len, parts)) <= 9


def test_one_client_holds_all_and_as_many_clients_as_records_one_each() -> None:
    labels = np.array([0, 0, 0, 0, 1])
    for scheme in ("iid", "dirichlet"):
        (rows,) = partition(labels, PartitionConfig(scheme=scheme, clients=1), 0)
        assert rows.tolist() == [0, 1, 2, 3, 4]
        assert [len(rows) for rows in partition(labels, PartitionConfig(scheme=scheme, clients=5), 0)] == [1] * 5


def test_filling_up_takes_from_the_largest_only() -> None:
    labels = np.zeros(1000, dtype=np.int64)
    parts = partition(labels, PartitionConfig(scheme="dirichlet", clients=20, alpha=1e-3, min_size=10), 4)
    sizes = sorted(len(rows) for rows in parts)
    assert sizes[:-1] == [10] * 19
    # What the largest gave is a random choice, not its first records.
    small = np.concatenate([rows for rows in parts if len(rows) == 10])
    assert 300 < small.mean() < 700


def test_refusals_name_what_is_possible() -> None:
    with pytest.raises(InvalidValue, match=r"at most 33 clients.*min_size to 2"):
        partition(np.zeros(100, int), PartitionConfig(clients=40, min_size=3), 0)
    with pytest.raises(InvalidValue, match="at most 100"):
        partition(np.zeros(100, int), PartitionConfig(clients=101), 0)
    with pytest.raises(InvalidValue, match="take iid") as caught:
        partition(np.linspace(0, 1, 100), PartitionConfig(scheme="dirichlet", clients=2), 0)
    assert caught.value.field == "partition.scheme"


def test_real_targets_are_dealt_iid() -> None:
    assert_deals_all(partition(np.linspace(0, 1, 10), PartitionConfig(clients=3), 0), 10, 3)
