"""Methods in a user's own file or module: ``my_file.py:MyMethod`` or ``package.module:MyMethod``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from ..errors import InvalidValue
from .method import GraphMethod, Method, ServerMethod

MODULES = "dualfed_own_"
"""How the modules made from files are called; processes that receive an object of theirs need its code with it."""

_PLACES: dict[type[Method], str] = {}


def is_place(name: str) -> bool:
    """Whether a method's name says where its class is: a file or a module, a colon, and the class."""
    return ":" in name


def place_of(method: type[Method]) -> str | None:
    """The name by which a method of a user's own was asked for; None for any other."""
    return _PLACES.get(method)


def source_of(name: str) -> str | None:
    """The text of the file that ``name`` points into; None where it points into none."""
    path = _file(name)
    return path.read_text(encoding="utf-8", errors="replace") if path is not None and path.is_file() else None


def own_method(name: str) -> type[Method]:
    """The class at a place.

    Raises:
        InvalidValue: no such file, module or class, one that does not load, or one that is no method.
    """
    where, _, attribute = name.rpartition(":")
    if not where or not attribute.isidentifier():
        raise InvalidValue("method.name", name, 'give "my_file.py:MyMethod" or "package.module:MyMethod"')
    path = _file(name)
    module = _module(name, where) if path is None else _loaded(name, path)
    found = getattr(module, attribute, None)
    if not (inspect.isclass(found) and issubclass(found, ServerMethod | GraphMethod)) or inspect.isabstract(found):
        classes = [
            key
            for key, value in vars(module).items()
            if inspect.isclass(value) and issubclass(value, ServerMethod | GraphMethod)
            and value.__module__ == module.__name__
        ]  # fmt: skip
        there = f"it has {', '.join(sorted(classes))}" if classes else "it has none"
        cure = f"{where} has no class {attribute} that is a ServerMethod or GraphMethod with all its parts; {there}"
        raise InvalidValue("method.name", name, cure)
    _PLACES[found] = name if path is None else f"{path}:{attribute}"
    return found


def _file(name: str) -> Path | None:
    where = name.rpartition(":")[0]
    return Path(where).expanduser().absolute() if where.endswith(".py") else None


def _module(name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except ImportError as error:
        raise InvalidValue("method.name", name, f"module {where} cannot be imported: {error}") from None


def _loaded(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidValue("method.name", name, f"{path} is not a file that exists")
    text = path.read_bytes()
    called = MODULES + hashlib.blake2b(str(path).encode() + b"\0" + text, digest_size=8).hexdigest()
    if called in sys.modules:
        return sys.modules[called]
    spec = importlib.util.spec_from_file_location(called, path)
    if spec is None or spec.loader is None:
        raise InvalidValue("method.name", name, f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[called]
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidValue("method.name", name, f"{path} does not load: {type(error).__name__}: {first}") from None
    return module
