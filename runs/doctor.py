"""What is wrong with an installation or a cluster, in plain words."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from rich.console import Console
from rich.markup import escape

from ..actors.cluster import leftovers
from ..actors.layout import ACTOR_MEMORY
from ..actors.survey import Machine, machine
from ..errors import InvalidValue

State = Literal["good", "note", "wrong"]

PYTHON = SpecifierSet(">=3.11")
_GIB = 2**30
_FEW_MEMORY = 2 * _GIB
_FEW_SHARED = _GIB // 2
_FEW_DISK = 2 * _GIB
# Two nodes whose versions of these differ cannot exchange objects, or compute other last bits.
_SAME_MINOR = ("torch", "numpy")
_MARKS = {"good": "[green]good ", "note": "[yellow]note ", "wrong": "[bold red]wrong"}


@dataclass(frozen=True)
class Finding:
    """``where`` it was found, what was looked at, and what follows from it."""

    where: str
    what: str
    state: State
    text: str

    def as_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)


def examine(address: str | None = None) -> list[Finding]:
    """Look at this installation and, given its address, at a cluster."""
    here = machine()
    findings = [*_versions(here), *_room(here, "here"), *_temporary(), *_cache(), *_extras()]
    return findings if address is None else findings + _cluster(address, here)


def show_findings(findings: list[Finding], console: Console) -> None:
    """One line a finding, and what to make of them all."""
    for finding in findings:
        where = "" if finding.where == "here" else f"{finding.where}: "
        line = f"{_MARKS[finding.state]}[/]  {escape(where + finding.what)}: {escape(finding.text)}"
        console.print(line, highlight=False, soft_wrap=True)
    wrong = sum(finding.state == "wrong" for finding in findings)
    console.print("Nothing is wrong." if not wrong else f"{wrong} thing{'s are' if wrong > 1 else ' is'} wrong.")


def _versions(here: Machine) -> Iterator[Finding]:
    if Version(here.python) in PYTHON:
        yield Finding("here", "Python", "good", here.python)
    else:
        yield Finding("here", "Python", "wrong", f"{here.python} is too old; install Python 3.11 or newer")
    try:
        listed = requires("dualfed") or []
    except PackageNotFoundError:
        yield Finding("here", "dualfed", "note", "runs from a folder without being installed; versions are not checked")
        return
    for text in listed:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield Finding("here", requirement.name, "wrong", f'is missing; install "{requirement}"')
            continue
        if found in requirement.specifier:
            yield Finding("here", requirement.name, "good", found)
        else:
            yield Finding("here", requirement.name, "wrong", f'{found} is installed; install "{requirement}"')


def _room(there: Machine, where: str) -> Iterator[Finding]:
    yield Finding(where, "cores", "good", f"{there.cores} may be used")
    fitting = int(0.9 * there.memory_free // ACTOR_MEMORY)
    text = f"{there.memory_free / _GIB:.1f} of {there.memory / _GIB:.1f} GiB are free, room for about {fitting} actors"
    few = there.memory_free < _FEW_MEMORY
    yield Finding(where, "memory", "wrong" if few else "good", text + ("; end other programs" if few else ""))
    if there.shared_memory < _FEW_SHARED:
        text = f"/dev/shm has {there.shared_memory / _GIB:.2f} GiB free; Ray will use slower files in {there.temporary}"
        yield Finding(where, "shared memory", "note", f"{text}. In a container, start it with --shm-size=4g")
    else:
        yield Finding(where, "shared memory", "good", f"/dev/shm has {there.shared_memory / _GIB:.1f} GiB free")
    if not there.temporary_writable:
        yield Finding(
            where, "temporary folder", "wrong", f"{there.temporary} cannot be written; set TMPDIR to one that can"
        )
    elif there.temporary_free < _FEW_DISK:
        text = f"{there.temporary} has {there.temporary_free / _GIB:.1f} GiB free; make room, or set TMPDIR elsewhere"
        yield Finding(where, "disk", "wrong", text)
    else:
        yield Finding(where, "disk", "good", f"{there.temporary} has {there.temporary_free / _GIB:.1f} GiB free")
    if there.thread_limit is None and there.cores > 1:
        text = "actors use actors.threads each (default 1); one process (engine = inline) uses one. Nothing to set"
    else:
        text = f"OMP_NUM_THREADS is {there.thread_limit}" if there.thread_limit else "one core, one thread"
    yield Finding(where, "torch threads", "good", text)


def _temporary() -> Iterator[Finding]:
    left = leftovers()
    if left:
        listed = ", ".join(str(path) for path in left[:3]) + (", …" if len(left) > 3 else "")
        yield Finding("here", "leftovers", "note", f"{listed}: of runs that were killed; the next run removes them")
    else:
        yield Finding("here", "leftovers", "good", "no run left anything behind")


def _cache() -> Iterator[Finding]:
    import numba

    given = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    folder = Path(given) if given else Path(__file__).resolve().parents[1] / "algorithms" / "queries"
    fallback = Path.home() / ".cache"
    usable = next(
        (path for path in (folder, fallback, Path.home()) if path.is_dir() and os.access(path, os.W_OK)), None
    )
    if usable is None:
        text = f"neither {folder} nor {fallback} can be written, so each process compiles anew; set NUMBA_CACHE_DIR"
        yield Finding("here", "compiled kernels", "note", text)
    else:
        yield Finding("here", "compiled kernels", "good", f"are kept below {usable}")


def _extras() -> Iterator[Finding]:
    from importlib.util import find_spec

    missing = [name for name in ("aiohttp", "grpc", "opencensus") if find_spec(name) is None]
    if missing:
        text = f'{", ".join(missing)} missing: for job submission and ray:// addresses install "dualfed[cluster]"'
        yield Finding("here", "cluster tools", "note", text)
    else:
        yield Finding("here", "cluster tools", "good", "job submission and ray:// addresses can be used")


def _cluster(address: str, here: Machine) -> list[Finding]:
    from ..actors.cluster import connected
    from ..actors.nodes import nodes, nodes_lost
    from ..actors.survey import survey

    try:
        with connected(address):
            alive = nodes()
            machines, lost = survey(alive), nodes_lost()
    except InvalidValue as error:
        return [Finding(address, "cluster", "wrong", error.cure)]
    findings = [
        Finding(address, "cluster", "good", f"{len(alive)} nodes with {sum(node.cpus for node in alive):g} CPUs answer")
    ]
    findings += [Finding(name, "node", "note", "was lost; hosts that were there are elsewhere now") for name in lost]
    for node, there in zip(alive, machines):
        where = f"{node.name} ({'head' if node.head else node.id[:8]})"
        if isinstance(there, str):
            findings.append(Finding(where, "node", "wrong", f"{there}; look at its firewall and its Ray logs"))
            continue
        findings += [*_same(where, here, there), *_room(there, where)]
    return findings


def _same(where: str, here: Machine, there: Machine) -> Iterator[Finding]:
    if _minor(here.python) != _minor(there.python):
        yield Finding(where, "Python", "wrong", f"{there.python} there, {here.python} here; use the same minor version")
    wrong = False
    for name, found in there.versions.items():
        own = here.versions[name]
        if found is None:
            wrong = True
            yield Finding(where, name, "wrong", "is missing there; the package itself travels, what it needs does not")
        elif found == own or own is None:
            continue
        elif name == "ray" or (name in _SAME_MINOR and _minor(found) != _minor(own)):
            wrong = True
            yield Finding(where, name, "wrong", f"{found} there, {own} here; install the same version on all nodes")
        else:
            yield Finding(where, name, "note", f"{found} there, {own} here")
    if not wrong:
        yield Finding(where, "versions", "good", f"Python {there.python}, ray {there.versions['ray']}, as here")


def _minor(text: str) -> tuple[int, ...]:
    return Version(text).release[:2]
