"""The states of a host kept by another process: after every change the copy is the same, to the version and the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.actors.state_file import StateFile
from dualfed.actors.state_store import StateStore
from hypothesis import given, settings
from hypothesis import strategies as st


def start(dtype):
    return {"x": torch.tensor([1.0, 2.0], dtype=dtype), "dual": torch.zeros(3, dtype=dtype)}


def rows(slots, t, dtype):
    base = torch.tensor(slots + 10.0 * t, dtype=dtype)[:, None]
    return {"x": base.expand(-1, 2).clone(), "dual": (base + 0.5).expand(-1, 3).clone()}


def same(store, path):
    """Whether a store over the mirror's file is what ``store`` is."""
    other = StateStore(start(store.dtype), len(store.last_round), path)
    assert (other.stamps == store.stamps).all()
    everyone = np.arange(len(store.last_round))
    for name, value in store.read(everyone).items():
        assert torch.equal(value, other.read(everyone)[name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@settings(max_examples=40, deadline=None)
@given(
    history=st.lists(
        st.tuples(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), st.sampled_from("kuo")), max_size=10
    )
)
def test_the_mirror_s_file_is_the_host_s_state(dtype, history, tmp_path_factory):
    path = tmp_path_factory.mktemp("mirror") / "host"
    store = StateStore(start(dtype), 5)
    mirror, kept = StateFile(store.layout, path), store.stamps.copy()

    def hand_over():
        for each in store.changed(kept):
            mirror.put(each)
            kept[each.version, each.slots] = each.stamps

    for t, (chosen, what) in enumerate(history, 1):
        slots = np.sort(np.array(chosen))
        store.write(slots, t, rows(slots, t, dtype))
        hand_over()
        if what == "u":
            store.take_back(t)
        elif what == "o":
            taken = store.export()
            store.restore(*taken)
            kept[:] = -1
        hand_over()
        same(store, path)
    again = StateStore(start(dtype), 5)
    again.take_over(StateFile(store.layout, path).get())
    assert (again.stamps == store.stamps).all()
    for name, value in store.read(np.arange(5)).items():
        assert torch.equal(value, again.read(np.arange(5))[name])


def test_clients_that_never_take_part_are_not_handed_over():
    store = StateStore(start(torch.float64), 1000)
    store.write(np.array([7]), 1, rows(np.array([7]), 1, torch.float64))
    changed = store.changed(np.full((2, 1000), -1))
    assert sum(len(each.rows["x"]) for each in changed) == 1
