"""Loading: what comes back for good data, and one sentence for every fault."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.config import DataConfig
from dualfed.runs.data import Dataset, load
from dualfed.runs.data.files import load_idx
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression


def norms(features: NDArray) -> NDArray:
    return np.linalg.norm(features.astype(np.float64), axis=1)


def idx(array: NDArray, kind: int = 8) -> bytes:
    return struct.pack(">HBB", 0, kind, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_folder(folder: Path, suffix: str = "", spelling: str = "-idx", **changes: bytes) -> Path:
    """An idx folder: 12 training and 4 test images of 3×2 pixels, 3 classes; ``changes`` replace a file's bytes."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("t10k", 4)):
        content = {
            "images": idx(rng.integers(0, 256, (count, 3, 2), dtype=np.uint8)),
            "labels": idx((np.arange(count) % 3).astype(np.uint8)),
        }
        for what, dimensions in (("images", 3), ("labels", 1)):
            data = changes.get(f"{part}_{what}", content[what])
            if data:
                packed = gzip.compress(data) if suffix == ".gz" else data
                (folder / f"{part}-{what}{spelling}{dimensions}-ubyte{suffix}").write_bytes(packed)
    return folder


def write_npz(path: Path, **arrays: NDArray) -> Path:
    np.savez(path, **arrays)
    return path


def refused(config: DataConfig, field: str, match: str) -> None:
    with pytest.raises(InvalidValue, match=match) as caught:
        load(config, 0)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "shape", "classes"),
    [
        (DataConfig(name="digits"), (1438, 65), 10),
        (DataConfig(name="breast-cancer"), (455, 31), 2),
        (DataConfig(name="synthetic", records=50, features=4, classes=3), (40, 5), 3),
    ],
    ids=lambda value: value.name if isinstance(value, DataConfig) else "",
)
def test_built_in_data_are_unit_records_with_a_bias(config: DataConfig, shape: tuple, classes: int) -> None:
    data = load(config, 0)
    assert data.train_features.shape == shape
    assert (data.n_features, data.n_classes) == (shape[1], classes)
    for features in (data.train_features, data.test_features):
        assert (features[:, -1] == 1).all()
        np.testing.assert_allclose(norms(features[:, :-1]), 1, atol=2e-6)
        assert norms(features).max() <= data.record_norm == math.sqrt(2)
    assert data.train_labels.dtype == np.int64
    assert set(data.train_labels) == set(range(classes))
    assert data.scaling.endswith("ones added.")


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_scaled_data_can_be_learned(name: str) -> None:
    data = load(DataConfig(name=name), 0)
    model = LogisticRegression(C=100, max_iter=5000).fit(data.train_features, data.train_labels)
    assert model.score(data.test_features, data.test_labels) > 0.93


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_without_unit_norm_the_bound_comes_from_public_ranges(name: str) -> None:
    data = load(DataConfig(name=name, scale="none", bias=False), 0)
    assert data.record_norm == math.sqrt(data.n_features)
    assert np.abs(data.train_features).max() <= 1
    assert norms(data.train_features).max() <= data.record_norm


def test_gaussian_records_without_unit_norm_have_no_bound() -> None:
    assert load(DataConfig(name="synthetic", scale="none"), 0).record_norm == math.inf


def test_scaling_depends_on_nothing_but_the_record(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 3)), np.arange(20) % 2
    one = load(DataConfig(name="npz", path=write_npz(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y)), 0)
    x2 = x.copy()
    x2[0] *= 1e6
    x2[0, 0] += 5e5
    two = load(DataConfig(name="npz", path=write_npz(tmp_path / "b.npz", x_train=x2, y_train=y, x_test=x, y_test=y)), 0)
    assert not np.array_equal(one.train_features[0], two.train_features[0])
    np.testing.assert_array_equal(one.train_features[1:], two.train_features[1:])


def test_split_is_keyed_and_disjoint(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "d.npz", x=np.arange(1.0, 41).reshape(40, 1), y=np.arange(40) % 2)

    def parts(seed: int) -> tuple[list[float], list[float]]:
        data = load(DataConfig(name="npz", path=path, test_fraction=0.25, scale="none", bias=False), seed)
        return data.train_features[:, 0].tolist(), data.test_features[:, 0].tolist()

    train, test = parts(1)
    assert (len(train), len(test)) == (30, 10)
    assert sorted(train + test) == list(range(1, 41))
    assert parts(1) == (train, test)
    assert parts(2)[1] != test


