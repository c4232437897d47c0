"""Run a configuration from Python, or continue a run from its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd
import tomlkit

from ..actors.run_file import RunFile
from ..algorithms.method import Method
from ..errors import InvalidValue
from .config import RunConfig, parse
from .continuing import check_journal
from .folder import existing_folder, locked, made, readable, room_on_disk
from .prepare import Given, Prepared, describe_problem, prepare, resolved
from .recorder import write_frame
from .results import RunResult, load_result

if TYPE_CHECKING:
    from ..algorithms.problems.base import Problem
    from .data import Dataset

Listener = Callable[[dict[str, Any]], None]


def simulate(
    config: RunConfig | Mapping[str, Any] | None = None,
    *,
    out: Path | str | None = None,
    keep: bool = True,
    dataset: Dataset | None = None,
    problem: Problem | None = None,
    method: Method | None = None,
    graph: nx.Graph | None = None,
    participation: Sequence[Sequence[int]] | None = None,
    noise: np.ndarray | None = None,
    listen: Listener | None = None,
) -> RunResult:
    """Run one simulation from beginning to end.

    Args:
        config: a checked configuration, or its tables; what is left out takes its default.
        out: the folder to make; None makes the next ``dualfed-out/NAME-k``.
        keep: False keeps no folder: the result alone is left.
        dataset, problem, method, graph: objects in place of what the configuration names.
        participation: the clients of every round, in place of the keyed draw.
        noise: ``[T, N, d]`` values that are added in place of noise; with ``privacy.mode = "none"`` only.
        listen: called with every event while the run goes on.

    Raises:
        DualfedError: something given is wrong (InvalidValue names the field); nothing was run or charged.
    """
    checked = config if isinstance(config, RunConfig) else parse(config or {})
    given = Given(dataset, problem, method, graph, participation, noise)
    if not keep:
        folder = Path(tempfile.mkdtemp(prefix=f"dualfed-{os.getpid()}-run-"))
        try:
            with locked(folder):
                result = _start(checked, folder, given, listen)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return dataclasses.replace(result, folder=None)
    with made(checked.name, None if out is None else Path(out)) as folder:
        return _start(checked, folder, given, listen)


def _start(config: RunConfig, folder: Path, given: Given, listen: Listener | None) -> RunResult:
    prepared = prepare(config, folder, given)
    _describe(prepared, folder, given)
    return _run(prepared, folder, listen)


def resume(folder: Path | str, *, engine: str | None = None, listen: Listener | None = None) -> RunResult:
    """Continue a run from its last checkpoint.

    Rounds up to the checkpoint are not run or charged again. Rounds after it, if the run was killed, take new grants.

    Raises:
        InvalidValue: no run is there, it is complete, or its data have changed.
    """
    from ..actors.loop import latest_checkpoint

    folder = existing_folder(Path(folder))
    with locked(folder):
        with readable(folder, "config.toml"):
            config = parse(tomllib.loads((folder / "config.toml").read_text()))
        if engine is not None:
            config = parse({**config.model_dump(), "engine": engine})
        with readable(folder, "environment.json"):
            facts = json.loads((folder / "environment.json").read_text())
            own, digest, identity = facts["own"], facts["data_digest"], facts["run"]
        if own:
            raise InvalidValue("RUN", str(folder), f"was given its {', '.join(own)} in Python; run it again from there")
        if _ending(folder) in ("completed", "exhausted"):
            raise InvalidValue("RUN", str(folder), "is complete; start a new run with another folder")
        listed = folder / "participation.json"
        with readable(folder, "participation.json"):
            participation = json.loads(listed.read_text()) if listed.exists() else None
        checkpoint = latest_checkpoint(folder / "checkpoint") or latest_checkpoint(folder / "private")
        with readable(folder, "checkpoint"):
            saved: dict[str, Any] = (
                {"round": 0} if checkpoint is None else json.loads((checkpoint / "state.json").read_text())
            )
            resumed_to = int(saved["round"])
        with readable(folder, "its tables"):
            prepared = prepare(config, folder, Given(participation=participation), resumed_to)
        if prepared.data_digest != digest:
            cure = "the records are not those of the run's start; bring them back"
            raise InvalidValue("data", config.data.name, cure)
        check_journal(folder, identity, prepared.job.ledger.meta, saved.get("journal"))
        prepared.job.ledger.meta["run"] = identity
        shutil.rmtree(folder / "state", ignore_errors=True)
        if config.engine == "ray":
            (folder / "state").mkdir(mode=0o700)
        return _run(prepared, folder, listen)


def _ending(folder: Path) -> str:
    if not (folder / "summary.json").exists():
        return "unfinished"
    with readable(folder, "summary.json"):
        return str(json.loads((folder / "summary.json").read_text())["ending"])


def _run(prepared: Prepared, folder: Path, listen: Listener | None) -> RunResult:
    from ..actors.job import stoppable

    with stoppable():
        return _begun(prepared, folder, listen)


def _begun(prepared: Prepared, folder: Path, listen: Listener | None) -> RunResult:
    with room_on_disk(folder):
        run_file = RunFile(folder, _identity(prepared))
    hear = run_file.listening(listen or _ignore)
    hear({"kind": "prepared", "round": 0, **_facts(prepared)})
    try:
        with room_on_disk(folder):
            return _carried_out(prepared, folder, hear)
    except BaseException:
        with contextlib.suppress(OSError):
            run_file.end("failed")
        raise
    finally:
        shutil.rmtree(folder / "state", ignore_errors=True)


def _carried_out(prepared: Prepared, folder: Path, hear: Listener) -> RunResult:
    from safetensors.numpy import save_file

    from ..actors.job import run_inline
    from ..privacy.journal_log import sweep

    if prepared.config.engine == "inline":
        finished = run_inline(prepared.job, hear)
    else:
        from ..actors.ray_run import run_ray

        prepared.method.compile(prepared.problem, prepared.config.dtype)
        finished = run_ray(prepared.job, hear, prepared.config.actors.cpus or os.cpu_count() or 1)
    save_file({"x0": np.ascontiguousarray(finished.model)}, folder / "model.safetensors")
    if finished.ending in ("completed", "exhausted"):
        shutil.rmtree(folder / "private", ignore_errors=True)
    clients = client_table(prepared, folder)
    sweep(folder / "ledger.sqlite")
    write_frame(clients, folder / "clients.parquet", {})
    (folder / "summary.json").write_text(json.dumps(_summary(prepared, folder, finished.ending, clients), indent=2))
    return load_result(folder)


def client_table(prepared: Prepared, folder: Path) -> pd.DataFrame:
    """One row a client, its ε read from the journal."""
    from ..privacy.ledger import Ledger

    ledger = Ledger.open_readonly(folder / "ledger.sqlite")
    try:
        spent = ledger.epsilon()
        releases = ledger.participations
    finally:
        ledger.close()
    budgets = prepared.job.plan.budgets
    table = pd.DataFrame(
        {
            "client": np.arange(len(prepared.sizes)),
            "records": prepared.sizes,
            "actor": prepared.host_of,
            "noise_multiplier": prepared.job.plan.noise_multipliers,
            "releases": releases,
            "epsilon": [item.epsilon for item in spent],
            "delta": prepared.job.plan.delta,
            "budget": np.inf if budgets is None else budgets,
            "account": [item.account for item in spent],
            "status": [item.status for item in spent],
            "unit": prepared.method.unit,
            # The classic conversion, beside the tight one, where an account has it.
            "epsilon_zcdp": [item.alternatives.get("zcdp", np.nan) for item in spent],
        }
    )
    times = folder / "client_times.parquet"
    return table.merge(pd.read_parquet(times), on="client") if times.exists() else table


def _facts(prepared: Prepared) -> dict[str, Any]:
    settings = prepared.job.settings
    return {
        "name": prepared.config.name,
        "method": prepared.method.name,
        "rounds": settings.rounds,
        "clients": settings.clients,
        "actors": len(settings.hosts),
        "engine": prepared.config.engine,
        "delta": prepared.job.plan.delta,
        "budget": None if prepared.job.plan.budgets is None else float(np.max(prepared.job.plan.budgets)),
        "status": prepared.method.status,
        "warnings": prepared.warnings,
        "folder": settings.folder,
    }


def _identity(prepared: Prepared) -> dict[str, Any]:
    """What other processes are told of the run."""
    facts = _facts(prepared)
    named = ("name", "method", "engine", "rounds", "clients", "delta", "budget", "status", "folder")
    return {
        "run": prepared.job.ledger.meta["run"],
        **{name: facts[name] for name in named},
        "unit": prepared.method.unit,
        "graph": prepared.graph is not None,
    }


def _summary(prepared: Prepared, folder: Path, ending: str, clients: pd.DataFrame) -> dict[str, Any]:
    metrics = pd.read_parquet(folder / "metrics.parquet")
    timing = pd.read_parquet(folder / "timing.parquet") if (folder / "timing.parquet").exists() else pd.DataFrame()
    last = metrics.iloc[-1]
    worst = clients.iloc[int(clients["epsilon"].to_numpy().argmax())]
    rounds_done = int(timing["round"].max()) if len(timing) else 0
    return {
        **_facts(prepared),
        "ending": ending,
        "rounds_done": rounds_done,
        "loss": float(last["loss"]),
        **({"accuracy": float(last["accuracy"])} if "accuracy" in metrics else {}),
        "epsilon_max": float(clients["epsilon"].max()),
        "epsilon_median": float(clients["epsilon"].median()),
        "account": worst["account"],
        **(_if_stopped(prepared, folder, clients, rounds_done) if ending == "stopped" else {}),
        **({"epsilon_zcdp": float(worst["epsilon_zcdp"])} if np.isfinite(worst["epsilon_zcdp"]) else {}),
        "unit": prepared.method.unit,
        "noise": prepared.config.privacy.noise,
        "mode": prepared.config.privacy.mode,
        "records": {
            "total": int(prepared.sizes.sum()),
            "least": int(prepared.sizes.min()),
            "most": int(prepared.sizes.max()),
        },
        "noise_multipliers": [float(clients["noise_multiplier"].min()), float(clients["noise_multiplier"].max())],
        "exhausted": int(((clients["releases"] > 0) & np.isin(clients["client"], _refused(folder))).sum()),
        "bytes_up": int(last["bytes_up"]),
        "bytes_down": int(last["bytes_down"]),
        "seconds": float(timing["seconds"].sum()) if len(timing) else 0.0,
        **_time_facts(prepared, metrics, clients),
        "data": prepared.dataset.name,
        "scaling": prepared.dataset.scaling,
        "problem": describe_problem(prepared.problem),
        "method_parameters": prepared.config.method,
    }


def _if_stopped(prepared: Prepared, folder: Path, clients: pd.DataFrame, done: int) -> dict[str, float]:
    """What the run's ε would have been at its planned end: who decides to stop by what was released has this one.

    What was released is a part of what the whole plan would have released, whatever the part was chosen by. No filter
    is needed for that, but the account up to a round that depends on the releases is none of theirs.
    """
    from ..privacy.ledger import Ledger
    from .whole_plan import whole_epsilon

    spent = float(clients["epsilon"].max())
    if not np.isfinite(spent):
        return {}
    with contextlib.closing(Ledger.open_readonly(folder / "ledger.sqlite")) as ledger:
        return {"epsilon_planned": max(whole_epsilon(prepared, ledger, done), spent)}


def _time_facts(prepared: Prepared, metrics: pd.DataFrame, clients: pd.DataFrame) -> dict[str, Any]:
    """What a run with simulated time says of it, and how many errors of clients it went on after."""
    facts: dict[str, Any] = {"policy": prepared.config.policy.kind}
    if "errors" in metrics:
        facts["errors"] = int(metrics["errors"].iloc[-1])
    if "simulated_s" not in metrics:
        return facts
    facts["simulated_s"] = float(metrics["simulated_s"].iloc[-1])
    facts["clock"] = prepared.config.time.clock
    facts["stragglers"] = {
        name: int(clients[name].sum()) for name in ("late", "void", "dropped", "offline") if name in clients
    }
    target = prepared.config.time.target_accuracy
    if target is not None and "accuracy" in metrics:
        reached = metrics.loc[metrics["accuracy"] >= target, "simulated_s"].dropna()
        facts["target"] = {"accuracy": target, "seconds": float(reached.iloc[0]) if len(reached) else None}
    return facts


def _refused(folder: Path) -> list[int]:
    path = folder / "events.parquet"
    if not path.exists():
        return []
    events = pd.read_parquet(path)
    refused = events[events["kind"] == "refused"]
    return sorted({int(detail.split(";")[0].removeprefix("client: ")) for detail in refused["detail"]})


def _describe(prepared: Prepared, folder: Path, given: Given) -> None:
    """What the run is, on disk before it begins: the journal first, and last the file that makes it a run."""
    prepared.job.ledger.create()
    if given.participation is not None:
        listed = [[int(client) for client in row] for row in given.participation]
        (folder / "participation.json").write_text(json.dumps(listed))
    facts = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": {
            name: _version(name) for name in ("dualfed", "ray", "torch", "numpy", "scipy", "dp-accounting", "pandas")
        },
        "data_digest": prepared.data_digest,
        "own": given.objects,
        "run": prepared.job.ledger.meta["run"],
    }
    (folder / "environment.json").write_text(json.dumps(facts, indent=2))
    (folder / "config.toml").write_text(tomlkit.dumps(resolved(prepared)))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _ignore(_event: dict[str, Any]) -> None:
    pass
