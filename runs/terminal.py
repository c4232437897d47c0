"""The console that tables are printed on."""

from __future__ import annotations

import sys

from rich.console import Console

_WIDE = 160


def wide_console() -> Console:
    """As wide as the terminal; wide enough for a table of many columns where the output goes to a file or a pipe."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDE)