def test_synthetic_is_keyed_and_harder_with_spread() -> None:
    def score(spread: float, seed: int = 0) -> tuple[Dataset, float]:
        data = load(DataConfig(name="synthetic", classes=4, spread=spread), seed)
        model = LogisticRegression(max_iter=2000).fit(data.train_features, data.train_labels)
        return data, model.score(data.test_features, data.test_labels)

    easy, high = score(0.5)
    np.testing.assert_array_equal(easy.train_features, score(0.5)[0].train_features)
    assert not np.array_equal(easy.train_features, score(0.5, seed=1)[0].train_features)
    assert high > 0.98
    assert 0.25 < score(5.0)[1] < high - 0.2
    counts = np.bincount(np.concatenate([easy.train_labels, easy.test_labels]))
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("spelling", ["-idx", ".idx"])
def test_idx_folder(tmp_path: Path, suffix: str, spelling: str) -> None:
    data = load(DataConfig(name="idx", path=write_folder(tmp_path, suffix, spelling), scale="none", bias=False), 0)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3, 2), dtype=np.uint8)
    np.testing.assert_allclose(data.train_features, pixels.reshape(12, 6) / 255, rtol=1e-6)
    assert data.train_features.dtype == np.float32
    assert data.test_features.shape == (4, 6)
    assert data.train_labels.tolist() == [0, 1, 2] * 4
    assert (data.n_classes, data.record_norm) == (3, math.sqrt(6))


def test_black_images_stay_zero_and_no_norm_passes_the_bound(tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, (12, 28, 28), dtype=np.uint8)
    images[5] = 0
    test = idx(images[:4])
    data = load(DataConfig(name="idx", path=write_folder(tmp_path, train_images=idx(images), t10k_images=test)), 0)
    assert (data.train_features[5, :-1] == 0).all()
    assert data.train_features[5, -1] == 1
    assert norms(data.train_features).max() <= data.record_norm


IMAGES, LABELS = np.ones((12, 3, 2), np.uint8), (np.arange(12) % 3).astype(np.uint8)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("changes", "field", "match"),
    [
        ({"train_images": b""}, "data.path", "has no file train-images-idx3-ubyte"),
        ({"t10k_labels": b""}, "data.path", "has no file t10k-labels-idx1-ubyte"),
        ({"train_images": idx(IMAGES)[:-1]}, "data.path", "truncated.*72 values and 71"),
        ({"train_images": idx(IMAGES)[:9]}, "data.path", "header is not complete"),
        ({"train_images": idx(IMAGES) + b"x"}, "data.path", "too long"),
        ({"train_images": b"\x01" + idx(IMAGES)[1:]}, "data.path", "first 4 bytes"),
        ({"train_images": idx(IMAGES, kind=0x0D)}, "data.path", "first 4 bytes"),
        ({"train_images": b"\0"}, "data.path", "first 4 bytes"),
        ({"train_images": idx(IMAGES[:11])}, "data.path", "disagree"),
        ({"train_labels": idx(IMAGES)}, "data.path", "labels have one"),
        ({"train_images": idx(LABELS)}, "data.path", "images have two"),
        ({"t10k_images": idx(IMAGES[:4, :2])}, "data.path", "differ in kind"),
        ({"train_labels": idx(LABELS + 1), "t10k_labels": idx(LABELS[:4] + 1)}, "data.labels", "number them 0 to 2"),
        ({"train_labels": idx(LABELS * 2), "t10k_labels": idx(LABELS[:4])}, "data.labels", "number them 0 to 3"),
        ({"train_labels": idx(LABELS * 0), "t10k_labels": idx(LABELS[:4] * 0)}, "data.labels", "nothing to learn"),
        (
            {"train_images": idx(IMAGES[:0]), "train_labels": idx(LABELS[:0])},
            "data.path",
            "no records",
        ),
    ],
)
def test_damaged_idx_folder(tmp_path: Path, suffix: str, changes: dict[str, bytes], field: str, match: str) -> None:
    refused(DataConfig(name="idx", path=write_folder(tmp_path, suffix, **changes)), field, match)


def test_damaged_gzip_and_missing_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, ".gz")
    path = folder / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[:20], whole[:12] + bytes(8) + whole[20:]):
        path.write_bytes(damaged)
        refused(DataConfig(name="idx", path=folder), "data.path", "truncated or damaged")
    refused(DataConfig(name="idx", path=tmp_path / "none"), "data.path", "not a folder that exists")
    refused(DataConfig(name="idx", path=path), "data.path", "not a folder that exists")
    with pytest.raises(InvalidValue, match="cannot be read"):
        load_idx(tmp_path)


