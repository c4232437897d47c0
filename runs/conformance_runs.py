"""The conformance suite's checks on whole runs: few clients, layouts, charges, resuming, lost clients, stragglers, engines.

Each takes the tables of a small run, raises AssertionError where the method fails, and returns a word where something can
only be shown in part.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..algorithms.registry import method_class
from ..errors import InvalidValue
from .simulate import resume, simulate
from .watched_run import Loss, Watched, watched

Tables = Mapping[str, Any]

CLIENTS = 4
WORLD: dict[str, Any] = {
    "name": "conformance",
    "engine": "inline",
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "data": {"name": "synthetic", "records": 150, "features": 5, "classes": 3, "bias": False},
    "partition": {"scheme": "quantity", "clients": CLIENTS, "min_size": 12},
    "problem": {"regulariser": "l2", "weight": 0.1},
    "topology": {"kind": "ring"},
}
_LOST_ROUND = 3
# Parameters with which methods draw nothing under a grant, so that a round is the same whatever its grant's number is.
_UNDRAWN: tuple[dict[str, Any], ...] = (
    {},
    {"batches": "full"},
    {"batch_size": None},
    {"estimator": "gradient", "batch_size": 1, "chunk": 1000},
)
_DELAYS = {"compute": "exponential", "mean_s": 1.0, "latency_s": 0.1}


def few_clients(tables: Tables, clients: int) -> None:
    """A run with this many clients, in actors of their own, ends as it should."""
    few = {**tables, **_participants(tables, clients), "partition": {"clients": clients}, **_apart(1)}
    if clients < 3:
        few["topology"] = {"kind": "path"}
    run = watched(few)
    assert run.ending == "completed", f"the run is {run.ending}"
    assert np.isfinite(run.model).all(), "the model is not finite"
    assert len(run.clients) == clients
    _charges_are_releases(run)


def same_seed(tables: Tables) -> None:
    """The same run twice gives the same bits."""
    one, other = watched(tables), watched(tables)
    for name, rows in one.states.items():
        np.testing.assert_array_equal(rows, other.states[name], err_msg=f"{name} differs between two runs of one seed")


def layouts(tables: Tables) -> None:
    """One actor for all clients, one for two and one for each give the same states and ε."""
    first, *others = (watched({**tables, **_apart(size)}) for size in (CLIENTS, 2, 1))
    for other in others:
        _alike(first, other, f"{len(other.hosts)} actors")
        assert first.clients["epsilon"].tolist() == other.clients["epsilon"].tolist(), "ε differs between layouts"


def charges(tables: Tables) -> None:
    """The ledger's charges are, client by client, the grants under which something left through the gate."""
    _charges_are_releases(watched({**tables, **_apart(2)}))


def refuses_privacy(tables: Tables) -> None:
    """A method without noise refuses a run that asks for privacy."""
    for mode in ({"mode": "noise-multiplier", "noise_multiplier": 1.0}, {"mode": "total", "epsilon": 1.0}):
        refused = ""
        try:
            watched({**tables, "privacy": mode})
        except InvalidValue as error:
            refused = str(error)
        assert refused.startswith("privacy.mode"), f"adds no noise, and accepts privacy.mode = {mode['mode']!r}"


def resumed(tables: Tables) -> str | None:
    """A run that is stopped and goes on is charged as one that is not, and without noise it comes to the same states."""
    if threading.current_thread() is not threading.main_thread():
        return "main thread"
    # A grant that the stop voids is never used again: with noise or draws the two runs are not the same numbers.
    again, whole = _stopped_and_whole(tables)
    assert again.summary["rounds_done"] == whole.summary["rounds_done"], "rounds are missing"
    assert again.clients["releases"].tolist() == whole.clients["releases"].tolist(), "charges differ"
    assert again.clients["epsilon"].tolist() == whole.clients["epsilon"].tolist(), "ε differs"
    exact = _undrawn(tables)
    if exact is None:
        return "charges alone"
    again, whole = _stopped_and_whole(exact)
    for name, rows in whole.states.items():
        np.testing.assert_allclose(
            again.states[name][-1], rows[-1], rtol=1e-9, atol=1e-12, err_msg=f"{name} differs without noise"
        )
    return None


