"""One run that a study asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ... import __version__
from ..config import RunConfig, parse

# Where and how a run is carried out; its numbers do not depend on these.
_PLACE = {"engine", "actors", "name", "checkpoint_every", "tune"}


class Wanted:
    """A run by its configuration, and the labels that tell it from the others of its study.

    Args:
        labels: columns of the study's frames, such as ``{"clients": 30, "seed": 0}``. They may not carry the name of a
            measure (``measures.MEASURES``).
        tables: the configuration's tables; the engine is ``inline`` unless they say otherwise.

    Raises:
        InvalidValue: a value of the configuration is wrong.
    """

    def __init__(self, labels: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        from .measures import MEASURES

        if taken := set(labels) & set(MEASURES):
            raise ValueError(f"labels may not be called {', '.join(sorted(taken))}: those are measures")
        self.labels = dict(labels)
        self.config: RunConfig = parse({"engine": "inline", **tables})

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of all that a run's numbers depend on; the same run has the same digest in every study."""
        facts = [__version__, self.config.model_dump(mode="json", exclude=_PLACE), _own_source(self.config)]
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()

    @property
    def folder_name(self) -> str:
        """The folder of the run below that of its study's runs."""
        return f"{self.config.name}-{self.digest}"


def _own_source(config: RunConfig) -> str | None:
    """The text of the user's file that a method comes from: a changed method is another run."""
    from ...algorithms.own_file import source_of

    return source_of(str(config.method.get("name", "")))