def test_npz_with_a_test_part_of_its_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.integers(0, 256, (9, 2, 2), dtype=np.uint8), "y_train": np.arange(9) % 3}
    arrays |= {"x_test": arrays["x_train"][:3], "y_test": arrays["y_train"][:3]}
    data = load(DataConfig(name="npz", path=write_npz(tmp_path / "mine.npz", **arrays), bias=False), 0)
    assert data.train_features.shape == (9, 4)
    assert data.test_labels.tolist() == [0, 1, 2]
    assert (data.name, data.record_norm) == ("npz (mine)", 1.0)
    assert data.scaling == "Pixels divided by 255, each record scaled to norm 1."


def test_floating_labels_mean_regression(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).standard_normal((10, 3)), np.linspace(-1, 1, 10, dtype=np.float32)
    data = load(DataConfig(name="npz", path=write_npz(tmp_path / "r.npz", x=x, y=y)), 0)
    assert data.n_classes == 0
    assert data.train_labels.dtype == np.float64
    np.testing.assert_allclose(np.sort(np.concatenate([data.train_labels, data.test_labels])), y)


X, Y = np.ones((10, 3)), np.arange(10) % 2


@pytest.mark.parametrize(
    ("arrays", "field", "match"),
    [
        ({"x": X}, "data.path", "needs arrays x and y"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "data.path", r"\['x_test', 'x_train', 'y_train'\]"),
        ({"x": X, "y": Y[:9]}, "data.path", "disagree"),
        ({"x": X[:, 0], "y": Y}, "data.path", "disagree"),
        ({"x": X, "y": Y[:, None]}, "data.path", "disagree"),
        ({"x": X[:0], "y": Y[:0]}, "data.path", "no records"),
        ({"x": X[:, :0], "y": Y}, "data.features", "one row of features"),
        ({"x": X[:1], "y": np.zeros(1)}, "data", "cannot be split"),
        ({"x": X, "y": Y * 2}, "data.labels", "number them 0 to 1"),
        ({"x": X, "y": Y * 2 - 1}, "data.labels", "number them 0 to 1"),
        ({"x": X, "y": Y * 0}, "data.labels", "nothing to learn"),
        ({"x": X, "y": np.where(Y == 1, np.nan, 0.0)}, "data.labels", "record 1 is not finite"),
        ({"x": X, "y": Y.astype(str)}, "data.labels", "whole numbers"),
        ({"x": X, "y": Y * 1j}, "data.labels", "whole numbers"),
        ({"x": X.astype(str), "y": Y}, "data.features", "must be numbers"),
        ({"x": X * 1j, "y": Y}, "data.features", "real numbers"),
        ({"x": np.where(X == 1, np.nan, X), "y": Y}, "data.features", "record 0 is not finite"),
        ({"x": np.where(np.arange(10) == 9, -np.inf, 1.0)[:, None], "y": Y}, "data.features", "record"),
        ({"x": X.astype(object), "y": Y}, "data.path", "plain arrays"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, "data.path", "differ in kind"),
        ({"x_train": X, "y_train": Y, "x_test": X.astype(np.uint8), "y_test": Y}, "data.path", "differ in kind"),
    ],
)
def test_wrong_npz(tmp_path: Path, arrays: dict[str, NDArray], field: str, match: str) -> None:
    refused(DataConfig(name="npz", path=write_npz(tmp_path / "w.npz", **arrays)), field, match)


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    refused(DataConfig(name="npz", path=tmp_path / "none.npz"), "data.path", "not a file that exists")
    path = write_npz(tmp_path / "a.npz", x=X, y=Y)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[:100], whole[: len(whole) // 2]):
        path.write_bytes(content)
        refused(DataConfig(name="npz", path=path), "data.path", "is not an npz file, or only part of one")
    flipped = bytearray(whole)
    flipped[200] ^= 0xFF  # inside the first array: its checksum fails
    path.write_bytes(bytes(flipped))
    refused(DataConfig(name="npz", path=path), "data.path", "cannot be read as an npz")
    np.save(tmp_path / "b.npy", X)
    refused(DataConfig(name="npz", path=tmp_path / "b.npy"), "data.path", "not an npz file")


def test_too_few_synthetic_records() -> None:
    refused(DataConfig(name="synthetic", records=5, classes=3), "data.records", "at least 6")