def lost_client(tables: Tables) -> None:
    """A host that is lost after its clients' work leaves the run in which they were silent in that round, and their charge
    stands: the states of both runs are the same up to that round, the others' charges to the end."""
    everyone = list(range(CLIENTS))
    given = {**tables, **_participants(tables, CLIENTS), **_apart(2)}
    rounds = int(tables["method"]["rounds"])
    lost = watched(given, participation=[everyone] * rounds, lose=Loss(1, _LOST_ROUND))
    gone = lost.hosts[1].tolist()
    present = [[i for i in everyone if t != _LOST_ROUND or i not in gone] for t in range(1, rounds + 1)]
    silent = watched(given, participation=present)
    assert lost.ending == silent.ending == "completed", f"the run is {lost.ending}"
    assert [event["clients"] for event in lost.told("lost")] == [gone], "the loss was not told"
    assert lost.told("rebuilt"), "the host was not rebuilt"
    for name, rows in lost.states.items():
        np.testing.assert_allclose(
            rows[:_LOST_ROUND],
            silent.states[name][:_LOST_ROUND],
            rtol=1e-9,
            atol=1e-12,
            err_msg=f"{name} is not that of a silent client",
        )
    assert np.isfinite(lost.model).all(), "the model is not finite"
    owed = np.isin(everyone, gone) * int(_LOST_ROUND in lost.charged_rounds)
    np.testing.assert_array_equal(lost.charges - silent.charges, owed, err_msg="the charge of what was lost")
    _charges_are_releases(lost)


def late_clients(tables: Tables, policy: Mapping[str, Any]) -> None:
    """With a deadline or over-selection: who is late stays as its last used release left it, its charge stands, and the
    layout decides nothing."""
    late = {**tables, "time": {**_DELAYS, "dropout": 0.1}, "policy": dict(policy)}
    run, other = (watched({**late, **_apart(size)}) for size in (CLIENTS, 1))
    assert run.ending == "completed", f"the run is {run.ending}"
    _alike(run, other, "one client an actor")
    void = [(event["round"], client) for event in run.told("late", "dropped") for client in event["clients"]]
    assert void, "nobody was late: nothing is shown"
    for t, client in void:
        for name, rows in run.states.items():
            if name != "x0" and t > 1:
                now, before = rows[t - 1, client], rows[t - 2, client]
                np.testing.assert_array_equal(now, before, err_msg=f"{name} of a late client")
    unused = np.bincount([client for t, client in void if t in run.charged_rounds], minlength=CLIENTS)
    np.testing.assert_array_equal(run.charges, run.used_grants + unused, err_msg="charges of late clients")


def asynchronous(tables: Tables) -> None:
    """With a server that waits for nobody: every start is charged once, none is staler than allowed, and the layout
    decides nothing."""
    policy = {"kind": "async", "buffer": 2, "staleness": 2}
    given = {**tables, **_participants(tables, 3), "time": dict(_DELAYS), "policy": policy}
    run, other = (watched({**given, **_apart(size)}) for size in (CLIENTS, 1))
    assert run.ending == "completed", f"the run is {run.ending}"
    assert np.isfinite(run.model).all(), "the model is not finite"
    _alike(run, other, "one client an actor")
    _charges_are_releases(run)
    assert run.staleness["staleness"].max() <= 2, "work was used that is too old"


def waiting_neighbours(tables: Tables, kind: str) -> None:
    """Over a graph: waiting for all or for neighbours alone changes clocks, not numbers; a client that drops out is silent
    and its charge stands."""
    plain, timed = watched(tables), watched({**tables, "time": dict(_DELAYS), "policy": {"kind": kind}})
    _alike(plain, timed, "delays")
    dropping = {**tables, "time": {**_DELAYS, "dropout": 0.5}, "policy": {"kind": kind}}
    run, other = (watched({**dropping, **_apart(size)}) for size in (CLIENTS, 1))
    assert run.ending == "completed", f"the run is {run.ending}"
    _alike(run, other, "one client an actor")
    void = [client for event in run.told("dropped") for client in event["clients"]]
    assert void, "nobody dropped out: nothing is shown"
    unused = np.bincount(void, minlength=CLIENTS)
    np.testing.assert_array_equal(run.charges, run.used_grants + unused, err_msg="charges of clients that dropped out")


def lost_messages(tables: Tables) -> None:
    """Over a graph: by edges and with no message lost the numbers are those of the joint form; with some lost the run goes
    on, the layout decides nothing, and nothing else is charged."""
    lossy: dict[str, Any] = {**tables, "time": dict(_DELAYS), "policy": {"kind": "lossy"}}
    whole, joint = watched(lossy), watched(tables)
    np.testing.assert_allclose(
        whole.states["x"], joint.states["x"], rtol=1e-7, atol=1e-9, err_msg="x by edges, with no message lost"
    )
    lossy["time"] = {**_DELAYS, "message_drop": 0.3}
    run, other = (watched({**lossy, **_apart(size)}) for size in (CLIENTS, 1))
    assert run.ending == "completed", f"the run is {run.ending}"
    _alike(run, other, "one client an actor")
    assert np.abs(run.states["x"] - whole.states["x"]).max() > 0, "no message was lost: nothing is shown"
    _charges_are_releases(run)


