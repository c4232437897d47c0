"""From what a person typed to a configuration: presets, TOML files, and ``--set key=value``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidValue
from .presets import preset, preset_names

Tables = dict[str, Any]


def read_source(source: str) -> Tables:
    """The tables of a preset or of a TOML file. ``data.path`` and a method's own file are relative to that file's folder.

    Raises:
        InvalidValue: no such preset or file, or a file that is not TOML.
    """
    path = Path(source)
    if source in preset_names():
        return preset(source)
    if not path.is_file():
        if path.suffix == ".toml" or len(path.parts) > 1:
            raise InvalidValue("FILE", source, "is not a file that exists; `dualfed init` writes one")
        return preset(source)  # which raises, naming the presets there are
    tables = _parsed(path)
    return _absolute(tables, path.parent.absolute())


def with_settings(tables: Tables, settings: Sequence[str]) -> Tables:
    """``tables`` with every ``key=value`` of ``settings`` put in; keys are dotted, values are TOML or else plain text.

    Raises:
        InvalidValue: no ``=``, an empty key, or a key below something that is no table.
    """
    changed = _copied(tables)
    for setting in settings:
        key, equals, text = setting.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise InvalidValue("--set", setting, "give key=value, such as privacy.epsilon=3")
        table = changed
        for depth, part in enumerate(parts[:-1], 1):
            below = table.setdefault(part, {})
            if not isinstance(below, dict):
                raise InvalidValue(
                    "--set", setting, f"{'.'.join(parts[:depth])} is {below!r} here, not a table; set it as a whole"
                )
            table = below
        table[parts[-1]] = parse_value(text.strip())
    return changed


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself where it is none: ``3`` is a number, ``ray`` a word."""
    try:
        tables = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return tables["value"] if list(tables) == ["value"] else text


def absolute_data_path(tables: Tables) -> Tables:
    """Paths of data and traces made absolute, so that the run's folder can be resumed from anywhere."""
    return _absolute(tables, Path.cwd())


def _absolute(tables: Tables, folder: Path) -> Tables:
    """``tables`` with the paths of files to read taken from ``folder``."""
    changed = _copied(tables)
    for section, field in (("data", "path"), ("topology", "path"), ("time", "trace"), ("time", "churn_trace")):
        table = changed.get(section)
        if isinstance(table, dict) and isinstance(given := table.get(field), str):
            table[field] = str(folder / Path(given).expanduser())
    method = changed.get("method")
    if isinstance(method, dict) and isinstance(name := method.get("name"), str) and ".py:" in name:
        method["name"] = str(folder / Path(name).expanduser())
    return changed


def _parsed(path: Path) -> Tables:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        raise InvalidValue(
            "FILE", str(path), f"is not TOML: {message[0].lower()}{message[1:]}; correct it there"
        ) from None
    except UnicodeDecodeError:
        raise InvalidValue("FILE", str(path), "is not UTF-8 text; TOML files are") from None
    except OSError as error:
        raise InvalidValue("FILE", str(path), f"cannot be read: {error.strerror}") from None


def _copied(tables: Mapping[str, Any]) -> Tables:
    return {name: _copied(value) if isinstance(value, dict) else value for name, value in tables.items()}
