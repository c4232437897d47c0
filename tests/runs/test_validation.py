"""Validation records: whose they are, and that they are nobody's training or test records."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed import simulate
from dualfed.errors import InvalidValue
from dualfed.runs.config import parse
from dualfed.runs.data import load
from dualfed.runs.partition import partition
from dualfed.runs.validation import held_out


def _dealt(seed: int = 3):
    config = parse({"seed": seed, "data": {"name": "digits"}, "partition": {"scheme": "dirichlet", "clients": 7}})
    dataset = load(config.data, config.seed)
    return dataset, partition(dataset.train_labels, config.partition, config.seed)


def test_each_client_gives_its_share_and_keeps_the_rest():
    dataset, members = _dealt()
    evaluated, kept = held_out(dataset, members, 0.25, 3)
    for before, after in zip(members, kept):
        assert set(after) < set(before)
        assert len(after) == len(before) - round(0.25 * len(before))
    out = np.sort(np.concatenate([np.setdiff1d(before, after) for before, after in zip(members, kept)]))
    np.testing.assert_array_equal(evaluated.test_features, dataset.train_features[out])
    np.testing.assert_array_equal(evaluated.test_labels, dataset.train_labels[out])


def test_no_validation_record_is_a_test_record_of_any_seed_with_the_same_data_seed():
    validation = None
    for seed in (0, 1):
        config = parse({"seed": seed, "data": {"name": "digits", "seed": 5}, "partition": {"clients": 4}})
        dataset = load(config.data, config.seed)
        members = partition(dataset.train_labels, config.partition, config.seed)
        test = {row.tobytes() for row in dataset.test_features}
        if validation is None:
            validation = {row.tobytes() for row in held_out(dataset, members, 0.2, seed)[0].test_features}
        assert not validation & test


def test_a_client_of_one_record_keeps_it_and_nothing_held_out_is_refused():
    dataset, _ = _dealt()
    members = [np.array([0]), np.array([1])]
    with pytest.raises(InvalidValue, match=r"data\.validation = 0\.4: .*larger share"):
        held_out(dataset, members, 0.4, 0)
    _, kept = held_out(dataset, [np.array([0]), np.arange(1, 11)], 0.9, 0)
    assert [len(rows) for rows in kept] == [1, 1]


def test_a_run_with_validation_is_evaluated_on_the_records_held_out(tmp_path):
    tables = {
        "engine": "inline",
        "data": {"name": "digits", "validation": 0.5},
        "partition": {"clients": 4},
        "method": {"name": "fedspd-dp", "rounds": 2, "local_steps": 1, "batch_size": 10},
        "privacy": {"mode": "none"},
    }
    result = simulate(tables, out=tmp_path / "run")
    assert result.summary["records"]["total"] == 4 * 180 - 2  # 1438 records, 360 or 359 a client, half of each kept
    without = simulate({**tables, "data": {"name": "digits"}}, keep=False)
    assert without.summary["records"]["total"] == 1438
    assert result.config["data"]["validation"] == 0.5
