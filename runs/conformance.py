"""The conformance suite as a matrix: methods × checks, and what each says."""

from __future__ import annotations

import dataclasses
import functools
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..algorithms import conformance
from ..algorithms.method import Method
from ..algorithms.registry import make_method, method_class
from ..errors import DualfedError, InvalidValue
from .simulate import resume, simulate

PASSES = "passes"

# Small enough for clients of a dozen records; those that a method does not have are left out.
_SMALL: dict[str, Any] = {"rounds": 4, "participants": 2, "local_steps": 2, "batch_size": 3, "chunk": 4, "clip": 1.0}
_WORLD: dict[str, Any] = {
    "name": "conformance",
    "engine": "inline",
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "data": {"name": "synthetic", "records": 150, "features": 5, "classes": 3, "bias": False},
    "partition": {"scheme": "quantity", "clients": 4, "min_size": 12},
    "topology": {"kind": "ring"},
}


def conformance_matrix(
    names: Sequence[str], settings: Mapping[str, Any] | None = None, ray: bool = False
) -> pd.DataFrame:
    """One row a check, one column a method: ``passes``, ``fails: …``, or why it is not asked.

    Args:
        names: methods as a configuration names them, files of a user's own included.
        settings: parameters that every method which has them gets, over the suite's own small ones.
        ray: also compare the engines, which starts a cluster.

    Raises:
        InvalidValue: no such method, or parameters that it cannot take.
    """
    columns = {name: _column(name, settings or {}, ray) for name in names}
    checks = list(dict.fromkeys(check for column in columns.values() for check in column))
    return pd.DataFrame(
        {
            "check": checks,
            **{name: [column.get(check, "not asked") for check in checks] for name, column in columns.items()},
        }
    )


def _column(name: str, settings: Mapping[str, Any], ray: bool) -> dict[str, str]:
    chosen = method_class(name)
    known = {field.name for field in dataclasses.fields(chosen)}  # type: ignore[arg-type]
    values = {"name": name, **{key: value for key, value in {**_SMALL, **settings}.items() if key in known}}
    make_method(values)
    make = functools.partial(make_method, values)
    private = bool(getattr(chosen, "private", True))
    found: dict[str, str] = {}
    for words, check in _of_tensors(make, chosen.family, private).items():
        found[words] = _said(check)
    for words, run in _of_runs(values, private, ray).items():
        found[words] = _said(run)
    if not ray:
        found["inline and Ray alike"] = "not asked: it starts a cluster; --ray asks it"
    return found


def _of_tensors(make: Callable[[], Any], family: str, private: bool) -> dict[str, Callable[[], object]]:
    """The checks on the method's functions, by what they say of it."""
    words = {
        "shapes, one client and several": "shapes",
        "unequal clients, grouped in any way": "grouping",
        "same keys, same bits": "determinism",
        "nothing leaves but by the gate": "releases_only",
    }
    infix = "" if family == "server" else "graph_"
    checks: dict[str, Callable[[], object]] = {
        said: functools.partial(getattr(conformance, f"check_{infix}{name}"), make) for said, name in words.items()
    }
    checks["costs known beforehand"] = functools.partial(conformance.check_events, make)
    if family == "graph":
        checks["silent clients move by public terms"] = functools.partial(conformance.check_silence, make)
    if private:
        noise = conformance.check_noise if family == "server" else conformance.check_graph_noise
        checks["one release a grant, noised"] = functools.partial(noise, make, 1.0)
    elif (refuses := getattr(conformance, "check_refuses_privacy", None)) is not None:
        checks["refuses to promise privacy"] = functools.partial(refuses, make)
    return checks


