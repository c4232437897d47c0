"""Data in files that a person brings: a folder of idx files, or one npz file."""

from __future__ import annotations

import gzip
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue
from .dataset import Raw

_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08


def load_idx(path: Path) -> NDArray[np.uint8]:
    """One idx file of unsigned bytes, gzipped or not, as a read-only array of the shape that it declares.

    Format: two zero bytes, a type, the number of dimensions, each dimension as a big-endian 32-bit number, the values
    (LeCun, Cortes & Burges, The MNIST database).

    Raises:
        InvalidValue: naming ``data.path``: not readable, truncated, too long, or not such a file.
    """
    content = _read(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE or content[3] == 0:
        raise InvalidValue("data.path", str(path), "is not an idx file of unsigned bytes: its first 4 bytes are wrong")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise InvalidValue("data.path", str(path), "is truncated: its header is not complete; fetch it again")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    declared, found = math.prod(shape), len(content) - start
    if found != declared:
        fault = "is truncated" if found < declared else "is too long"
        cure = f"{fault}: its header declares {declared} values and {found} follow; fetch it again"
        raise InvalidValue("data.path", str(path), cure)
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def idx_folder(folder: Path) -> tuple[Raw, Raw]:
    """Training and test images of a folder with the four files of MNIST, Fashion-MNIST and their like.

    Raises:
        InvalidValue: naming ``data.path``: no such folder, a file missing or damaged, or counts or sizes that disagree.
    """
    if not folder.is_dir():
        raise InvalidValue("data.path", str(folder), "is not a folder that exists")
    train, test = _idx_pair(folder, "train"), _idx_pair(folder, "t10k")
    _same_shape(train, test, folder)
    return train, test


def npz(path: Path) -> tuple[Raw, Raw | None]:
    """Records of one npz file: ``x_train, y_train, x_test, y_test``, or ``x, y`` (then there is no test part).

    Features are ``[n, ...]``, labels ``[n]``; floating labels are targets. Nothing is unpickled.

    Raises:
        InvalidValue: naming ``data.path``: not readable, damaged, arrays missing, or lengths that disagree.
    """
    if not path.is_file():
        raise InvalidValue("data.path", str(path), "is not a file that exists")
    try:
        if not zipfile.is_zipfile(path):  # numpy would advise to unpickle it
            raise InvalidValue(
                "data.path", str(path), "is not an npz file, or only part of one; write it with numpy.savez"
            )
        archive = np.load(path, allow_pickle=False)
        with archive:
            names = set(archive.files)
            if {"x_train", "y_train", "x_test", "y_test"} <= names:
                train = Raw(archive["x_train"], archive["y_train"])
                test: Raw | None = Raw(archive["x_test"], archive["y_test"])
            elif {"x", "y"} <= names:
                train, test = Raw(archive["x"], archive["y"]), None
            else:
                cure = f"needs arrays x and y, or x_train, y_train, x_test and y_test; it has {sorted(names)}"
                raise InvalidValue("data.path", str(path), cure)
    except InvalidValue:
        raise
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidValue("data.path", str(path), f"cannot be read as an npz file of plain arrays ({error})") from None
    for part in (train, test):
        if part is not None:
            _same_count(part, path)
    if test is not None:
        _same_shape(train, test, path)
    return train, test


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == _GZIP else content
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InvalidValue("data.path", str(path), "is truncated or damaged; fetch it again") from None
    except OSError as error:
        raise InvalidValue("data.path", str(path), f"cannot be read ({error.strerror})") from None


def _idx_pair(folder: Path, part: str) -> Raw:
    images_path = _find(folder, part, "images", 3)
    labels_path = _find(folder, part, "labels", 1)
    images, labels = load_idx(images_path), load_idx(labels_path)
    if labels.ndim != 1:
        raise InvalidValue("data.path", str(labels_path), f"has {labels.ndim} dimensions; labels have one")
    if images.ndim < 2:
        raise InvalidValue("data.path", str(images_path), "has one dimension; images have two or more")
    raw = Raw(images, labels.astype(np.int64))
    _same_count(raw, images_path)
    return raw


def _find(folder: Path, part: str, what: str, dimensions: int) -> Path:
    for stem in (f"{part}-{what}-idx{dimensions}-ubyte", f"{part}-{what}.idx{dimensions}-ubyte"):
        for name in (stem, f"{stem}.gz"):
            if (folder / name).is_file():
                return folder / name
    cure = f"has no file {part}-{what}-idx{dimensions}-ubyte or {part}-{what}-idx{dimensions}-ubyte.gz"
    raise InvalidValue("data.path", str(folder), cure)


def _same_count(raw: Raw, path: Path) -> None:
    if raw.labels.ndim != 1 or raw.features.ndim < 2 or len(raw.features) != len(raw.labels):
        cure = f"features {raw.features.shape} and labels {raw.labels.shape} disagree; give one label for each record"
        raise InvalidValue("data.path", str(path), cure)
    if len(raw.labels) == 0:
        raise InvalidValue("data.path", str(path), "holds no records")


def _same_shape(train: Raw, test: Raw, path: Path) -> None:
    if train.features.shape[1:] != test.features.shape[1:] or train.features.dtype != test.features.dtype:
        described = [f"{part.features.dtype}{list(part.features.shape[1:])}" for part in (train, test)]
        cure = f"training and test records differ in kind: {described[0]} against {described[1]}"
        raise InvalidValue("data.path", str(path), cure)
