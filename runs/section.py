"""What the tables of a configuration have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the file: frozen, and no key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
