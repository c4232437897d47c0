"""Public feature maps: what they compute, what they keep, and that they look at one record."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.config import parse
from dualfed.runs.data import Dataset, load
from scipy.fft import dctn
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


def digits(**changes: Any) -> Dataset:
    return load(parse({"data": {"name": "digits", **changes}}).data, 0)


def score(data: Dataset) -> float:
    model = LogisticRegression(C=100, max_iter=5000).fit(data.train_features, data.train_labels)
    return float(model.score(data.test_features, data.test_labels))


@pytest.mark.parametrize(
    ("changes", "width", "word", "least"),
    [
        ({"feature_map": "random-projection", "features_out": 20}, 20, "random projection of 64 to 20", 0.85),
        ({"feature_map": "random-fourier", "features_out": 300, "bandwidth": 2.5}, 300, "Fourier", 0.95),
        ({"feature_map": "dct", "features_out": 16}, 16, "16 lowest cosine", 0.9),
    ],
)
def test_maps_keep_what_can_be_learned(changes: dict[str, Any], width: int, word: str, least: float) -> None:
    data = digits(**changes)
    assert data.n_features == width + 1
    assert word in data.scaling
    assert data.scaling.startswith("Pixels divided by 16, ")
    assert data.record_norm == math.sqrt(2)
    assert np.linalg.norm(data.train_features, axis=1).max() <= data.record_norm
    assert score(data) > least


@pytest.mark.parametrize("map", ["random-projection", "random-fourier", "dct"])
def test_without_unit_norm_the_bound_holds(map: str) -> None:
    data = digits(feature_map=map, features_out=16, scale="none", bias=False)
    assert np.linalg.norm(data.train_features, axis=1).max() <= data.record_norm * (1 + 1e-9)
    assert data.record_norm <= 8


def test_projections_are_orthonormal_and_keyed() -> None:
    plain, whole = (
        digits(scale="none", bias=False),
        {"feature_map": "random-projection", "scale": "none", "bias": False},
    )
    full = digits(**whole, features_out=64)
    np.testing.assert_allclose(
        full.train_features @ full.train_features.T, plain.train_features @ plain.train_features.T
    )
    one, again, other = (digits(**whole, features_out=9, feature_seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.train_features, again.train_features)
    assert not np.allclose(one.train_features, other.train_features)
    with pytest.raises(InvalidValue, match="at most 64"):
        digits(**whole, features_out=65)


def test_fourier_features_approximate_the_gaussian_kernel() -> None:
    plain = digits(scale="none", bias=False).train_features[:200]
    mapped = digits(feature_map="random-fourier", features_out=6000, bandwidth=3.0, scale="none", bias=False)
    distances = ((plain[:, None] - plain[None]) ** 2).sum(axis=2)
    products = mapped.train_features[:200] @ mapped.train_features[:200].T
    np.testing.assert_allclose(products, np.exp(-distances / (2 * 3.0**2)), atol=0.07)


def test_cosine_coefficients_are_a_square_block() -> None:
    data = digits(feature_map="dct", features_out=16, scale="none", bias=False)
    images = load_digits().images / 16
    expected = {tuple(np.round(np.sort(dctn(image, norm="ortho")[:4, :4].ravel()), 9)) for image in images}
    found = {tuple(np.round(np.sort(row), 9)) for row in data.train_features}
    assert found <= expected
    with pytest.raises(InvalidValue, match="64 coefficients"):
        digits(feature_map="dct", features_out=65)


def test_maps_of_images_need_images() -> None:
    for map in ("dct", "scattering"):
        with pytest.raises(InvalidValue, match="no images") as caught:
            load(parse({"data": {"name": "breast-cancer", "feature_map": map, "features_out": 3}}).data, 0)
        assert caught.value.field == "data.feature_map"


def test_colour_images_keep_their_channels(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x=images, y=np.arange(20) % 2)
    given = {"name": "npz", "path": str(tmp_path / "d.npz"), "feature_map": "dct", "features_out": 4, "scale": "none"}
    data = load(parse({"data": {**given, "bias": False}}).data, 0)
    assert (data.n_features, data.train_features.dtype) == (12, np.float32)
    assert "each channel" in data.scaling


def test_nan_is_found_behind_a_map(tmp_path: Any) -> None:
    x = np.ones((10, 3))
    x[4, 1] = np.nan
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(10) % 2, x_test=x[:2], y_test=[0, 1])
    given = {"name": "npz", "path": str(tmp_path / "d.npz"), "feature_map": "random-fourier", "features_out": 5}
    with pytest.raises(InvalidValue, match="record 4 is not finite"):
        load(parse({"data": given}).data, 0)


def test_scattering_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kymatio", None)
    with pytest.raises(InvalidValue, match=r"dualfed\[scattering\]"):
        digits(feature_map="scattering")
    with pytest.raises(InvalidValue, match="at most 3") as caught:
        digits(feature_map="scattering", scattering_scale=4)
    assert caught.value.field == "data.scattering_scale"


def test_scattering() -> None:
    pytest.importorskip("kymatio.scattering2d.frontend.numpy_frontend", reason="an optional extra")
    data = digits(feature_map="scattering")
    assert data.n_features == 81 * 4 + 1
    assert "scattering transform of each 8×8 image at scale 2^2 (324 coefficients)" in data.scaling
    assert score(data) > 0.95
    fewer = digits(feature_map="scattering", features_out=40)
    assert fewer.n_features == 41
    assert "random projection of 324 to 40" in fewer.scaling
