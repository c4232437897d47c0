"""Images in folders, and data of the Hub through a stand-in for its library."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.config import parse
from dualfed.runs.data import Dataset, load
from PIL import Image


def write_images(root: Path, per_class: int = 4, size: tuple[int, int] = (6, 5), classes: str = "ab") -> None:
    """Flat images of height × width pixels; class a is dark, class b is light."""
    for code, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = np.full((*size, 3), 10 + 100 * code + number, dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")


def loaded(path: Path, **changes: Any) -> Dataset:
    given = {"name": "image-folder", "path": str(path), "scale": "none", "bias": False, **changes}
    return load(parse({"data": given}).data, 0)


def refused(path: Path, match: str, **changes: Any) -> None:
    with pytest.raises(InvalidValue, match=match) as caught:
        loaded(path, **changes)
    assert caught.value.field == "data.path"
    assert "\n" not in str(caught.value)


def test_training_and_test_folders_in_a_fixed_order(tmp_path: Path) -> None:
    write_images(tmp_path / "train")
    write_images(tmp_path / "test", 2)
    (tmp_path / "train" / "a" / "notes.txt").write_text("no image")
    data = loaded(tmp_path)
    assert (data.train_features.shape, data.test_features.shape) == ((8, 90), (4, 90))
    assert data.class_names == ("a", "b")
    assert data.train_labels.tolist() == [0] * 4 + [1] * 4
    np.testing.assert_allclose(data.train_features[:, 0] * 255, [10, 11, 12, 13, 110, 111, 112, 113], rtol=1e-6)
    assert data.record_norm == pytest.approx(90**0.5)


def test_without_a_test_folder_it_is_split(tmp_path: Path) -> None:
    write_images(tmp_path)
    data = loaded(tmp_path, test_fraction=0.25, grayscale=True)
    assert (data.train_features.shape, data.test_features.shape) == ((6, 30), (2, 30))


def test_sizes(tmp_path: Path) -> None:
    write_images(tmp_path / "train")
    write_images(tmp_path / "test", size=(7, 5))
    refused(tmp_path, "training images have 6×5 pixels, test images 7×5")
    assert loaded(tmp_path, image_size=[4, 3], grayscale=True).train_features.shape == (8, 12)
    Image.new("L", (9, 9)).save(tmp_path / "train" / "b" / "odd.png")
    refused(tmp_path, "odd.png.*9×9.*image_size")


def test_folders_that_are_damaged(tmp_path: Path) -> None:
    refused(tmp_path / "none", "not a folder")
    refused(tmp_path, "has 0 folders of images")
    write_images(tmp_path / "train", classes="a")
    refused(tmp_path, "has 1 folders of images")
    (tmp_path / "train" / "b").mkdir()
    refused(tmp_path, "holds no images")
    path = tmp_path / "train" / "b" / "0.png"
    whole = (tmp_path / "train" / "a" / "0.png").read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        path.write_bytes(content)
        refused(tmp_path, "0.png.*not a whole image")
    path.write_bytes(whole)
    write_images(tmp_path / "test", classes="ac")
    refused(tmp_path, "'.*c'.*no folder among the training images")


def test_a_class_may_be_missing_from_the_test_images(tmp_path: Path) -> None:
    write_images(tmp_path / "train", classes="abc")
    write_images(tmp_path / "test", 1, classes="ac")
    data = loaded(tmp_path)
    assert data.test_labels.tolist() == [0, 2]
    assert data.n_classes == 3


class Part:
    """What the loader uses of a data set of the Hub."""

    def __init__(self, columns: dict[str, list[Any]], names: list[str] | None = None) -> None:
        self.columns, self.column_names = columns, list(columns)
        self.features = {name: SimpleNamespace(names=names if name == "label" else None) for name in columns}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: Any) -> Any:
        return pa.table(self.columns) if isinstance(key, slice) else self.columns[key]

    def with_format(self, kind: str) -> Part:
        assert kind == "arrow"
        return self


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    """Splits by name, as a stand-in for the library serves them."""
    splits: dict[str, Part] = {}

    def load_dataset(repository: str, subset: str | None, *, split: str, revision: str | None) -> Part:
        assert (repository, subset, revision) == ("me/mine", None, "v1")
        return splits[split]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return splits


HUB: dict[str, Any] = {"name": "hub", "repository": "me/mine", "revision": "v1", "label": "label"}


def test_images_of_the_hub(hub: dict[str, Part]) -> None:
    images = [Image.new("L", (4, 3), 10 * number) for number in range(6)]
    hub["train"] = Part({"image": images, "label": [0, 1, 2] * 2}, ["cat", "dog", "cow"])
    hub["test"] = Part({"image": images[:3], "label": [0, 1, 2]}, ["cat", "dog", "cow"])
    config = parse({"data": {**HUB, "image": "image", "grayscale": True, "test_split": "test"}}).data
    data = load(config, 0)
    assert (data.train_features.shape, data.test_features.shape) == ((6, 13), (3, 13))
    assert data.class_names == ("cat", "dog", "cow")
    assert data.name == "hub (me/mine)"
    hub["train"] = Part({"picture": images, "label": [0, 1, 2] * 2})
    with pytest.raises(InvalidValue, match="has no column 'image'; it has picture, label"):
        load(config, 0)


def test_tables_of_the_hub(hub: dict[str, Part]) -> None:
    hub["train"] = Part({"age": [float(number) for number in range(20)], "label": [0, 1] * 10, "site": ["a", "b"] * 10})
    config = parse({"data": {**HUB, "ranges": {"age": [0, 20]}, "client": "site", "bias": False}}).data
    data = load(config, 0)
    assert data.train_features.shape == (16, 1)
    assert data.client_names == ("a", "b")


def test_what_the_hub_cannot_give(hub: dict[str, Part]) -> None:
    config = parse({"data": {**HUB, "ranges": {"age": [0, 20]}, "split": "none"}}).data
    with pytest.raises(InvalidValue, match=r"split none cannot be loaded \(KeyError") as caught:
        load(config, 0)
    assert caught.value.field == "data.repository"
    with pytest.raises(InvalidValue, match="needs a data set"):
        parse({"data": {"name": "hub", "label": "label"}})


def test_the_hub_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidValue, match=r"dualfed\[hub\]"):
        load(parse({"data": {**HUB, "image": "image"}}).data, 0)
