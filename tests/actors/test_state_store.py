"""States in two versions: what was read, what is taken back, and what survives the process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.actors.state_store import StateStore
from hypothesis import given, settings
from hypothesis import strategies as st

START = {"x": torch.tensor([1.0, 2.0], dtype=torch.float64), "dual": torch.zeros(3, dtype=torch.float64)}


def rows(values, store):
    return {
        name: torch.tensor(values, dtype=torch.float64)[:, None].expand(-1, START[name].numel()) + i
        for i, name in enumerate(store.names)
    }


def test_rows_never_written_read_as_the_start():
    store = StateStore(START, 4)
    found = store.read(np.array([0, 3]))
    assert found["x"].tolist() == [[1.0, 2.0]] * 2
    assert found["dual"].tolist() == [[0.0] * 3] * 2
    assert store.touched.tolist() == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), st.booleans()), max_size=12)
)
def test_behaves_like_a_dictionary_with_one_step_of_undo(history):
    store, current, before = StateStore(START, 5), {}, {}
    for t, (chosen, undo) in enumerate(history, 1):
        slots = np.sort(np.array(chosen))
        store.write(slots, t, rows((slots + 10.0 * t).tolist(), store))
        for slot in slots.tolist():
            before[slot] = current.get(slot)
            current[slot] = slot + 10.0 * t
        if undo:
            assert store.take_back(t).tolist() == slots.tolist()
            for slot in slots.tolist():
                current[slot] = before[slot]
        found = store.read(np.arange(5))
        for slot in range(5):
            value = current.get(slot)
            assert found["x"][slot].tolist() == ([1.0, 2.0] if value is None else [value, value])
            assert found["dual"][slot].tolist() == ([0.0] * 3 if value is None else [value + 1] * 3)
        assert store.touched.tolist() == sorted(slot for slot, value in current.items() if value is not None)


def test_everyone_in_one_version_is_read_without_a_copy():
    store = StateStore(START, 3)
    store.write(np.arange(3), 1, rows([1.0, 2.0, 3.0], store))
    first, second = store.read(np.arange(3))["x"], store.read(np.arange(3))["x"]
    assert first.data_ptr() == second.data_ptr()
    store.write(np.arange(3), 2, rows([4.0, 5.0, 6.0], store))
    assert first[:, 0].tolist() == [1.0, 2.0, 3.0], "the version being read was overwritten"
    assert store.read(np.arange(3))["x"][:, 0].tolist() == [4.0, 5.0, 6.0]


def test_a_file_outlives_its_process_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "host"
    store = StateStore(START, 3, path)
    store.write(np.array([1]), 4, rows([7.0], store))
    again = StateStore(START, 3, path)
    assert again.read(np.arange(3))["x"].tolist() == [[1.0, 2.0], [7.0, 7.0], [1.0, 2.0]]
    assert again.last_round.tolist() == [0, 4, 0]
    assert path.stat().st_mode & 0o777 == 0o600


def test_clients_that_never_take_part_cost_no_disk(tmp_path):
    path = tmp_path / "host"
    start = {"x": torch.zeros(650, dtype=torch.float64)}
    store = StateStore(start, 100_000, path)
    store.write(np.array([5, 50_000]), 1, {"x": torch.ones(2, 650, dtype=torch.float64)})
    assert path.stat().st_size > 1_000_000_000
    assert path.stat().st_blocks * 512 < 4_000_000


def test_a_checkpoint_restores_the_rows_and_their_rounds():
    store = StateStore(START, 4)
    store.write(np.array([0, 2]), 1, rows([1.0, 2.0], store))
    store.write(np.array([2]), 2, rows([3.0], store))
    slots, rounds, state = store.export()
    other = StateStore(START, 4)
    other.write(np.array([1]), 9, rows([9.0], other))
    other.restore(slots, rounds, state)
    assert other.last_round.tolist() == [1, 0, 2, 0]
    assert torch.equal(other.read(np.arange(4))["x"], store.read(np.arange(4))["x"])


def test_single_precision_rows_stay_single():
    store = StateStore({"x": torch.zeros(2)}, 2)
    store.write(np.array([0]), 1, {"x": torch.ones(1, 2)})
    assert store.read(np.array([0]))["x"].dtype == torch.float32


@pytest.mark.parametrize("n", [1, 2])
def test_few_clients(n):
    store = StateStore(START, n)
    store.write(np.arange(n), 1, rows([5.0] * n, store))
    assert store.read(np.arange(n))["x"][0].tolist() == [5.0, 5.0]
