"""What a page is made of, and its text as HTML. Everything is escaped; nothing is loaded from anywhere."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from ... import __version__
from ...errors import InvalidValue
from ..tables import cell

Tone = Literal["", "statement", "warning"]


@dataclass(frozen=True)
class Text:
    """A paragraph. ``statement`` and ``warning`` stand out."""

    text: str
    tone: Tone = ""
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Table:
    """A table of texts; ``right`` says which columns are set to the right."""

    columns: list[str]
    rows: list[list[str]]
    right: list[bool]
    caption: str = ""
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Picture:
    """An image that is part of the page, as a data URL, and its caption."""

    source: str
    caption: str
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Code:
    """Text as it is, folded away unless ``open``."""

    text: str
    caption: str
    open: bool = False
    kind: ClassVar[str] = "code"


Block = Text | Table | Picture | Code


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    sections: Sequence[Section]


def table(frame: pd.DataFrame, caption: str = "") -> Table:
    """A frame as a table; columns of numbers are set to the right."""
    right = [bool(pd.api.types.is_numeric_dtype(frame[name])) for name in frame.columns]
    rows = [[cell(value) for value in row] for row in frame.itertuples(index=False)]
    return Table([str(name) for name in frame.columns], rows, right, caption)


def facts(pairs: Mapping[str, Any], names: tuple[str, str] = ("", ""), caption: str = "") -> Table:
    """Names and values in two columns."""
    return Table(list(names), [[name, cell(value)] for name, value in pairs.items()], [False, False], caption)


def picture(path: Path, caption: str) -> Picture:
    """An image file, PNG or SVG, as part of the page."""
    kind = {".svg": "svg+xml", ".png": "png"}[path.suffix]
    return Picture(f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}", caption)


def html(page: Page) -> str:
    """The page as HTML."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = (files(__package__) / "page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(page=page, version=__version__)


def write_page(page: Page, path: Path) -> Path:
    """Write the page as a whole; the path. Raises InvalidValue if it cannot be written."""
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(html(page), encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise InvalidValue("RUN", str(path), f"the page cannot be written: {error.strerror}") from None
    return path