def _of_runs(values: Mapping[str, Any], private: bool, ray: bool) -> dict[str, Callable[[], object]]:
    """The checks on whole runs, by what they say."""
    privacy = {"mode": "noise-multiplier", "noise_multiplier": 1.0} if private else {"mode": "none"}
    tables = {**_WORLD, "method": dict(values), "privacy": privacy}
    found: dict[str, Callable[[], object]] = {
        "N = 1": functools.partial(_few, tables, 1),
        "N = 2": functools.partial(_few, tables, 2),
        "any layout, same model": functools.partial(_layouts, tables),
        "stopped and resumed, same charges": functools.partial(_resumed, tables),
        "as many charges as releases": functools.partial(_charges, tables),
    }
    return found | ({"inline and Ray alike": functools.partial(_engines, tables)} if ray else {})


def _said(check: Callable[[], object]) -> str:
    try:
        said = check()
    except InvalidValue as error:
        return f"refused: {error}"
    except (AssertionError, DualfedError) as error:
        return f"fails: {_first_line(error)}"
    except Exception as error:
        return f"fails: {type(error).__name__}: {_first_line(error)}"
    return said if isinstance(said, str) else PASSES


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _few(tables: Mapping[str, Any], clients: int) -> None:
    few = {**tables, "partition": {"clients": clients}, "method": _with_participants(tables, clients)}
    if clients < 3:
        few["topology"] = {"kind": "path"}
    result = simulate(few, keep=False)
    assert np.isfinite(result.model).all()
    assert len(result.clients) == clients


def _with_participants(tables: Mapping[str, Any], clients: int) -> dict[str, Any]:
    method: dict[str, Any] = dict(tables["method"])
    return method | ({"participants": min(method["participants"], clients)} if method.get("participants") else {})


def _layouts(tables: Mapping[str, Any]) -> None:
    one, each = (simulate({**tables, "actors": {"clients_per_actor": size}}, keep=False) for size in (4, 1))
    np.testing.assert_allclose(one.model, each.model, rtol=1e-9, atol=1e-12)
    assert one.clients["epsilon"].tolist() == each.clients["epsilon"].tolist()


def _charges(tables: Mapping[str, Any]) -> None:
    result = simulate(tables, keep=False)
    charged, released = int(result.clients["releases"].sum()), int(result.timing["released"].sum())
    assert charged == released, f"{charged} charges for {released} releases"


def _resumed(tables: Mapping[str, Any]) -> str | None:
    if threading.current_thread() is not threading.main_thread():
        return "not asked: stopping needs the main thread"

    def stop(event: dict[str, Any]) -> None:
        if event["kind"] == "round" and event["round"] == 2:
            signal.raise_signal(signal.SIGINT)

    with tempfile.TemporaryDirectory(prefix="dualfed-conformance-") as folder:
        cut = Path(folder) / "run"
        stopped = simulate(tables, out=cut, listen=stop)
        assert stopped.ending == "stopped", f"a stop was asked for, and the run is {stopped.ending}"
        again = resume(cut)
        whole = simulate(tables, keep=False)
    # The noise is not that of the whole run: a grant that was voided by the stop is never used again.
    assert again.summary["rounds_done"] == whole.summary["rounds_done"]
    assert again.clients["releases"].tolist() == whole.clients["releases"].tolist(), "charges differ"
    assert again.clients["epsilon"].tolist() == whole.clients["epsilon"].tolist(), "ε differs"
    assert np.isfinite(again.model).all()
    return None


def _engines(tables: Mapping[str, Any]) -> None:
    one = simulate(tables, keep=False)
    other = simulate({**tables, "engine": "ray", "actors": {"cpus": 2}}, keep=False)
    np.testing.assert_allclose(one.model, other.model, rtol=1e-9, atol=1e-12)
    assert one.clients["epsilon"].tolist() == other.clients["epsilon"].tolist(), "ε differs"


def failures(matrix: pd.DataFrame) -> int:
    """How many cells say that a check fails."""
    cells = matrix.drop(columns="check").to_numpy().ravel()
    return int(sum(str(cell).startswith("fails") for cell in cells))


def all_methods() -> list[str]:
    """Every method that has a name here."""
    from ..algorithms.registry import method_names

    return [name for name in method_names() if issubclass(method_class(name), Method)]
