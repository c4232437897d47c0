"""Brings about the runs of a study, each once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DualfedError, InvalidValue
from .measures import measures
from .results import Study
from .wanted import Wanted
from .work import FINISHED, Reply, ending_of
from .workers import Task, carried_out

Say = Callable[[str], None]
Carry = Callable[[Sequence[Task], int], Iterator[tuple[int, Reply]]]
_RUNS = "runs"


class StudyStopped(DualfedError):
    """Somebody stopped a study. What is finished is kept, and the same command goes on."""


@dataclass(frozen=True)
class Refused:
    """A run that cannot be: the sentence says which value of its configuration is at fault."""

    field: str
    value: Any
    cure: str

    def error(self) -> InvalidValue:
        """The error that the run raised."""
        return InvalidValue(self.field, self.value, self.cure)


def carry_out(
    wanted: Iterable[Wanted],
    folder: Path,
    *,
    jobs: int = 1,
    keep_refusals: bool = False,
    say: Say | None = None,
    carry: Carry = carried_out,
) -> Study:
    """Bring about every run of ``wanted`` below ``FOLDER/runs``.

    A run that is finished there is read, one that was interrupted goes on from its checkpoint. Runs that two entries
    have in common take place once.

    Args:
        jobs: worker processes; 1 runs in this process.
        keep_refusals: note a configuration that cannot be run in the study's ``faults``, and go on with the others.
        say: called with a line for every run that ends.
        carry: who carries the tasks out, in place of worker processes.

    Raises:
        InvalidValue: a configuration cannot be run, or the folder cannot be written.
        StudyStopped: somebody stopped it.
    """
    entries = list(wanted)
    root = _made(folder) / _RUNS
    each = {entry.digest: entry for entry in entries}
    todo = [entry for entry in each.values() if ending_of(root / entry.folder_name) not in FINISHED]
    tell = say or (lambda _line: None)
    if len(todo) < len(each):
        tell(f"{len(each) - len(todo)} of {len(each)} runs are finished in {folder} already")
    tasks = [Task(_plain(entry), root / entry.folder_name) for entry in todo]
    faults: dict[str, str] = {}
    with closing(carry(tasks, jobs)) as replies:  # type: ignore[type-var]
        for done, (index, reply) in enumerate(replies, 1):
            entry = todo[index]
            if "refused" in reply:
                refused = Refused(*reply["refused"])
                if not keep_refusals:
                    raise refused.error()
                faults[entry.digest] = f"refused: {refused.error()}"
            elif "failed" in reply:
                faults[entry.digest] = f"failed: {reply['failed']}"
                _note(root / f"{entry.folder_name}.failed.txt", reply)
            elif reply["ending"] == "stopped":
                raise StudyStopped(
                    f"stopped after {done - 1} of {len(todo)} runs; nothing is lost, and the same command goes on"
                )
            tell(_line(done, len(todo), entry, root, faults.get(entry.digest)))
    return Study(folder, entries, faults)


def _plain(entry: Wanted) -> dict[str, Any]:
    tables: dict[str, Any] = entry.config.model_dump(mode="json", exclude_none=True)
    return tables


def _made(folder: Path) -> Path:
    if (folder / "config.toml").exists():
        raise InvalidValue("--out", str(folder), "holds a run, whose report would be overwritten; give another folder")
    try:
        (folder / _RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        cure = f"this folder cannot be made: {error.strerror}; give one that you may write"
        raise InvalidValue("--out", str(folder), cure) from None
    return folder


def _note(path: Path, reply: Reply) -> None:
    path.write_text(reply.get("trace") or json.dumps(reply), encoding="utf-8")


def _line(done: int, count: int, entry: Wanted, root: Path, fault: str | None) -> str:
    from ..results import load_result
    from ..statement import epsilon_text

    labels = ", ".join(f"{name} {value}" for name, value in entry.labels.items())
    if fault is not None:
        return f"{done} of {count}  {labels}: {fault}"
    row = measures(load_result(root / entry.folder_name))
    score = (
        f"accuracy {100 * row['accuracy']:.1f} %" if row["accuracy"] == row["accuracy"] else f"loss {row['loss']:.4g}"
    )
    spent = "no noise" if row["epsilon_is"] == "no noise" else f"ε {epsilon_text(row['epsilon'], row['epsilon_is'])}"
    return f"{done} of {count}  {labels}: {score}, {spent}, {row['seconds']:.1f} s"
