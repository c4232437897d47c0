"""A Ray cluster of our own on this machine, quiet, and gone without a trace when the run is over."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil

_PREFIX = "dualfed-"
_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}


@contextlib.contextmanager
def local_cluster(cpus: int) -> Iterator[None]:
    """Start a cluster for this process alone and end it on every way out, its temporary folder included.

    Folders that earlier runs left because they were killed are removed first. Where this process is connected to a
    cluster already, that one is used and left running.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"ray\.")
    import ray

    if ray.is_initialized():
        yield
        return
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
        )
        _silence()
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _silence() -> None:
    """Keep Ray's own words about lost processes off the screen: the run says what was lost, and what follows from it."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_arguments, **_named: None


def remove_leftovers() -> list[Path]:
    """Remove the temporary folders of runs whose process is gone; the folders removed."""
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)) and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed
