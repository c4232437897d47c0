"""The commands that run: ``dualfed run`` and ``dualfed resume``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import DualfedError
from .cli_input import absolute_data_path, read_source, with_settings
from .progress import Watcher, watcher

if TYPE_CHECKING:
    from .config import RunConfig
    from .results import RunResult

TWIN = "without-privacy"
INTERRUPTED = 130


def run(
    source: str,
    settings: Sequence[str],
    out: Path | None,
    engine: str | None,
    name: str | None,
    seed: int | None,
    dry: bool = False,
) -> int:
    """Run a preset or a file to its end, or only say what it would take; the exit code."""
    from .config import parse

    tables = with_settings(read_source(source), settings)
    given = {"engine": engine, "name": name, "seed": seed}
    tables |= {field: value for field, value in given.items() if value is not None}
    config = parse(absolute_data_path(tables))

    if dry:
        from .estimate import estimate
        from .show_estimate import show_estimate

        show_estimate(estimate(config), Console())
        return 0

    from .simulate import simulate

    _one_thread(config.engine)
    result = _watched(config.name, lambda listen: simulate(config, out=out, listen=listen))
    return _finish(result, _twin(config, result))


def resume(folder: Path, engine: str | None) -> int:
    """Continue a run from its last checkpoint; the exit code."""
    from .config import parse
    from .folder import existing_folder
    from .simulate import resume as go_on

    given = read_source(str(existing_folder(folder) / "config.toml"))
    _one_thread(engine or str(given.get("engine", "ray")))
    result = _watched(folder.name or str(folder), lambda listen: go_on(folder, engine=engine, listen=listen))
    return _finish(result, _twin(parse(result.config), result))


def _watched(label: str, start: Callable[[Watcher], RunResult]) -> RunResult:
    """Run with progress on the error stream; where a client fails, say which and where before its error goes on."""
    watch = watcher(label)
    try:
        return start(watch)
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
    """The same run without privacy, where the configuration asks for it and the run came to its end."""
    if not config.compare_without_privacy or config.privacy.mode == "none" or result.folder is None:
        return None
    if result.ending not in ("completed", "exhausted"):
        return None
    from .config import parse
    from .simulate import simulate

    plain: dict[str, Any] = config.model_dump()
    plain["privacy"]["mode"] = "none"
    plain |= {"engine": "inline", "compare_without_privacy": False, "record_states": False}
    folder = result.folder / TWIN
    _one_thread("inline")
    twin = _watched("without privacy", lambda listen: simulate(parse(plain), out=folder, listen=listen))
    return twin if twin.ending == "completed" else None


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
