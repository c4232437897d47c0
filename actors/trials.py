"""Many independent calls as trials of Ray Tune, spread over the cluster."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from .cluster import local_cluster

# What `ray[tune]` brings besides Ray itself, and Tune cannot be imported without.
_NEEDS = ("ray", "pandas", "pyarrow", "fsspec", "requests")


def missing() -> list[str]:
    """The packages that Ray Tune lacks here; none where it can be used."""
    return [name for name in _NEEDS if find_spec(name) is None]


def trials(work: Callable[[int], dict[str, Any]], count: int, at_once: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """``work(i)`` for i below ``count``, ``at_once`` at a time, one CPU each; index and value of each that came back.

    Where this process is connected to a cluster, the trials go there: folders that ``work`` writes to must then be seen
    from all its nodes. Otherwise a cluster is started for the trials and ended after them.
    """
    with local_cluster(at_once):
        from ray import tune

        def trial(config: dict[str, Any]) -> None:
            tune.report({"value": json.dumps(work(config["index"]), default=repr)})

        with tempfile.TemporaryDirectory(prefix="dualfed-tune-") as storage:
            found = tune.Tuner(
                tune.with_resources(trial, {"cpu": 1}),
                param_space={"index": tune.grid_search(list(range(count)))},
                tune_config=tune.TuneConfig(max_concurrent_trials=at_once),
                run_config=tune.RunConfig(storage_path=storage, verbose=0),
            ).fit()
            for result in list(found):  # type: ignore[call-overload]
                index = int((result.config or {})["index"])
                if result.error is not None:
                    first = (str(result.error).strip() or "no reason given").splitlines()[-1]
                    yield index, {"failed": f"its trial ended before the run did: {first}"}
                elif result.metrics and "value" in result.metrics:
                    yield index, json.loads(result.metrics["value"])
                else:
                    yield index, {"ending": "stopped"}
