"""dualfed: an actor-based simulator for private primal-dual learning."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562), so that ``import dualfed`` costs nothing."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name], __name__), name)
    raise AttributeError(f"module 'dualfed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
