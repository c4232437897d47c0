"""Records from csv and parquet files: columns by public constants, missing values by policy, splits within clients."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.config import parse
from dualfed.runs.data import Dataset, load
from dualfed.runs.data.split import split_rows
from hypothesis import given, settings
from hypothesis import strategies as st

ROWS = 40
TABLE: dict[str, Any] = {
    "label": "y",
    "ranges": {"age": [0, 100]},
    "categories": {"colour": ["red", "green", "blue"]},
    "scale": "none",
    "bias": False,
}


def people() -> pd.DataFrame:
    """40 records of 4 clients: age 0..97.5, three colours, label alternating."""
    return pd.DataFrame(
        {
            "age": np.arange(ROWS) * 2.5,
            "colour": np.array(["red", "green", "blue"])[np.arange(ROWS) % 3],
            "y": np.arange(ROWS) % 2,
            "site": np.array(["B", "A", "10", "9"])[np.arange(ROWS) % 4],
        }
    )


def write(folder: Path, frame: pd.DataFrame, kind: str, name: str = "data") -> Path:
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


def loaded(path: Path, **changes: Any) -> Dataset:
    name = "parquet" if path.suffix == ".parquet" else "csv"
    return load(parse({"data": {"name": name, "path": str(path), **TABLE, **changes}}).data, 0)


def refused(path: Path, field: str, match: str, **changes: Any) -> None:
    with pytest.raises(InvalidValue, match=match) as caught:
        loaded(path, **changes)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def all_rows(data: Dataset) -> np.ndarray:
    rows = np.concatenate([data.train_features, data.test_features])
    return rows[np.argsort(rows[:, 0], kind="stable")]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_and_categories_by_public_constants(tmp_path: Path, kind: str) -> None:
    data = loaded(write(tmp_path, people(), kind))
    rows = all_rows(data)
    np.testing.assert_allclose(rows[:, 0], np.arange(ROWS) * 0.025)
    np.testing.assert_array_equal(rows[:, 1:], np.eye(3)[np.arange(ROWS) % 3])
    assert (data.n_classes, data.statistics, data.record_norm) == (2, "public", math.sqrt(2))
    assert data.constants == (("age", "from 0..100"), ("colour", "3 categories"))
    assert "public ranges" in data.scaling
    assert "private" not in data.scaling


def test_csv_and_parquet_give_the_same_records(tmp_path: Path) -> None:
    frame = people()
    frame["flag"] = np.arange(ROWS) % 2 == 0
    frame["grade"] = np.where(np.arange(ROWS) % 5 == 0, np.nan, np.arange(ROWS) % 3).astype(float)
    changes = {
        "categories": {"flag": [True, False], "grade": [0, 1, 2], "colour": ["red", "green", "blue"]},
        "missing": {"grade": "indicator"},
    }
    one, two = (loaded(write(tmp_path, frame, kind), **changes) for kind in ("csv", "parquet"))
    np.testing.assert_array_equal(one.train_features, two.train_features)
    assert one.n_features == 1 + 2 + 4 + 3


def test_ranges_are_cut_and_centred_and_bound_the_norm(tmp_path: Path) -> None:
    path = write(tmp_path, people(), "csv")
    data = loaded(path, ranges={"age": [10, 20]}, centred=True)
    ages = all_rows(data)[:, 0]
    assert (ages.min(), ages.max()) == (-1, 1)
    norms = np.linalg.norm(data.train_features, axis=1)
    assert norms.max() <= data.record_norm
    assert loaded(path, scale="unit", bias=True).record_norm == math.sqrt(2)


def test_standardising_by_public_constants_gives_no_bound(tmp_path: Path) -> None:
    data = loaded(write(tmp_path, people(), "csv"), ranges={}, standardise={"age": [50, 25]})
    np.testing.assert_allclose(all_rows(data)[:, 0], (np.arange(ROWS) * 2.5 - 50) / 25)
    assert data.record_norm == math.inf


def test_private_statistics_are_named_and_come_from_training_records_alone(tmp_path: Path) -> None:
    frame = people()
    path, rest = write(tmp_path, frame[:20], "csv"), frame[20:].copy()
    rest.loc[25, "colour"] = "violet"  # occurs in the test set alone: no column, and no refusal
    write(tmp_path, rest, "csv", "test")
    changes = {"ranges": {}, "categories": {}, "numeric": ["age"], "categorical": ["colour"], "test_path": "test.csv"}
    data = loaded(path, **changes, statistics="private")
    assert data.statistics == "private"
    assert data.scaling.count("private statistics") == 2
    assert data.train_features[:, 0].mean() == pytest.approx(0)
    assert data.train_features[:, 0].std() == pytest.approx(1)
    assert data.test_features[:, 0].min() > 1.6
    assert (data.test_features[5, 1:] == 0).all()
    with pytest.raises(InvalidValue, match='statistics = "private"'):
        loaded(path, **changes)


def test_scaling_depends_on_nothing_but_the_record(tmp_path: Path) -> None:
    frame = people()
    one = loaded(write(tmp_path, frame, "csv", "a"))
    frame.loc[3, "age"] = 1e9
    two = loaded(write(tmp_path, frame, "csv", "b"))
    differ = (one.train_features != two.train_features).any(axis=1).sum()
    differ += (one.test_features != two.test_features).any(axis=1).sum()
    assert differ == 1


def test_a_constant_column_stays_finite(tmp_path: Path) -> None:
    frame = people().assign(age=7.0)
    for changes in ({}, {"ranges": {}, "numeric": ["age"], "statistics": "private"}):
        data = loaded(write(tmp_path, frame, "csv"), **changes)
        assert np.isfinite(data.train_features).all()
        assert np.ptp(data.train_features[:, 0]) == 0


def test_labels_by_declared_classes(tmp_path: Path) -> None:
    frame = people()
    frame["y"] = np.array(["none", "mild", "bad"])[np.arange(ROWS) % 3]
    path = write(tmp_path, frame, "csv")
    data = loaded(path, label_classes=["none", ["mild", "bad"], "never"])
    assert data.class_names == ("none", "mild or bad", "never")
    assert data.n_classes == 3
    counts = np.bincount(np.concatenate([data.train_labels, data.test_labels]), minlength=3)
    assert counts.tolist() == [14, 26, 0]
    refused(path, "data.label_classes", "'bad'.*add it", label_classes=["none", "mild"])
    refused(path, "data column y", "say what the classes are")
    refused(path, "data.labels", "nothing to learn", label_classes=[["none", "mild", "bad"], "never"])


def test_real_targets(tmp_path: Path) -> None:
    data = loaded(write(tmp_path, people().assign(y=np.linspace(0, 1, ROWS)), "csv"))
    assert (data.n_classes, data.train_labels.dtype) == (0, np.float64)
    whole = people().assign(y=np.arange(ROWS) % 2 * 1.0)
    path = write(tmp_path, people().assign(y=np.linspace(0, 1, ROWS)), "csv")
    write(tmp_path, whole, "csv", "whole")
    assert loaded(path, test_path="whole.csv").n_classes == 0


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_missing_values(tmp_path: Path, kind: str) -> None:
    frame = people()
    frame.loc[[3, 4], "age"] = np.nan
    frame.loc[5, "colour"] = None
    path = write(tmp_path, frame, kind)
    refused(path, "data.missing.age", "2 of 40 records.*the first is record 3")
    refused(path, "data.missing.colour", "record 5", missing={"age": "drop"})
    dropped = loaded(path, missing="drop")
    assert len(dropped.train_labels) + len(dropped.test_labels) == 37
    assert "dropped" in dropped.scaling
    marked = loaded(path, missing="indicator", centred=True)
    rows = np.concatenate([marked.train_features, marked.test_features])
    assert rows.shape == (40, 2 + 4)
    np.testing.assert_array_equal(rows[rows[:, 1] == 1][:, 0], [0, 0])
    assert (rows[:, 1].sum(), rows[:, 5].sum()) == (2, 1)
    assert "column of their own" in marked.scaling
    assert np.linalg.norm(rows, axis=1).max() <= marked.record_norm


def test_words_that_mean_missing(tmp_path: Path) -> None:
    frame = people()
    frame.loc[3, "colour"] = "?"
    path = write(tmp_path, frame, "csv")
    refused(path, "data.categories.colour", "'\\?'.*record 3.*add it")
    assert len(loaded(path, missing_values=["?"], missing="drop").train_labels) == 31
    assert loaded(path, categories={"colour": ["red", "green", "blue", "?"]}).n_features == 5


def test_missing_labels_and_clients_cannot_be_marked(tmp_path: Path) -> None:
    frame = people()
    frame["y"] = frame["y"].astype(object)
    frame.loc[1, "y"] = None
    frame.loc[2, "site"] = ""
    path = write(tmp_path, frame, "csv")
    refused(path, "data.missing.y", '"drop"', missing="indicator")
    refused(path, "data.missing.site", '"drop"', missing={"y": "drop"}, client="site")
    assert len(loaded(path, client="site", missing="drop").train_labels) == 30
    refused(path, "data.missing", "none is left", missing="drop", missing_values=["0", "1", ""])


def test_clients_by_column_are_split_each_by_itself(tmp_path: Path) -> None:
    data = loaded(write(tmp_path, people(), "csv"), client="site", test_fraction=0.25)
    assert data.client_names == ("9", "10", "A", "B")
    assert data.train_clients is not None
    counts = np.bincount(data.train_clients, minlength=4)
    assert counts.sum() == 30
    assert set(counts) <= {7, 8}
    ages = data.train_features[:, 0] * 100
    np.testing.assert_array_equal(
        np.array(["B", "A", "10", "9"])[np.rint(ages / 2.5).astype(int) % 4],
        np.array(data.client_names)[data.train_clients],
    )


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=30).filter(lambda sizes: max(sizes) > 1),
    fraction=st.sampled_from([0.01, 0.2, 0.5, 0.9]),
    seed=st.integers(0, 2**40),
)
def test_each_client_keeps_records_to_train_on(sizes: list[int], fraction: float, seed: int) -> None:
    clients = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    train, test = split_rows(len(clients), fraction, seed, clients)
    assert sorted([*train, *test]) == list(range(len(clients)))
    assert (np.diff(train) > 0).all()
    assert len(test) > 0
    kept = np.bincount(clients[train], minlength=len(sizes))
    assert (kept >= 1).all()
    given_up = np.array(sizes) - kept
    wanted = np.array(sizes) * fraction
    assert (given_up <= np.maximum(np.ceil(wanted), 1)).all()
    assert (given_up >= np.minimum(np.floor(wanted), np.array(sizes) - 1)).all()
    assert len(test) <= max(1, math.ceil(fraction * len(clients)))
    again = split_rows(len(clients), fraction, seed, clients)
    np.testing.assert_array_equal(test, again[1])


def test_many_small_clients_still_give_the_fraction() -> None:
    clients = np.repeat(np.arange(1000), 2)  # a fifth of two records rounds to none
    assert len(split_rows(2000, 0.2, 1, clients)[1]) == 400
    with pytest.raises(InvalidValue, match="bring a test set"):
        split_rows(5, 0.2, 0, np.arange(5))


def test_a_given_test_set(tmp_path: Path) -> None:
    frame = people()
    path = write(tmp_path, frame[:30], "csv")
    write(tmp_path, frame[30:].drop(columns="site"), "csv", "test")
    data = loaded(path, test_path="test.csv", client="site")
    np.testing.assert_allclose(data.test_features[:, 0], np.arange(30, 40) * 0.025)
    assert data.train_clients is not None
    assert len(data.train_clients) == 30
    refused(path, "data.test_path", "not a file that exists", test_path="none.csv")


def test_files_that_are_damaged(tmp_path: Path) -> None:
    refused(tmp_path / "none.csv", "data.path", "not a file that exists")
    whole = write(tmp_path, people(), "parquet").read_bytes()
    for content in (b"", b"hello", whole[:100], whole[:-20]):
        (tmp_path / "bad.parquet").write_bytes(content)
        refused(tmp_path / "bad.parquet", "data.path", "truncated or not a parquet file")
    text = write(tmp_path, people(), "csv").read_bytes()
    for content in (b"", b"\n", text[:-9], text + b"1,2\n", b"\xff\xfe" + text, text.replace(b"red", b"r\xe9d")):
        (tmp_path / "bad.csv").write_bytes(content)
        refused(tmp_path / "bad.csv", "data.path", "truncated or not a csv file")
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(text)[:-30])
    refused(tmp_path / "bad.csv.gz", "data.path", "truncated or not a csv file")
    (tmp_path / "good.csv.gz").write_bytes(gzip.compress(text))
    assert loaded(tmp_path / "good.csv.gz").n_classes == 2
    header = text.splitlines(keepends=True)[0]
    (tmp_path / "bad.csv").write_bytes(header)
    refused(tmp_path / "bad.csv", "data.path", "no records")


def test_other_spellings_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    text = people().to_csv(index=False, sep=";", lineterminator="\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert loaded(path, separator=";").n_features == 4
    refused(path, "data.path", "has no column 'age'")


def test_columns_that_are_missing_or_there_twice(tmp_path: Path) -> None:
    path = write(tmp_path, people(), "csv")
    refused(path, "data.path", "has no column 'income'; it has age, colour, y, site", label="income")
    refused(path, "data.path", "has no column 'where'", client="where")
    path.write_text(path.read_text().replace("site", "age"))
    refused(path, "data.path", "has 2 columns 'age'")


@pytest.mark.parametrize("cell", ["inf", "-inf", "1e999", "old", "1,5"])
def test_cells_that_are_no_finite_number(tmp_path: Path, cell: str) -> None:
    frame = people()
    frame["age"] = frame["age"].astype(object)
    frame.loc[7, "age"] = cell
    path = write(tmp_path, frame, "csv")
    refused(path, "data column age", "record 7 of data.csv is not a finite number")
    refused(path, "data column age", "record 7", missing="drop")


@pytest.mark.parametrize(
    ("changes", "field", "match"),
    [
        ({"label": None}, "data.label", "holds the labels"),
        ({"ranges": {}, "categories": {}}, "data.ranges", "columns to learn from"),
        ({"ranges": {"age": [3, 3]}}, "data.ranges.age", "larger most value"),
        ({"ranges": {"age": [0, math.inf]}}, "data.ranges.age", "larger most value"),
        ({"standardise": {"h": [0, 0]}}, "data.standardise.h", "deviation above 0"),
        ({"standardise": {"age": [0, 1]}}, "data", "named twice"),
        ({"label": "age"}, "data", "named twice"),
        ({"client": "age"}, "data.client", "is a feature too"),
        ({"categories": {"colour": []}}, "data.categories.colour", "once"),
        ({"categories": {"colour": [1, "1.0"]}}, "data.categories.colour", "once"),
        ({"numeric": ["h"]}, "data.numeric", "no public constants"),
        ({"categorical": ["h"]}, "data.categorical", "no public constants"),
        ({"label_classes": [0, [1, 0]]}, "data.label_classes", "names two classes"),
        ({"missing": {"h": "drop"}}, "data.missing.h", "no such column"),
        ({"missing": {"y": "indicator"}}, "data.missing.y", "cannot be missing"),
        ({"image_size": [8, 8]}, "data.image_size", "leave it out.*image-folder, hub"),
        ({"features_out": 3}, "data.features_out", "choose a data.feature_map"),
        ({"feature_map": "dct"}, "data.features_out", "number of features"),
    ],
)
def test_configurations_that_contradict_themselves(changes: dict[str, Any], field: str, match: str) -> None:
    values = {"name": "csv", "path": "x.csv", "label": "y", "ranges": {"age": [0, 1]}, **changes}
    with pytest.raises(InvalidValue, match=match) as caught:
        parse({"data": {key: value for key, value in values.items() if value is not None}})
    assert caught.value.field == field


def test_fields_of_tables_are_refused_elsewhere() -> None:
    with pytest.raises(InvalidValue, match=r"leave it out.*csv, parquet, hub"):
        parse({"data": {"name": "digits", "ranges": {"age": [0, 1]}}})
    with pytest.raises(InvalidValue, match="needs the path"):
        parse({"data": {"name": "csv", "label": "y", "ranges": {"age": [0, 1]}}})


def test_clients_that_differ_in_case_alone(tmp_path: Path) -> None:
    frame = people().replace({"site": {"B": "a"}})
    refused(write(tmp_path, frame, "csv"), "data column site", "one client, spell it one way", client="site")
