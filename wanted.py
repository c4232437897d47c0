"""What a field takes, in words, read off its type: "a number > 0", "true or false", one of several words."""

from __future__ import annotations

import difflib
import enum
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_ONE: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    Path: "a path in quotes",
}
_MANY: dict[Any, str] = {bool: "truth values", int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


def wanted(annotation: Any, limits: Sequence[Any] = ()) -> str:
    """What a field of this type takes within these limits, as the end of a sentence that begins with "give"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        own = [limit for each in arguments[1:] for limit in getattr(each, "metadata", [each])]
        return wanted(arguments[0], [*own, *limits])
    if origin in (Union, types.UnionType):
        each = [wanted(kind, limits) for kind in arguments if kind is not type(None)]
        return either([words for k, words in enumerate(each) if words not in each[:k]])
    if origin is Literal:
        return either([f'"{word}"' if isinstance(word, str) else str(word) for word in arguments])
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return either([str(each.value) for each in annotation])
    if origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        return f"a list of {_many(arguments[0])}" + _length(limits)
    if origin is tuple:
        return f"a list of {len(arguments)} {_many(arguments[0])}"
    if origin is dict or annotation is dict:
        return f"a table of {_many(arguments[1])}" if len(arguments) == 2 and arguments[1] is not Any else "a table"
    if annotation in (int, float):
        return _bounded(annotation, limits)
    return _ONE.get(annotation, "another value")


def words_of(annotation: Any) -> list[str]:
    """The words that a field of this type may be, if it is one of several."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [word for kind in get_args(annotation) for word in words_of(kind)]
    return [word for word in get_args(annotation) if isinstance(word, str)] if get_origin(annotation) is Literal else []


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Which of the ``known`` names was meant, if one is near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _many(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"words, each {wanted(annotation)}"
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"lists of {len(arguments)} {_many(arguments[0])}"
    if origin is list:
        return "lists"
    return _MANY.get(annotation, "values")


def _limit(limits: Sequence[Any], name: str) -> Any:
    """A limit such as ``ge``; what pydantic knows no class for is held with others in one object."""
    return next((getattr(limit, name) for limit in limits if getattr(limit, name, None) is not None), None)


def _length(limits: Sequence[Any]) -> str:
    least = _limit(limits, "min_length")
    return "" if least is None else f", {least} or more"


def _bounded(annotation: Any, limits: Sequence[Any]) -> str:
    ge, gt, le, lt = (_limit(limits, name) for name in ("ge", "gt", "le", "lt"))
    if annotation is int and gt is not None:
        ge, gt = gt + 1, None
    low = "" if ge is None and gt is None else _number(gt if ge is None else ge)
    high = "" if le is None and lt is None else _number(lt if le is None else le)
    kind = _ONE[annotation]
    if low and high:
        return f"{kind} {'from' if gt is None else 'above'} {low} {_up_to(gt is None, lt is None)} {high}"
    if annotation is float and _limit(limits, "allow_inf_nan") is False:
        kind = "a finite number"
    if low:
        return f"{kind} {'>' if ge is None else '≥'} {low}"
    return f"{kind} {'<' if le is None else '≤'} {high}" if high else kind


def _up_to(from_there: bool, included: bool) -> str:
    if included:
        return "to" if from_there else "and up to"
    return "to below" if from_there else "and below"


def _number(value: float) -> str:
    if isinstance(value, int) and value > 10**6 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}" if isinstance(value, int) and value >= 10**6 else f"{value:g}"
