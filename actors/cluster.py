"""A Ray cluster of our own on this machine, quiet, and gone without a trace when the run is over."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from ..errors import InvalidValue
from .package import staged

NAMESPACE = "dualfed"
_PREFIX = "dualfed-"
_REACH_S = 5.0
_TRIES = 3
_NOT_STARTED = ("Starting Ray client server failed", "Proxy failed to Connect to backend")
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
    _be_quiet()
    import ray

    if ray.is_initialized():
        yield
        return
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with _own_handlers():
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


def _be_quiet() -> None:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"ray\.")


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Put back the handler of SIGTERM that Ray replaces as it starts: with ours a run ends with a checkpoint."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread() and before is not None:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def connected(address: str, auth: str | None = None) -> Iterator[None]:
    """Connect this process to a cluster that others keep, and bring the package along for nodes that lack it.

    Where this process is connected already, that connection is used and left.

    Args:
        address: ``auto`` for the cluster of this machine, ``HOST:PORT`` of a head from one of its nodes, or
            ``ray://HOST:PORT`` from anywhere.
        auth: how the cluster knows its users (``token`` or ``disabled``); None leaves it to the environment.

    Raises:
        InvalidValue: there is no cluster, or it does not let this process in.
    """
    _be_quiet()
    import ray

    if ray.is_initialized():
        yield
        return
    check_reachable(address)
    if auth is not None and "RAY_AUTH_MODE" not in os.environ:
        from ray import _raylet

        os.environ["RAY_AUTH_MODE"] = auth
        _raylet.Config.initialize("")  # type: ignore[attr-defined]  # Ray read the mode when it was imported
    with staged(f"{_PREFIX}{os.getpid()}-") as package:
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            with _own_handlers():
                join(address, runtime_env={"py_modules": [str(package)]})
        except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise InvalidValue("--address", address, _refused(error)) from None
        _silence()
        try:
            yield
        finally:
            ray.shutdown()


def join(address: str, **options: Any) -> None:
    """``ray.init`` of this process at ``address``, quietly and in our namespace. Raises what that raises.

    For every client that comes by ray:// the head forks a process, and now and then one dies of that (a race of gRPC with
    fork): it is asked for again.
    """
    import ray

    for tries_left in reversed(range(_TRIES)):
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR, **options)
            return
        except ConnectionError as error:
            if not tries_left or not any(words in str(error) for words in _NOT_STARTED):
                raise
            with contextlib.suppress(Exception):
                ray.shutdown()


def cpus() -> int:
    """The CPUs of the cluster that this process is connected to."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


def check_reachable(address: str) -> None:
    """Say at once that nobody listens there; Ray itself would try for a minute. Raises InvalidValue."""
    host, separator, port = address.removeprefix("ray://").partition("/")[0].rpartition(":")
    if address in ("auto", "local") or not separator:
        if address != "auto":
            raise InvalidValue("--address", address, 'give "auto", HOST:PORT of the head, or ray://HOST:10001')
        return
    if not port.isdigit():
        raise InvalidValue("--address", address, "the port must be a number, such as 6379, or 10001 for ray://")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except (OSError, ValueError, OverflowError) as error:  # ValueError: what can be no name of a machine
        reason = getattr(error, "strerror", None) or error
        cure = f"nothing answers there ({reason}); start the cluster, or correct the address"
        raise InvalidValue("--address", address, cure) from None


def _refused(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "Traceback (most recent call last)" in text:  # of the other end: its last line says what it was
        text = str(error).strip().splitlines()[-1].strip()
    if type(error).__name__ == "AuthenticationError" or "uthentication" in text:
        return "the cluster asks for its token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to it"
    if "ersion mismatch" in text:
        return f"the versions here and there differ: {text[:200]}"
    if "Could not find any running Ray instance" in text:
        return "no cluster runs on this machine; start one with `ray start --head`, or leave the option out"
    if "grpc" in text and "No module" in text:
        return 'ray:// needs grpcio; install "ray[client]"'
    return (
        f"the cluster cannot be joined ({text[:200]}); from a machine that is none of its nodes, take ray://HOST:10001"
    )


def _silence() -> None:
    """Keep Ray's own words about lost processes off the screen: the run says what was lost, and what follows from it."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_arguments, **_named: None


def leftovers() -> list[Path]:
    """The temporary folders of this user's runs whose process is gone."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)) and folder.stat().st_uid == os.getuid():
            found.append(folder)
    return found


def remove_leftovers() -> list[Path]:
    """Remove the temporary folders of runs whose process is gone; the folders removed."""
    removed = leftovers()
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return removed
