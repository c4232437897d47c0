"""The package as a folder that travels to nodes which lack it.

A staged folder rather than a wheel: for a wheel Ray would have each node install the dependencies anew, CUDA builds of
torch included. Nodes need the dependencies; the package itself travels.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

NAME = "dualfed"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def stage(folder: Path) -> Path:
    """Copy the package as it is installed here into ``folder / "dualfed"``; that path."""
    source, made = Path(__file__).resolve().parents[1], folder / NAME
    made.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_dir() and (path / "__init__.py").is_file() and path.name != "tests":
            shutil.copytree(path, made / path.name, ignore=_LEFT_OUT)
        elif path.suffix == ".py" or path.name == "py.typed":
            shutil.copy2(path, made / path.name)
    return made


@contextlib.contextmanager
def staged(prefix: str) -> Iterator[Path]:
    """A staged package in a temporary folder of this process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield stage(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
