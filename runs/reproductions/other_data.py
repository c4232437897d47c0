"""A reproduction on the data of somebody's own configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..comparison.entries import read_one
from ..config import RunConfig
from ..study import Wanted


def with_data(planned: Sequence[Wanted], given: str | Path | RunConfig) -> list[Wanted]:
    """``planned`` with the ``data`` and ``problem`` of a configuration, and its ``partition`` where the runs leave it open.

    Runs that all deal records out alike take the given partition whole; where only the scheme differs between them, they
    take its number of clients; where they differ in that, theirs stay. Test records are the same for all seeds.

    Raises:
        InvalidValue: the configuration is wrong, or the runs cannot be on such data.
    """
    _, config = read_one(given)
    theirs: dict[str, Any] = config.model_dump(mode="json", exclude_unset=True)
    of_all = [entry.config.model_dump(mode="json", exclude_unset=True) for entry in planned]
    partitions = [tables["partition"] for tables in of_all]
    alike = all(each == partitions[0] for each in partitions)
    counts = {each.get("clients") for each in partitions}
    found = []
    for entry, tables in zip(planned, of_all):
        held_out = {name: value for name, value in tables["data"].items() if name == "validation"}
        changed = {**tables, "data": {"seed": 0, **theirs.get("data", {}), **held_out}}
        changed["problem"] = theirs.get("problem", tables.get("problem", {}))
        if alike and "partition" in theirs:
            changed["partition"] = theirs["partition"]
        elif len(counts) == 1 and "clients" in theirs.get("partition", {}):
            changed["partition"] = {**tables["partition"], "clients": theirs["partition"]["clients"]}
        found.append(Wanted(entry.labels, changed))
    return found
