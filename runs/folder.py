"""The folder of a run: made once, used by one run at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import DualfedError, InvalidValue, RunBroken

_ROOT = Path("dualfed-out")
_LOCK = ".lock"
_HELD: dict[str, Any] = {}
LOG = "run.log"  # what a run that goes on alone says


def new_folder(name: str, out: Path | None) -> Path:
    """Make the folder of a new run: ``out``, or the next free ``dualfed-out/NAME-k``.

    Raises:
        InvalidValue: it holds files already, or cannot be written.
    """
    if out is None:
        taken = (int(p.name.rsplit("-", 1)[1]) for p in _ROOT.glob(f"{name}-*") if p.name.rsplit("-", 1)[1].isdigit())
        out = _ROOT / f"{name}-{max(taken, default=0) + 1}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        holds = any(path.name not in (_LOCK, LOG) for path in out.iterdir())
    except OSError as error:
        raise InvalidValue(
            "--out", str(out), f"cannot be made: {error.strerror}; give a folder that you may write"
        ) from None
    if holds:
        raise InvalidValue(
            "--out", str(out), "holds files already; continue it with `dualfed resume`, or give a new folder"
        )
    if not os.access(out, os.W_OK | os.X_OK):
        raise InvalidValue("--out", str(out), "cannot be written; give a folder that you may write")
    return out


@contextlib.contextmanager
def made(name: str, out: Path | None) -> Iterator[Path]:
    """The folder of a new run, locked; where its preparation raises, what was made is removed again.

    The caller marks the end of the preparation by putting ``config.toml`` into the folder.
    """
    before = (
        {path for path in (out, *out.parents) if path.exists()} if out is not None else {_ROOT} & set(Path().glob("*"))
    )
    folder = new_folder(name, out)
    with locked(folder):  # what is removed below is then this run's own, not that of one that starts beside it
        try:
            yield folder
        except BaseException:
            if not (folder / "config.toml").exists():
                for path in folder.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                for path in (folder, *folder.parents):
                    if path in before or path == Path():
                        break
                    with contextlib.suppress(OSError):  # a parent that holds other things stays
                        path.rmdir()
            raise


def existing_folder(path: Path) -> Path:
    """The folder of an earlier run. Raises InvalidValue if it is none."""
    if not (path / "config.toml").is_file():
        raise InvalidValue(
            "RUN", str(path), "holds no run (no config.toml); give the folder that `dualfed run` printed"
        )
    return path


def find_run(run: Path | str) -> Path:
    """The folder of a run that is named by its folder, by its folder's name below ``dualfed-out``, or by the run's name,
    which means the newest of that name there. Raises InvalidValue.
    """
    for folder in (Path(run), _ROOT / run):
        if (folder / "config.toml").is_file():
            return folder
    if Path(run).name != str(run):  # a path, not a name
        return existing_folder(Path(run))
    numbered = {path: path.name.removeprefix(f"{run}-") for path in _ROOT.glob(f"{glob.escape(str(run))}-*")}
    found = [path for path, number in numbered.items() if number.isdigit() and (path / "config.toml").is_file()]
    if found:
        return max(found, key=lambda path: int(numbered[path]))
    return existing_folder(Path(run))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of ``folder`` while this one uses it; released by the system if the process dies.

    Raises:
        InvalidValue: another run uses the folder.
    """
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InvalidValue("--out", str(folder), f"cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidValue(
                "--out", str(folder), "another run uses this folder; wait for it, or give another"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), **_HELD}).encode())
        yield
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / _LOCK)
    finally:
        os.close(descriptor)


def held_by(facts: Mapping[str, Any]) -> None:
    """Say how this process can be reached, for whoever finds a folder in use by it."""
    _HELD.update(facts)


def user_of(folder: Path) -> dict[str, Any] | None:
    """Who uses a run's folder now: ``pid`` and ``host``, and what ``held_by`` said; None if nobody does."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        found: dict[str, Any] = json.loads(os.read(descriptor, 1 << 16) or b"{}")
        return found
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def readable(folder: Path, name: str) -> Iterator[None]:
    """Turn what reading a damaged file raises into one sentence. Raises InvalidValue."""
    try:
        yield
    except DualfedError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        cure = f"{name} is missing or damaged ({reason}); restore it from a copy"
        raise InvalidValue("RUN", str(folder), cure) from None


@contextlib.contextmanager
def room_on_disk(folder: Path) -> Iterator[None]:
    """Say in one sentence that nothing more can be written. Raises RunBroken."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
            raise
        raise RunBroken(
            f"{folder}: {error.strerror}; nothing that was charged is lost: make room, then go on with `dualfed resume {folder}`"
        ) from None
