"""Methods by name: ours, those that a program registers, and those of installed packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ..errors import InvalidValue
from ..section import counts, cure
from ..wanted import nearest
from .method import Method
from .own_file import is_place, own_method, place_of

ENTRY_POINTS = "dualfed.methods"

_M = TypeVar("_M", bound=type[Method])
_OURS = {
    "fedspd-dp": ("fedspd_dp", "FedSPDDP"),
    "spade-dfl": ("spade_dfl", "SPADEDFL"),
    "dp-sgd": ("dp_sgd", "DPSGD"),
    "dp-fedavg": ("dp_fedavg", "DPFedAvg"),
    "dp-admm": ("dp_admm", "DPADMM"),
    "stochastic-dp-admm": ("stochastic_dp_admm", "StochasticDPADMM"),
    "fedavg": ("fedavg", "FedAvg"),
    "fedprox": ("fedprox", "FedProx"),
    "scaffold": ("scaffold", "Scaffold"),
    "fedadmm": ("fedadmm", "FedADMM"),
    "consensus-admm": ("consensus_admm", "ConsensusADMM"),
    "async-dp-admm": ("async_dp_admm", "AsyncDPADMM"),
    "two-phase-dp-admm": ("two_phase_dp_admm", "TwoPhaseDPADMM"),
    "dsgd": ("dsgd", "DSGD"),
    "gradient-tracking": ("gradient_tracking", "GradientTracking"),
    "extra": ("extra", "EXTRA"),
    "lt-admm": ("lt_admm", "LTADMM"),
    "dp-dsgd": ("dp_dsgd", "DPDSGD"),
    "dp-gt": ("dp_gt", "DPGT"),
    "dvp-admm": ("dvp_admm", "DVPADMM"),
    "pvp-admm": ("pvp_admm", "PVPADMM"),
    "penalty-admm": ("penalty_admm", "PenaltyADMM"),
    "recycled-admm": ("recycled_admm", "RecycledADMM"),
}
_REGISTERED: dict[str, type[Method]] = {}


def register(method: _M) -> _M:
    """Make a method known under its ``name``; works as a class decorator.

    A package makes its method known by an entry point of the group ``dualfed.methods`` whose name is the method's.
    """
    known = _REGISTERED.setdefault(method.name, method)
    if known is not method:
        raise InvalidValue("method.name", method.name, f"the name of {known.__module__}.{known.__qualname__}")
    return method


def method_names() -> list[str]:
    """All names that ``method_class`` knows, sorted."""
    return sorted({*_OURS, *_REGISTERED, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


def method_class(name: str) -> type[Method]:
    """The class registered, shipped or installed under ``name``, or at the place that it says (``my_file.py:MyMethod``).

    Raises InvalidValue naming the ones there are.
    """
    if is_place(name):
        return own_method(name)
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _OURS:
        module, attribute = _OURS[name]
        found: type[Method] = getattr(import_module(f".{module}", __package__), attribute)
        return found
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        _REGISTERED[name] = entry.load()
        return _REGISTERED[name]
    near = nearest(name, method_names())
    meant = "" if near is None else f"did you mean {near}? "
    others = f"give one of {', '.join(method_names())}, or a file of your own as my_file.py:MyMethod"
    raise InvalidValue("method.name", name, meant + others)


def make_method(values: Mapping[str, Any]) -> Method:
    """A method from its table: ``name`` and its own parameters.

    Raises:
        InvalidValue: no such method, no such parameter, or a value that the method cannot take.
    """
    parameters = dict(values)
    name = parameters.pop("name", "fedspd-dp")
    if not isinstance(name, str):
        raise InvalidValue("method.name", name, f"give one of {', '.join(method_names())}")
    chosen = method_class(name)
    known = {field.name for field in dataclasses.fields(chosen) if field.init}  # type: ignore[arg-type]
    kinds = _kinds(chosen)
    for name, value in parameters.items():
        if name not in known:
            meant = "" if (near := nearest(name, [*known, "name"])) is None else f"did you mean method.{near}? "
            raise InvalidValue(f"method.{name}", value, f"{meant}{chosen.name} has {', '.join(sorted(known))}")
        if not counts(kinds.get(name), value):
            raise InvalidValue(f"method.{name}", value, cure(kinds.get(name), value))
    try:
        return TypeAdapter(chosen).validate_python(parameters)
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(cause := first.get("ctx", {}).get("error"), InvalidValue):
            raise cause from None
        name = str(first["loc"][0]) if first["loc"] else ""
        raise InvalidValue(
            f"method.{name}", parameters.get(name), cure(kinds.get(name), parameters.get(name))
        ) from None


def _kinds(chosen: type[Method]) -> dict[str, Any]:
    """The types of its parameters; none where a method of somebody's own names types that only a checker can see."""
    try:
        return get_type_hints(chosen)
    except NameError:
        return {}


def method_table(method: Method) -> dict[str, Any]:
    """The table from which ``make_method`` makes the same method again."""
    table: dict[str, Any] = {"name": place_of(type(method)) or method.name}
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        if value is not None and field.init:
            table[field.name] = (
                value.given() if hasattr(value, "given") else list(value) if isinstance(value, tuple) else value
            )
    return table
