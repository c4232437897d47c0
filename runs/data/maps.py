"""Public feature maps: functions of one record and of numbers that anyone may know, so that they cost no privacy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue
from ...keys import generator, public_key
from ..data_config import DataConfig
from .dataset import Raw, in_units

# Records mapped at a time, so that what is in between stays small.
_CHUNK = 2048


def apply_map(raw: Raw, config: DataConfig) -> Raw:
    """``raw`` with its features mapped to ``[n, features_out]`` as ``data.feature_map`` says.

    ``random-projection``: onto a random subspace of ``features_out`` dimensions, uniformly drawn. ``random-fourier``:
    √(2/k) cos(W a + u) with W ~ N(0, 1/bandwidth²), whose products approximate the Gaussian kernel (Rahimi & Recht 2007).
    ``dct``: the coefficients of lowest frequency of each image's cosine transform, square blocks first. ``scattering``:
    the scattering transform of each image at scale 2^``scattering_scale`` (Bruna & Mallat 2013; Andreux et al. 2020), then,
    where ``features_out`` is given, a random projection. Draws are keyed by ``data.feature_seed``.

    Raises:
        InvalidValue: ``features_out`` larger than the map can make, a map of images on data that are none, or the
            scattering library missing.
    """
    if config.feature_map == "none":
        return raw
    raw = in_units(raw)
    mapped = {
        "random-projection": _random_projection,
        "random-fourier": _random_fourier,
        "dct": _dct,
        "scattering": _scattering,
    }[config.feature_map](raw, config)
    words = ", ".join(part for part in (raw.units, mapped.units) if part)
    return dataclasses.replace(mapped, units=words)


def _random_projection(raw: Raw, config: DataConfig) -> Raw:
    features = raw.features.reshape(len(raw.features), -1)
    width, wanted = features.shape[1], int(config.features_out or 0)
    if wanted > width:
        cure = f"there are {width} features to project; give at most {width}, or take random-fourier"
        raise InvalidValue("data.features_out", wanted, cure)
    gaussian = generator(public_key(config.feature_seed), "random-projection").standard_normal((width, wanted))
    # Orthonormal columns, so that no record gets longer; the signs make the subspace's basis unique.
    basis, triangle = np.linalg.qr(gaussian)
    basis *= np.where(np.diag(triangle) < 0, -1.0, 1.0)
    words = f"a fixed random projection of {width} to {wanted} features (feature_seed {config.feature_seed})"
    return Raw(features @ basis.astype(features.dtype), raw.labels, units=words, norm_bound=_norm_bound(raw))


def _random_fourier(raw: Raw, config: DataConfig) -> Raw:
    features = raw.features.reshape(len(raw.features), -1)
    wanted = int(config.features_out or 0)
    rng = generator(public_key(config.feature_seed), "random-fourier")
    weights = (rng.standard_normal((features.shape[1], wanted)) / config.bandwidth).astype(features.dtype)
    phases = rng.uniform(0, 2 * np.pi, wanted).astype(features.dtype)
    mapped = np.cos(features @ weights + phases) * math.sqrt(2 / wanted)
    words = f"{wanted} random Fourier features of bandwidth {config.bandwidth:g} (feature_seed {config.feature_seed})"
    return Raw(mapped.astype(features.dtype), raw.labels, units=words, norm_bound=math.sqrt(2))


def _dct(raw: Raw, config: DataConfig) -> Raw:
    from scipy.fft import dctn

    images = _images(raw, "dct")
    height, width, channels = images.shape[1:]
    pairs = sorted((max(i, j), i + j, i, j) for i in range(height) for j in range(width))
    wanted, most = int(config.features_out or 0), len(pairs)
    if wanted > most:
        cure = f"an image of {height}×{width} pixels has {most} coefficients; give at most {most}"
        raise InvalidValue("data.features_out", wanted, cure)
    rows, columns = np.array([pair[2:] for pair in pairs[:wanted]]).T
    out = np.empty((len(images), wanted, channels), dtype=images.dtype)
    for start in range(0, len(images), _CHUNK):
        coefficients = dctn(images[start : start + _CHUNK], axes=(1, 2), norm="ortho")
        out[start : start + _CHUNK] = coefficients[:, rows, columns]
    each = " of each channel" if channels > 1 else ""
    words = f"the {wanted} lowest cosine coefficients{each} of each {height}×{width} image"
    return Raw(out.reshape(len(out), -1), raw.labels, units=words, norm_bound=_norm_bound(raw))


def _scattering(raw: Raw, config: DataConfig) -> Raw:
    images, scale = _images(raw, "scattering"), config.scattering_scale
    height, width = images.shape[1:3]
    if 2**scale > min(height, width):
        most = int(math.log2(min(height, width)))
        cure = f"2^{scale} pixels is more than an image of {height}×{width} has; give at most {most}"
        raise InvalidValue("data.scattering_scale", scale, cure)
    transform = _transform(scale, height, width)
    planes = np.moveaxis(images, 3, 1)
    chunks = [
        transform(np.ascontiguousarray(planes[start : start + _CHUNK], dtype=np.float32))
        for start in range(0, len(planes), _CHUNK)
    ]
    features = np.concatenate([chunk.reshape(len(chunk), -1) for chunk in chunks])
    words = (
        f"the scattering transform of each {height}×{width} image at scale 2^{scale} ({features.shape[1]} coefficients)"
    )
    made = Raw(features, raw.labels, units=words)
    if config.features_out is None:
        return made
    projected = _random_projection(made, config)
    return dataclasses.replace(projected, units=f"{words}, {projected.units}")


def _transform(scale: int, height: int, width: int) -> Any:
    try:
        # The front end by itself: what the library's own shortcuts import besides needs an older scipy.
        from kymatio.scattering2d.frontend.numpy_frontend import ScatteringNumPy2D
    except ImportError as error:
        cure = f'needs the library kymatio ({error}); install it with: pip install "dualfed[scattering]"'
        raise InvalidValue("data.feature_map", "scattering", cure) from None
    return ScatteringNumPy2D(J=scale, shape=(height, width))


def _images(raw: Raw, map: str) -> NDArray[Any]:
    """``[n, height, width, channels]``."""
    images = raw.features
    if images.ndim not in (3, 4):
        cure = f"these records are no images but {list(images.shape[1:])} numbers; take random-projection"
        raise InvalidValue("data.feature_map", map, cure)
    return images[..., None] if images.ndim == 3 else images


def _norm_bound(raw: Raw) -> float:
    """Public bound on a record's norm, which an orthonormal map keeps."""
    return min(raw.bound * math.sqrt(math.prod(raw.features.shape[1:])), raw.norm_bound)
