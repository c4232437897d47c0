"""The conformance suite as a matrix: a row a method, a column a check, and what each says."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd

from ..algorithms import conformance as suite
from ..algorithms.method import Method
from ..algorithms.registry import make_method, method_class, method_names
from ..errors import DualfedError, InvalidValue
from . import conformance_runs as runs

PASSES = "passes"
COLUMNS = {
    "shapes": "state and uploads keep shape and type, for one client and several; the server's state and the exchange too",
    "unequal": "clients of unequal size, computed in any grouping: the same numbers",
    "N=1": "a run with one client",
    "N=2": "a run with two",
    "seed": "the same keys and the same run twice: the same bits; global generators untouched",
    "layouts": "one, two and four actors: the same states and ε",
    "gate": "with the gate's answers fixed, nothing that leaves depends on data, nor the state where that is promised",
    "known": "every round's cost and bound are known beforehand, in the method's unit and status",
    "noise": "one release a grant, noised; a reference without noise refuses a run that asks for privacy",
    "charges": "charges are, client by client, the grants under which something left through the gate",
    "resume": "stopped and resumed: the same charges and ε; without noise and draws the same states",
    "lost": "a host lost after its work: the states of a run in which its clients were silent, and their charge stands",
    "deadline": "late clients stay as their last used release left them, and are charged",
    "over-select": "the same where one client more begins",
    "async": "every start is charged once; nothing is staler than allowed",
    "barrier": "with delays: the same numbers; who drops out is silent, and charged",
    "neighbour": "the same where a client waits for its neighbours alone",
    "lossy": "by edges, without and with lost messages",
    "ray": "processes of their own: the same model and ε; one that is killed costs its charge",
}
REASONS = {
    "graph": "a method over a graph has no server that could go on without a client",
    "server": "a method with a server has no neighbours",
    "own choice": "the method chooses its clients itself, in every round",
    "opens": "the method releases its records once, before the rounds; an asynchronous server has none",
    "no edges": "the method has no form by edges, so that its messages cannot be lost one by one",
    "--ray": "it starts a cluster; --ray asks it",
    "charges alone": "its rounds draw batches or directions under their grants, and a grant that a stop voids is never used "
    "again: charges and ε are alike, the states cannot be",
    "main thread": "stopping a run by a signal needs the main thread",
}

# Small enough for clients of a dozen records; those that a method does not have are left out.
_SMALL: dict[str, Any] = {"rounds": 4, "participants": 2, "local_steps": 2, "batch_size": 3, "chunk": 4, "clip": 1.0}
_Check = Callable[[], object]
_Asked = dict[str, list[_Check] | str]


def conformance_matrix(
    names: Sequence[str], settings: Mapping[str, Any] | None = None, ray: bool = False
) -> pd.DataFrame:
    """A row a method, with the column ``method`` and those of ``COLUMNS``: ``passes``, ``fails: …``, ``refused: …``, or a
    word of ``REASONS`` why something is not asked.

    Args:
        names: methods as a configuration names them, files of a user's own included.
        settings: parameters that every method which has them gets, over the suite's own small ones.
        ray: also compare the engines, which starts a cluster.

    Raises:
        InvalidValue: no such method, or parameters that it cannot take.
    """
    given = [_given(name, settings or {}) for name in names]
    for field, value in (settings or {}).items():
        if not any(field in values for values in given):
            raise InvalidValue(f"method.{field}", value, f"none of the methods asked for has it: {', '.join(names)}")
    with _cluster(ray):
        rows = [{"method": values["name"], **_row(values, ray)} for values in given]
    return pd.DataFrame(rows, columns=["method", *COLUMNS])


def failures(matrix: pd.DataFrame) -> int:
    """How many cells say that a check fails."""
    return sum(cell.startswith("fails") for _, _, cell in _cells(matrix))


def all_methods() -> list[str]:
    """Every method that has a name here."""
    return [name for name in method_names() if issubclass(method_class(name), Method)]


def shown(matrix: pd.DataFrame) -> pd.DataFrame:
    """The matrix for a table: ✓, a word, or ``fails`` and ``refused`` without their sentence."""
    columns = matrix.columns.drop("method")
    short = matrix[columns].map(lambda cell: "✓" if cell == PASSES else cell.split(":")[0])
    return pd.concat([matrix[["method"]], short], axis=1)


def sentences(matrix: pd.DataFrame) -> list[str]:
    """What does not fit into a table: why checks fail or refuse, and what the words mean that stand in it."""
    told = [f"{method}, {column}: {cell}" for method, column, cell in _cells(matrix) if ": " in cell]
    used = {cell for _, _, cell in _cells(matrix)}
    return told + [f"{word}: {meaning}" for word, meaning in REASONS.items() if word in used]


def _cells(matrix: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    for row in matrix.to_dict("records"):
        yield from ((str(row["method"]), str(name), str(cell)) for name, cell in row.items() if name != "method")


@contextmanager
def _cluster(ray: bool) -> Iterator[None]:
    if not ray:
        yield
        return
    from ..actors.cluster import local_cluster

    with local_cluster(2):
        yield


def _given(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a small method, known to be one that it can take."""
    chosen = method_class(name)
    known = {field.name for field in dataclasses.fields(chosen)}  # type: ignore[arg-type]
    if chosen.family == "server":  # there a clip is a method's own choice; over a graph privacy needs one
        known -= {"clip"} - set(settings)
    values = {"name": name, **{key: value for key, value in {**_SMALL, **settings}.items() if key in known}}
    make_method(values)
    return values


