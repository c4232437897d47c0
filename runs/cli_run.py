"""The commands that run: ``dualfed run`` and ``dualfed resume``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import DualfedError, InvalidValue
from .cli_input import absolute_data_path, read_source, with_settings
from .detaching import detached, say_begun, say_how_to_watch
from .folder import new_folder
from .progress import watcher
from .remote import Request
from .twin import TWIN as TWIN
from .twin import run_twin, wants_twin

if TYPE_CHECKING:
    from .config import RunConfig
    from .results import RunResult
    from .simulate import Listener

INTERRUPTED = 130


def run(
    source: str,
    settings: Sequence[str],
    out: Path | None,
    engine: str | None,
    name: str | None,
    seed: int | None,
    dry: bool = False,
    address: str | None = None,
    detach: bool = False,
) -> int:
    """Run a preset or a file to its end, or only say what it would take; the exit code.

    With ``address`` the run is on that cluster; with ``detach`` it goes on without this process.
    """
    from .config import parse

    tables = with_settings(read_source(source), settings)
    given = {"engine": engine, "name": name, "seed": seed}
    tables |= {field: value for field, value in given.items() if value is not None}
    tables = absolute_data_path(tables)
    config = parse(tables)

    if dry:
        from .estimate import estimate
        from .show_estimate import show_estimate

        show_estimate(estimate(config), Console())
        return 0

    if address is not None:
        _needs_ray(config.engine)
        return on_cluster(address, Request(tables, None if out is None else str(out)), config.name, detach)
    if detach:
        return detached(["run", source, *_again(settings, engine, name, seed)], new_folder(config.name, out))

    from .simulate import simulate

    _one_thread(config.engine)
    result = _watched(config.name, lambda listen: simulate(config, out=out, listen=listen))
    return _finish(result, _twin(config, result))


def resume(folder: Path, engine: str | None, address: str | None = None, detach: bool = False) -> int:
    """Continue a run from its last checkpoint; the exit code."""
    from .config import parse
    from .folder import find_run
    from .simulate import resume as go_on

    if address is not None:
        return on_cluster(address, Request(None, str(folder), engine), folder.name or str(folder), detach)
    folder = find_run(folder)
    given = read_source(str(folder / "config.toml"))
    if detach:
        return detached(["resume", *_again([], engine, None, None)], folder)
    _one_thread(engine or str(given.get("engine", "ray")))
    result = _watched(folder.name or str(folder), lambda listen: go_on(folder, engine=engine, listen=listen))
    return _finish(result, _twin(parse(result.config), result))


def on_cluster(address: str, request: Request, name: str, detach: bool) -> int:
    """Have a run done on a cluster that others keep, and watch it unless it is to go on alone; the exit code."""
    from .remote import started, watched
    from .results import load_result

    with started(address, request) as remote:
        if detach:
            from ..actors.held_run import wait_until_prepared

            say_how_to_watch(wait_until_prepared(remote.holder), None if remote.shared else address)
            return 0
        result = _watched(name, lambda listen: watched(remote, listen, name))
    twin = None if result.folder is None else result.folder / TWIN
    return _finish(result, load_result(twin) if twin is not None and (twin / "summary.json").exists() else None)


def _needs_ray(engine: str) -> None:
    if engine != "ray":
        raise InvalidValue("engine", engine, 'a cluster runs Ray actors; take engine = "ray", or leave --address out')


def _again(settings: Sequence[str], engine: str | None, name: str | None, seed: int | None) -> list[str]:
    """The options of this command, for a process that does the same."""
    listed = [word for setting in settings for word in ("--set", setting)]
    for option, value in (("--engine", engine), ("--name", name), ("--seed", seed)):
        listed += [] if value is None else [option, str(value)]
    return listed


def _watched(label: str, start: Callable[[Listener], RunResult]) -> RunResult:
    """Run with progress on the error stream; where a client fails, say which and where before its error goes on."""
    watch = watcher(label)

    def hear(event: dict[str, Any]) -> None:
        if event["kind"] == "prepared":
            say_begun()
        watch(event)

    try:
        return start(hear)
    except DualfedError:
        raise
    except Exception:
        watch.close()
        if watch.failure is not None:
            clients = ", ".join(str(client) for client in watch.failure["clients"])
            print(f"In round {watch.failure['round']} the work of client {clients} raised:", file=sys.stderr)
            print(watch.failure["trace"], file=sys.stderr)
        raise
    finally:
        watch.close()


def _twin(config: RunConfig, result: RunResult) -> RunResult | None:
    if not wants_twin(config, result):
        return None
    twin: list[RunResult | None] = []

    def start(listen: Listener) -> RunResult:
        twin.append(run_twin(config, result, listen))
        return result

    _watched("without privacy", start)
    return twin[0]


def _one_thread(engine: str) -> None:
    """Small matrices gain nothing from more threads, and on busy cores they wait for each other."""
    if engine == "inline":
        import torch

        torch.set_num_threads(1)


def _finish(result: RunResult, twin: RunResult | None) -> int:
    from .plots import plot
    from .report import report
    from .summary import show

    if result.folder is not None and len(result.metrics) > 0:
        plot(result.folder)
        if result.summary:
            report(result.folder)
    show(result, twin, Console())
    return INTERRUPTED if result.ending == "stopped" else 0
