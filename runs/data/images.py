"""Images in folders that a person brings: one folder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidValue
from ..data_config import DataConfig
from .dataset import Raw

if TYPE_CHECKING:
    from PIL.Image import Image

_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})


def image_folder(folder: Path, config: DataConfig) -> tuple[Raw, Raw | None, tuple[str, ...]]:
    """Images of ``folder/train/CLASS/*`` and ``folder/test/CLASS/*``, or of ``folder/CLASS/*`` (then no test part).

    Classes are numbered by their names in alphabetical order, images come in the order of their names.

    Returns:
        training part, test part, names of the classes; features are pixels, uint8 ``[n, height, width]`` where
        ``grayscale``, else ``[n, height, width, 3]``.

    Raises:
        InvalidValue: naming ``data.path``: no such folder, no class in it, a class without images, a class that only
            the test part has, a file that is no whole image, or sizes that differ where no ``image_size`` is given.
    """
    if not folder.is_dir():
        raise InvalidValue("data.path", str(folder), "is not a folder that exists")
    apart = (folder / "train").is_dir()
    root = folder / "train" if apart else folder
    names = _classes(root)
    if len(names) < 2:
        cure = f"has {len(names)} folders of images; put each class in a folder of its own, two or more"
        raise InvalidValue("data.path", str(root), cure)
    train = _read(root, names, config)
    if not (folder / "test").is_dir() or not apart:
        return train, None, tuple(names)
    if extra := sorted(set(_classes(folder / "test")) - set(names)):
        raise InvalidValue(
            "data.path", str(folder / "test" / extra[0]), "this class has no folder among the training images"
        )
    present = [name for name in names if (folder / "test" / name).is_dir()]
    test = _read(folder / "test", present, config, {name: code for code, name in enumerate(names)})
    if test.features.shape[1:] != train.features.shape[1:]:
        shapes = [f"{part.features.shape[1]}×{part.features.shape[2]}" for part in (train, test)]
        cure = (
            f"training images have {shapes[0]} pixels, test images {shapes[1]}; give data.image_size = [height, width]"
        )
        raise InvalidValue("data.path", str(folder), cure)
    return train, test, tuple(names)


def pixels(image: Image, config: DataConfig) -> NDArray[np.uint8]:
    """One image as uint8 ``[height, width]`` or ``[height, width, 3]``, brought to ``image_size`` where that is given."""
    from PIL.Image import Resampling

    plain = image.convert("L" if config.grayscale else "RGB")
    if config.image_size is not None and plain.size != config.image_size[::-1]:
        plain = plain.resize(config.image_size[::-1], Resampling.BILINEAR)
    return np.asarray(plain, dtype=np.uint8)


def stacked(images: list[NDArray[np.uint8]], names: list[str], field: str) -> NDArray[np.uint8]:
    """Images of one size as one array ``[n, ...]``. Raises InvalidValue naming the first whose size differs."""
    for image, name in zip(images, names):
        if image.shape != images[0].shape:
            sizes = [f"{one.shape[0]}×{one.shape[1]}" for one in (image, images[0])]
            cure = f"has {sizes[0]} pixels and {names[0]} has {sizes[1]}; give data.image_size = [height, width]"
            raise InvalidValue(field, name, cure)
    return np.stack(images)


def _classes(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _read(root: Path, names: list[str], config: DataConfig, codes: dict[str, int] | None = None) -> Raw:
    from PIL import Image

    found, labels, files = [], [], []
    for position, name in enumerate(names):
        paths = sorted(path for path in (root / name).iterdir() if path.suffix.lower() in _ENDINGS)
        if not paths:
            raise InvalidValue("data.path", str(root / name), "holds no images; fill it or remove it")
        for path in paths:
            try:
                with Image.open(path) as image:
                    found.append(pixels(image, config))
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
                cure = f"is not a whole image ({' '.join(str(error).split())}); repair it or remove it"
                raise InvalidValue("data.path", str(path), cure) from None
            labels.append(position if codes is None else codes[name])
            files.append(str(path))
    if not found:
        raise InvalidValue("data.path", str(root), "holds no images; fill it or remove it")
    return Raw(stacked(found, files, "data.path"), np.array(labels, dtype=np.int64))
