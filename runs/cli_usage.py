"""What is said where a command line cannot be read: one sentence, as for every other mistake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import typer

from ..errors import InvalidValue
from ..wanted import nearest, wanted

Misused: Any = typer.BadParameter.__base__
"""What typer raises where it cannot read a command line."""


def usage_sentence(error: Any) -> str:
    """The sentence for what typer raised, whose own are about types and several lines long."""
    command = "dualfed" if error.ctx is None else error.ctx.command_path
    param = getattr(error, "param", None)
    if hasattr(error, "param_type") and param is not None:
        return str(InvalidValue(_name(param), None, _help(param) + f"; `{command} --help` says more"))
    errors = getattr(error.__cause__, "errors", None)
    if param is not None and errors is not None:
        limits = [SimpleNamespace(ge=param.min, le=param.max)]
        return str(InvalidValue(_name(param), errors()[0]["input"], f"give {wanted(_type(param), limits)}"))
    if hasattr(error, "possibilities"):
        known = [name for each in error.ctx.command.params for name in each.opts if name.startswith("-")]
        return f"{error.option_name} is no option of `{command}`: {_meant(error.option_name, known)}`{command} --help` lists them"
    words = _plain(error.format_message())
    if error.ctx is None:  # raised while the words were taken apart: which command they are for is not said
        return words
    return f"{words}{' ' if words.endswith('?') else '; '}`{command} --help` says what there is"


def _name(param: Any) -> str:
    return str(max(param.opts, key=len)) if param.param_type_name == "option" else str(param.metavar or param.name)


def _help(param: Any) -> str:
    words = str(param.help).partition(";")[0]
    return f"give {words[0].lower()}{words[1:].rstrip('.')}"


def _type(param: Any) -> Any:
    return getattr(getattr(param, "type_descriptor", None), "annotation", None)


def _meant(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return "" if near is None else f"did you mean {near}? "


def _plain(message: str) -> str:
    return message[0].lower() + message[1:].rstrip(".").replace(". D", "; d")