def engines(tables: Tables) -> None:
    """Processes of their own give the same model and ε as one process."""
    one = simulate(dict(tables), keep=False)
    other = simulate({**tables, "engine": "ray", "actors": {"cpus": 2, "clients_per_actor": 2}}, keep=False)
    np.testing.assert_allclose(one.model, other.model, rtol=1e-9, atol=1e-12, err_msg="models differ")
    assert one.clients["epsilon"].tolist() == other.clients["epsilon"].tolist(), "ε differs"


def killed_process(tables: Tables) -> None:
    """A client process that is killed costs what it was charged and no more; the run goes on to its end."""
    method = {**tables["method"], **_participants(tables, CLIENTS).get("method", {}), "rounds": 12}
    given = {
        **tables,
        "method": method,
        "engine": "ray",
        "actors": {"cpus": 2, "clients_per_actor": 2},
        "time": {"compute": "constant", "mean_s": 0.1, "clock": "real"},  # so that there is a run to hit
    }
    processes: list[int] = []

    def kill(event: dict[str, Any]) -> None:
        if event["kind"] == "started":
            processes.extend(event["processes"])
        if event["kind"] == "round" and event["round"] == 2:
            os.kill(processes[1], signal.SIGKILL)

    run = simulate(given, keep=False, listen=kill)
    assert run.ending == "completed", f"the run is {run.ending}"
    assert "rebuilt" in run.events["kind"].to_list(), "the process was not started again"
    assert np.isfinite(run.model).all(), "the model is not finite"
    undisturbed = simulate({**given, "engine": "inline", "time": {}, "actors": {}}, keep=False)
    assert run.clients["releases"].tolist() == undisturbed.clients["releases"].tolist(), "charges differ"


def _undrawn(tables: Tables) -> Tables | None:
    """The run without noise in the first form of the method whose numbers do not depend on those of its grants."""
    known = {field.name for field in dataclasses.fields(method_class(tables["method"]["name"]))}  # type: ignore[arg-type]
    for form in _UNDRAWN:
        if not set(form) <= known:
            continue
        method = {**tables["method"], **form}
        exact = {**tables, "method": method, "privacy": {"mode": "none"}, "record_states": True}
        try:
            one, other = watched(exact), watched(exact, shift=1000)
        except InvalidValue:
            continue
        if np.array_equal(one.model, other.model):
            return exact
    return None


def _stopped_and_whole(tables: Tables) -> tuple[Any, Any]:
    """(a run stopped after its second round and resumed, the same run in one piece)."""

    def stop(event: dict[str, Any]) -> None:
        if event["kind"] == "round" and event["round"] == 2:
            signal.raise_signal(signal.SIGINT)

    with tempfile.TemporaryDirectory(prefix="dualfed-conformance-") as folder:
        cut = Path(folder) / "run"
        stopped = simulate(dict(tables), out=cut, listen=stop)
        assert stopped.ending == "stopped", f"a stop was asked for, and the run is {stopped.ending}"
        again = resume(cut)
    return again, simulate(dict(tables), keep=False)


def _participants(tables: Tables, clients: int) -> dict[str, Any]:
    """The method with this many clients a round, where it chooses."""
    method = dict(tables["method"])
    return {"method": {**method, "participants": clients}} if "participants" in method else {}


def _apart(size: int) -> dict[str, Any]:
    return {"actors": {"clients_per_actor": size}}


def _alike(one: Watched, other: Watched, what: str) -> None:
    for name, rows in one.states.items():
        np.testing.assert_allclose(rows, other.states[name], rtol=1e-8, atol=1e-10, err_msg=f"{name} with {what}")
    assert one.charges.tolist() == other.charges.tolist(), f"charges differ with {what}"


def _charges_are_releases(run: Watched) -> None:
    np.testing.assert_array_equal(run.charges, run.used_grants, err_msg="charges and grants that were used")
    assert len(set(run.released)) == len(run.released), "a grant was used twice"
    parts = {release.part for release in run.released}
    assert len(run.released) == len(parts) * int(run.used_grants.sum()), "some grants were used in part"
    assert run.charges.sum(), "nothing was charged: nothing is shown"
