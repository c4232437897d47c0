"""What the tables of a configuration have in common, and how a mistake in one is told."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo

from .errors import InvalidValue
from .wanted import either, nearest, wanted, words_of

_FEW = 16  # so many names can be read in a sentence


class Section(BaseModel):
    """A table of the file: frozen, and no key that it does not know. Text may be written as a number: ``name = 2024``."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: Any, info: Any) -> Any:
        if not counts(cls.model_fields[info.field_name].annotation, value):
            raise ValueError("true and false are no numbers")
        return value


def counts(annotation: Any, value: Any) -> bool:
    """False for ``true`` and ``false`` where a number is wanted, which would pass for 1 and 0."""
    union = get_origin(annotation) in (Union, types.UnionType)
    kinds = get_args(annotation) if union else (annotation,)
    return not isinstance(value, bool) or bool in kinds or not {int, float} & set(kinds)


def refusal(
    error: ValidationError, section: type[BaseModel], given: Mapping[str, Any], table: str = ""
) -> InvalidValue:
    """The first mistake in what was ``given`` for ``section``, as the sentence that a person gets.

    Args:
        table: the dotted name of the section in the file; empty for the whole file.
    """
    first = error.errors()[0]
    if isinstance(cause := first.get("ctx", {}).get("error"), InvalidValue):
        return cause
    value: Any = given
    path, kind = [table] if table else [], section
    for part in map(str, first["loc"]):
        path, value, info = [*path, part], value.get(part), kind.model_fields.get(part)
        if info is None:
            return InvalidValue(".".join(path), value, _no_such_field(part, kind, section, path[:-1]))
        below: Any = info.annotation
        if not (_is_section(below) and isinstance(value, Mapping)):
            return InvalidValue(".".join(path), value, _cure(".".join(path), value, info))
        kind = below
    return InvalidValue(table or "configuration", dict(given), str(first["msg"]))


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _cure(field: str, value: Any, info: FieldInfo) -> str:
    if info.description:
        return f"give {info.description}"
    usual = info.get_default(call_default_factory=True)
    if _is_section(info.annotation) or (isinstance(usual, dict) and usual):
        name, word = next(iter(usual.items() if isinstance(usual, dict) else iter(usual)))
        return f'is a table; give its fields, such as {field}.{name} = "{word}"'
    return cure(info.annotation, value, info.metadata)


def cure(annotation: Any, value: Any, limits: Sequence[Any] = ()) -> str:
    """What to give in place of ``value``: what such a field takes, and the word that was meant, if one is near."""
    meant = nearest(value, words_of(annotation)) if isinstance(value, str) else None
    return f"give {wanted(annotation, limits)}" + ("" if meant is None else f'; did you mean "{meant}"?')


def _no_such_field(name: str, section: type[BaseModel], whole: type[BaseModel], path: list[str]) -> str:
    meant = nearest(name, section.model_fields)
    here = [] if meant is None else [".".join([*path, meant])]
    elsewhere = [
        f"{table}.{name}"
        for table, info in whole.model_fields.items()
        if _is_section(info.annotation) and name in info.annotation.model_fields  # type: ignore[union-attr]
    ]
    if here or elsewhere:
        return f"there is no such field; did you mean {either([*here, *elsewhere])}?"
    if path and len(section.model_fields) <= _FEW:
        return f"there is no such field; there are {', '.join(section.model_fields)}"
    return (
        "there is no such field; those of a method, such as rounds, stand in [method], "
        "and `dualfed init` writes a file with all of them"
    )
