"""Problems by name: ours, those that a program registers, and those of installed packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from ...errors import InvalidValue
from ..regularisers import NoRegulariser, Regulariser
from .base import Problem

ENTRY_POINTS = "dualfed.problems"

_P = TypeVar("_P", bound=type[Problem])
_REGISTERED: dict[str, type[Problem]] = {}


def register(problem: _P) -> _P:
    """Makes a problem known under its ``name``; works as a class decorator.

    A package makes its problem known without being imported through an entry point of the group ``dualfed.problems``
    whose name is the problem's and whose object is the class.

    Raises:
        InvalidValue: the name belongs to another class.
    """
    known = _REGISTERED.setdefault(problem.name, problem)
    if known is not problem:
        raise InvalidValue("problem.kind", problem.name, f"the name of {known.__module__}.{known.__qualname__}")
    return problem


def problem_class(kind: str) -> type[Problem]:
    """The class registered, or installed, under ``kind``. Raises InvalidValue naming the ones there are."""
    if kind not in _REGISTERED:
        for entry in entry_points(group=ENTRY_POINTS, name=kind):
            _REGISTERED[kind] = entry.load()
    if kind not in _REGISTERED:
        raise InvalidValue("problem.kind", kind, f"give one of {', '.join(sorted(_REGISTERED))}")
    return _REGISTERED[kind]


def make_problem(
    kind: str,
    n_features: int,
    n_outputs: int,
    record_norm: float,
    regulariser: Regulariser | None = None,
    clip: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> Problem:
    """A problem by name; the other arguments are the fields of `Problem`, and ``options`` further ones of its own.

    ``problem_class(kind).outputs_for(n_classes)`` gives ``n_outputs`` for a data set.

    Raises:
        InvalidValue: no such problem, or a field that it has not or cannot take.
    """
    chosen = problem_class(kind)
    own = own_fields(chosen)
    for name, value in (options or {}).items():
        if name not in own:
            known = f"it has {', '.join(own)}" if own else "it has none of its own"
            raise InvalidValue(f"problem.{name}", value, f"{kind} has no such parameter; {known}")
    regulariser = NoRegulariser() if regulariser is None else regulariser
    return chosen(n_features, n_outputs, record_norm, regulariser, clip, **(options or {}))


def own_fields(chosen: type[Problem]) -> list[str]:
    """The names of a problem's parameters beside those of `Problem`."""
    common = {each.name for each in dataclasses.fields(Problem)}
    return [each.name for each in dataclasses.fields(chosen) if each.init and each.name not in common]
