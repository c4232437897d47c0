"""The files of the live page, and of the licences of those that others wrote."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