def _row(values: dict[str, Any], ray: bool) -> dict[str, str]:
    make = functools.partial(make_method, values)
    method = make()
    privacy = {"mode": "noise-multiplier", "noise_multiplier": 1.0} if method.private else {"mode": "none"}
    tables = {**runs.WORLD, "method": values, "privacy": privacy}
    graph = method.family == "graph"
    asked: _Asked = {
        **(_of_graph_functions if graph else _of_server_functions)(make, tables, method.private),
        **_of_runs(tables),
        **(_of_graphs if graph else _of_servers)(tables, method),
        "ray": _each((runs.engines, runs.killed_process), tables) if ray else "--ray",
    }
    return {column: checks if isinstance(checks, str) else _said(checks) for column, checks in asked.items()}


def _of_server_functions(make: Callable[[], Any], tables: runs.Tables, private: bool) -> _Asked:
    noise: list[_Check] = [functools.partial(suite.check_noise, make, 1.0)]
    if not private:
        noise = [*_each((suite.check_refuses_privacy,), make), *_each((runs.refuses_privacy,), tables)]
    return {
        "shapes": _each((suite.check_shapes, suite.check_server), make),
        "unequal": _each((suite.check_grouping,), make),
        "seed": [functools.partial(suite.check_determinism, make), functools.partial(runs.same_seed, tables)],
        "gate": _each((suite.check_releases_only,), make),
        "known": _each((suite.check_events,), make),
        "noise": noise,
        "lost": _each((runs.lost_client,), tables),
    }


def _of_graph_functions(make: Callable[[], Any], tables: runs.Tables, private: bool) -> _Asked:
    noise: list[_Check] = [functools.partial(suite.check_graph_noise, make, 1.0)]
    return {
        "shapes": _each((suite.check_graph_shapes, suite.check_mixing_matrix), make),
        "unequal": _each((suite.check_graph_grouping,), make),
        "seed": [functools.partial(suite.check_graph_determinism, make), functools.partial(runs.same_seed, tables)],
        "gate": _each((suite.check_graph_releases_only,), make),
        "known": _each((suite.check_events,), functools.partial(suite.settled, make)),
        "noise": noise + ([] if private else _each((runs.refuses_privacy,), tables)),
        "lost": [functools.partial(suite.check_silence, make), functools.partial(runs.lost_client, tables)],
    }


def _of_runs(tables: runs.Tables) -> _Asked:
    return {
        "N=1": [functools.partial(runs.few_clients, tables, 1)],
        "N=2": [functools.partial(runs.few_clients, tables, 2)],
        "layouts": _each((runs.layouts,), tables),
        "charges": _each((runs.charges,), tables),
        "resume": _each((runs.resumed,), tables),
    }


def _of_servers(tables: runs.Tables, method: Any) -> _Asked:
    over, deadline = {"kind": "over-select", "extra": 1}, {"kind": "deadline", "deadline_s": 0.8}
    own = method.participation(method.rounds, runs.CLIENTS, 0) is not None
    return {
        "deadline": [functools.partial(runs.late_clients, tables, deadline)],
        "over-select": "own choice" if own else [functools.partial(runs.late_clients, tables, over)],
        "async": "opens" if method.opens else _each((runs.asynchronous,), tables),
        **dict.fromkeys(("barrier", "neighbour", "lossy"), "server"),
    }


def _of_graphs(tables: runs.Tables, method: Any) -> _Asked:
    return {
        **dict.fromkeys(("deadline", "over-select", "async"), "graph"),
        **{kind: [functools.partial(runs.waiting_neighbours, tables, kind)] for kind in ("barrier", "neighbour")},
        "lossy": _each((runs.lost_messages,), tables) if method.per_edge else "no edges",
    }


def _each(checks: Sequence[Callable[[Any], object]], given: Any) -> list[_Check]:
    return [functools.partial(check, given) for check in checks]


def _said(checks: Sequence[_Check]) -> str:
    """``passes`` if all do, or what the first says that does not."""
    for check in checks:
        try:
            said = check()
        except InvalidValue as error:
            return f"refused: {error}"
        except (AssertionError, DualfedError) as error:
            return f"fails: {_first_line(error)}"
        except Exception as error:
            return f"fails: {type(error).__name__}: {_first_line(error)}"
        if isinstance(said, str):
            return said
    return PASSES


def _first_line(error: BaseException) -> str:
    """An error's first line that says something; numpy puts its own words first and ours after."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines[:2] if not line.startswith(("Not equal to tolerance", "Arrays are not equal"))]
    return (own or lines or [type(error).__name__])[0]
