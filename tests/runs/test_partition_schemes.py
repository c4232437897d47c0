"""Pathological, quantity-skewed and natural clients: the guarantees of every partition, and what each is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.config import PartitionConfig, parse
from dualfed.runs.partition import partition
from hypothesis import given, settings
from hypothesis import strategies as st


def assert_deals_all(parts: list[np.ndarray], records: int, min_size: int) -> None:
    assert sorted(np.concatenate(parts).tolist()) == list(range(records))
    for rows in parts:
        assert rows.dtype == np.int64
        assert len(rows) >= min_size
        assert (np.diff(rows) > 0).all()


def refused(field: str, match: str, *given: Any) -> None:
    with pytest.raises(InvalidValue, match=match) as caught:
        partition(*given)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80),
    clients=st.integers(1, 40),
    each=st.integers(1, 6),
    min_size=st.integers(1, 3),
    seed=st.integers(0, 2**40),
)
def test_pathological_clients_hold_few_classes(
    labels: list[int], clients: int, each: int, min_size: int, seed: int
) -> None:
    config = PartitionConfig(scheme="pathological", clients=clients, classes_per_client=each, min_size=min_size)
    held = np.array(labels)
    present, counts = np.unique(held, return_counts=True)
    if clients * min_size > len(labels) or not each <= len(present) <= clients * each:
        with pytest.raises(InvalidValue):
            partition(held, config, seed)
        return
    try:
        parts = partition(held, config, seed)
    except InvalidValue as caught:
        error = caught
    else:
        error = None
    if error is not None:
        # Rare classes can leave a client with too little; with room for all that must not happen.
        roomy = len(labels) >= 4 * clients * each * min_size and counts.min() >= clients
        assert (error.field, roomy) == ("partition.min_size", False)
        return
    assert len(parts) == clients
    assert_deals_all(parts, len(labels), min_size)
    assert max(len(set(held[rows].tolist())) for rows in parts) <= each
    again = partition(held, config, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again))


@settings(max_examples=100, deadline=None)
@given(
    records=st.integers(1, 80),
    clients=st.integers(1, 40),
    alpha=st.sampled_from([1e-300, 0.1, 1.0, 1e300, float("inf")]),
    min_size=st.integers(1, 3),
    seed=st.integers(0, 2**40),
)
def test_quantity_skew_covers_with_a_minimum(
    records: int, clients: int, alpha: float, min_size: int, seed: int
) -> None:
    config = PartitionConfig(scheme="quantity", clients=clients, alpha=alpha, min_size=min_size)
    targets = np.linspace(0, 1, records)
    if clients * min_size > records:
        refused("partition.clients", "at most", targets, config, seed)
        return
    parts = partition(targets, config, seed)
    assert len(parts) == clients
    assert_deals_all(parts, records, min_size)


@settings(max_examples=100, deadline=None)
@given(holders=st.lists(st.integers(0, 7), min_size=1, max_size=60), min_size=st.integers(1, 6), drop=st.booleans())
def test_natural_clients_are_kept_as_they_are(holders: list[int], min_size: int, drop: bool) -> None:
    codes = np.unique(holders, return_inverse=True)[1]
    sizes = np.bincount(codes)
    names = [f"site {code}" for code in range(len(sizes))]
    config = PartitionConfig(scheme="column", min_size=min_size, drop_small=drop)
    labels = np.zeros(len(codes), dtype=np.int64)
    if (not drop and sizes.min() < min_size) or sizes.max() < min_size:
        refused(
            "partition.min_size", "give at most" if drop else "site .* lower it to", labels, config, 0, codes, names
        )
        return
    parts = partition(labels, config, 0, codes, names)
    assert [len(rows) for rows in parts] == [size for size in sizes if size >= min_size]
    for rows in parts:
        assert len(set(codes[rows])) == 1
        assert (np.diff(rows) > 0).all()


def test_every_pathological_client_has_its_classes_and_about_equal_sizes() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 6000)
    for each in (1, 2, 3, 10):
        config = PartitionConfig(scheme="pathological", clients=100, classes_per_client=each)
        parts = partition(labels, config, 0)
        assert {len(set(labels[rows])) for rows in parts} == {each}
        sizes = [len(rows) for rows in parts]
        assert max(sizes) < 1.3 * min(sizes)


def test_unequal_classes_give_more_clients_the_frequent_one() -> None:
    labels = np.repeat([0, 1], [900, 100])
    parts = partition(labels, PartitionConfig(scheme="pathological", clients=20, classes_per_client=1), 3)
    kinds = [int(labels[rows][0]) for rows in parts]
    assert (kinds.count(0), kinds.count(1)) == (18, 2)
    assert {len(rows) for rows in parts} == {50}


def test_pairs_of_classes_are_mixed() -> None:
    labels = np.arange(10_000) % 10
    parts = partition(labels, PartitionConfig(scheme="pathological", clients=100, classes_per_client=2), 1)
    assert len({tuple(sorted(set(labels[rows]))) for rows in parts}) > 20


def test_ten_thousand_pathological_clients() -> None:
    labels = np.arange(60_000) % 10
    parts = partition(labels, PartitionConfig(scheme="pathological", clients=10_000), 1)
    assert_deals_all(parts, 60_000, 6)


def test_pathological_refusals_name_what_is_possible() -> None:
    labels = np.arange(100) % 10

    def config(**changes: Any) -> PartitionConfig:
        return PartitionConfig(**{"scheme": "pathological", "clients": 4, **changes})

    refused("partition.classes_per_client", "there are 10 classes", labels, config(classes_per_client=11), 0)
    refused("partition.classes_per_client", "cannot hold all 10; give 3 or more", labels, config(), 0)
    refused("partition.scheme", "take iid", np.linspace(0, 1, 100), config(), 0)
    rare = np.repeat([0, 1], [99, 1])
    refused(
        "partition.min_size", "would hold 1 records.*lower it to 1", rare, config(classes_per_client=1, min_size=5), 0
    )


def test_quantity_sizes_are_skewed_and_classes_are_not() -> None:
    labels = np.arange(20_000) % 10
    sizes = {}
    for alpha in (0.3, 100.0):
        parts = partition(labels, PartitionConfig(scheme="quantity", clients=20, alpha=alpha), 0)
        sizes[alpha] = np.array([len(rows) for rows in parts])
        shares = np.array([np.bincount(labels[rows], minlength=10) / len(rows) for rows in parts if len(rows) > 500])
        assert np.abs(shares - 0.1).max() < 0.06
    assert sizes[0.3].std() > 5 * sizes[100.0].std()


@pytest.mark.parametrize("scheme", ["pathological", "quantity"])
def test_another_seed_gives_others(scheme: str) -> None:
    labels = np.arange(500) % 10
    config = PartitionConfig(scheme=scheme, clients=7, alpha=0.5)
    first, again, other = (partition(labels, config, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other))


def test_natural_clients_are_named_when_refused() -> None:
    holders, labels, names = np.repeat([0, 1, 2], [30, 3, 5]), np.zeros(38, int), ["Ulm", "Bonn", "Kiel"]
    config = PartitionConfig(scheme="column", min_size=10)
    refused(
        "partition.min_size", r"Bonn \(3\), Kiel \(5\).*lower it to 3.*drop_small", labels, config, 0, holders, names
    )
    for clients in (2, 4):
        config = PartitionConfig(scheme="column", clients=clients)
        refused("partition.clients", "gives 3 clients; leave it out", labels, config, 0, holders, names)
    dropped = PartitionConfig(scheme="column", min_size=10, drop_small=True, clients=1)
    assert [len(rows) for rows in partition(labels, dropped, 0, holders, names)] == [30]
    refused("partition.scheme", "data.client", labels, PartitionConfig(scheme="column"), 0)


def test_the_number_of_clients_is_usual_or_that_of_the_data() -> None:
    assert PartitionConfig().clients == PartitionConfig(scheme="quantity").clients == 16
    assert PartitionConfig(scheme="column").clients is None
    with pytest.raises(InvalidValue, match="fills them up"):
        parse({"partition": {"drop_small": True}})
