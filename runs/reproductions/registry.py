"""The reproductions there are: all lists ``REPRODUCTIONS`` of this folder's modules."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from ...errors import InvalidValue

if TYPE_CHECKING:
    from .framework import Reproduction

_FRAMEWORK = {"figures", "framework", "registry"}


def reproductions() -> dict[str, Reproduction]:
    """All reproductions by name, sorted."""
    package = __package__ or ""
    found: dict[str, Reproduction] = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        if module.name not in _FRAMEWORK:
            for each in getattr(import_module(f"{package}.{module.name}"), "REPRODUCTIONS", []):
                if each.name in found:
                    raise ValueError(f"two reproductions are called {each.name}")
                found[each.name] = each
    return dict(sorted(found.items()))


def reproduction(name: str) -> Reproduction:
    """The one called ``name``. Raises InvalidValue naming the ones there are."""
    known = reproductions()
    if name not in known:
        raise InvalidValue(
            "NAME", name, f"give one of {', '.join(known)}; `dualfed reproduce --list` says what they are"
        )
    return known[name]
