"""The ``[topology]`` table of a run's file: which graph joins the clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from ..errors import InvalidValue
from ..section import Section, refusal

Kind = Literal[
    "ring",
    "path",
    "star",
    "complete",
    "grid",
    "torus",
    "hypercube",
    "exponential",
    "erdos-renyi",
    "random-geometric",
    "watts-strogatz",
    "barabasi-albert",
    "random-regular",
    "edge-list",
    "graphml",
]

_USES: dict[str, frozenset[str]] = {
    "grid": frozenset({"rows", "cols"}),
    "torus": frozenset({"rows", "cols"}),
    "erdos-renyi": frozenset({"p"}),
    "random-geometric": frozenset({"radius"}),
    "watts-strogatz": frozenset({"degree", "rewire"}),
    "barabasi-albert": frozenset({"attach"}),
    "random-regular": frozenset({"degree"}),
    "edge-list": frozenset({"path"}),
    "graphml": frozenset({"path"}),
}


class TopologyConfig(Section):
    """Which graph. A field left out takes a value that fits the number of clients N.

    Args:
        kind: the family, or the kind of file.
        p: ``erdos-renyi``: probability of each edge; min(1, 2 ln N / N) by default, connected with high probability.
        radius: ``random-geometric``: nodes of the unit square nearer than this are linked; √(2 ln N / (πN)) by default.
        degree: ``random-regular``: neighbours of each node; ``watts-strogatz``: neighbours on the ring before rewiring,
            even. 4 by default, less where N is small.
        rewire: ``watts-strogatz``: probability that an edge is moved; 0.1 by default.
        attach: ``barabasi-albert``: edges that a new node brings; 2 by default, 1 for N = 2.
        rows, cols: ``grid``, ``torus``: the shape; by default the most nearly square one.
        path: ``edge-list``, ``graphml``: the file.
    """

    kind: Kind = "erdos-renyi"
    p: float | None = Field(None, ge=0, le=1)
    radius: float | None = Field(None, gt=0)
    degree: int | None = Field(None, gt=0)
    rewire: float | None = Field(None, ge=0, le=1)
    attach: int | None = Field(None, gt=0)
    rows: int | None = Field(None, gt=0)
    cols: int | None = Field(None, gt=0)
    path: Path | None = None

    @model_validator(mode="after")
    def _fields_of_this_kind(self) -> TopologyConfig:
        used = _USES.get(self.kind, frozenset())
        for field in ("p", "radius", "degree", "rewire", "attach", "rows", "cols", "path"):
            value = getattr(self, field)
            if value is not None and field not in used:
                takes = f"it takes {', '.join(sorted(used))}" if used else "it takes no such field"
                raise InvalidValue(f"topology.{field}", value, f"leave it out: topology.kind = {self.kind!r}: {takes}")
        if self.kind in ("edge-list", "graphml") and self.path is None:
            raise InvalidValue("topology.path", None, f"topology.kind = {self.kind!r} needs the path of its file")
        return self


def parse_topology(values: Mapping[str, Any]) -> TopologyConfig:
    """A checked table. Raises InvalidValue naming the first field that is wrong."""
    try:
        return TopologyConfig.model_validate(dict(values))
    except ValidationError as error:
        raise refusal(error, TopologyConfig, values, "topology") from None
