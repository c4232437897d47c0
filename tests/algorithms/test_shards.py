"""Flat storage of unequal clients: every view and gather is checked against the index lists it was made of."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from dualfed.algorithms import shards as shards_module
from dualfed.algorithms.shards import Shards
from dualfed.errors import InvalidValue
from torch import Tensor

SIZES = (3, 1, 4, 3, 2, 3)


@pytest.fixture
def lists() -> list[np.ndarray]:
    order = np.random.default_rng(1).permutation(20)[: sum(SIZES)]
    return np.split(order, np.cumsum(SIZES)[:-1])


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((20, 5)), rng.integers(0, 4, 20).astype(np.int32)


@pytest.fixture
def shards(arrays: tuple[np.ndarray, np.ndarray], lists: list[np.ndarray]) -> Shards:
    return Shards.from_arrays(*arrays, lists, torch.float64)


def test_each_client_holds_its_rows(shards: Shards, arrays: tuple[np.ndarray, np.ndarray], lists: list) -> None:
    features, labels = arrays
    assert shards.n_clients == len(SIZES)
    assert shards.sizes.tolist() == list(SIZES)
    assert shards.sizes.dtype == shards.labels.dtype == torch.int64
    for slot, rows in enumerate(lists):
        held, held_labels = shards.client(slot)
        np.testing.assert_array_equal(held.numpy(), features[rows])
        np.testing.assert_array_equal(held_labels.numpy(), labels[rows])
        assert held.data_ptr() == shards.features[int(shards.offsets[slot])].data_ptr()


def test_rows_gathers_positions_of_each_client(shards: Shards) -> None:
    slots = torch.tensor([4, 0, 2, 0])
    records = torch.tensor([[1, 0], [2, 2], [3, 0], [0, 1]])
    features, labels = shards.rows(slots, records)
    assert features.shape == (4, 2, 5)
    for k, slot in enumerate(slots.tolist()):
        held, held_labels = shards.client(slot)
        torch.testing.assert_close(features[k], held[records[k]], rtol=0, atol=0)
        torch.testing.assert_close(labels[k], held_labels[records[k]], rtol=0, atol=0)


def test_floating_labels_are_targets_of_the_asked_type(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    shards = Shards.from_arrays(arrays[0], arrays[1] * 0.5, [np.arange(3)], torch.float32)
    assert shards.features.dtype == shards.labels.dtype == torch.float32
    np.testing.assert_allclose(shards.labels.numpy(), arrays[1][:3] * 0.5)


def test_read_only_memory_is_shared_without_a_copy_or_a_warning() -> None:
    features = np.arange(12.0).reshape(6, 2)
    labels, offsets = np.zeros(6, np.int64), np.array([0, 2, 6])
    for array in (features, labels, offsets):
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shards = Shards.from_flat(features, labels, offsets)
    assert shards.features.data_ptr() == features.ctypes.data


def test_span_is_a_view_of_neighbouring_clients(shards: Shards) -> None:
    part = shards.span(2, 5)
    assert part.sizes.tolist() == [4, 3, 2]
    for slot in range(3):
        torch.testing.assert_close(part.client(slot)[0], shards.client(slot + 2)[0], rtol=0, atol=0)
    assert part.features.data_ptr() == shards.client(2)[0].data_ptr()


@pytest.mark.parametrize("limit", [1, 40, 1 << 22])
@pytest.mark.parametrize("slots", [[0, 1, 2, 3, 4, 5], [5, 3, 0], [1], [2, 2, 0, 3], [3, 4, 5]])
def test_batches_cover_every_slot_once(
    shards: Shards, slots: list[int], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "GATHER_LIMIT", limit)
    seen: dict[int, Tensor] = {}
    for where, features, labels in shards.batches(torch.tensor(slots)):
        positions = torch.arange(len(slots))[where].tolist()
        assert len(positions) == len(features) == len(labels)
        assert len(positions) == 1 or features.numel() <= limit
        for position, held, held_labels in zip(positions, features, labels):
            assert position not in seen
            seen[position] = held
            torch.testing.assert_close(held, shards.client(slots[position])[0], rtol=0, atol=0)
            torch.testing.assert_close(held_labels, shards.client(slots[position])[1], rtol=0, atol=0)
    assert sorted(seen) == list(range(len(slots)))


def test_equal_neighbours_come_as_one_view() -> None:
    shards = Shards.from_arrays(np.ones((12, 2)), np.zeros(12, np.int64), np.split(np.arange(12), 4))
    ((where, features, _),) = shards.batches(torch.arange(4))
    assert where == slice(0, 4)
    assert features.data_ptr() == shards.features.data_ptr()


@pytest.mark.parametrize("slots", [[0, 2, 1, 3], [1, 1, 3], [3, 2, 1]])
def test_equal_clients_out_of_order_are_gathered(slots: list[int]) -> None:
    features = np.arange(12.0)[:, None]
    shards = Shards.from_arrays(features, np.zeros(12, np.int64), np.split(np.arange(12), 4))
    ((where, held, _),) = shards.batches(torch.tensor(slots))
    assert where == slice(0, len(slots))
    assert held[:, 0, 0].tolist() == [3.0 * slot for slot in slots]


def test_pickles(shards: Shards) -> None:
    copy = pickle.loads(pickle.dumps(shards))
    torch.testing.assert_close(copy.client(3)[0], shards.client(3)[0])


@pytest.mark.parametrize(
    ("lists", "field"),
    [
        ([np.array([0, 1]), np.array([], np.int64)], "partition"),
        ([], "partition"),
        ([np.array([0, 20])], "partition"),
        ([np.array([-1, 3])], "partition"),
    ],
)
def test_bad_index_lists_are_refused(arrays: tuple[np.ndarray, np.ndarray], lists: list, field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Shards.from_arrays(*arrays, lists)
    assert caught.value.field == field


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(InvalidValue, match="one label"):
        Shards.from_flat(np.ones((3, 2)), np.zeros(2, np.int64), np.array([0, 3]))
