"""States of hosts on other nodes, kept beside the run: a node can be lost with its disk, and no state is lost with it.

What is kept is what the clients released (SPEC section 5, rule 4), which in a real deployment the server has anyway. A
round of a host counts once its rows are here: the host hands them over before it answers.

Light: numpy alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from .nodes import on_node
from .state_file import StateFile, StateLayout, Versions

if TYPE_CHECKING:
    from .host import Host

_CHECKPOINT_CALLS = ("save", "restore")
_UNKNOWN = -1


class MirrorActor:
    """Keeps, on the node that has the run's folder, the state files of hosts that live elsewhere."""

    def __init__(self) -> None:
        self._files: dict[str, StateFile] = {}
        self._writers: dict[str, str] = {}

    def take(self, path: str, layout: StateLayout, writer: str) -> list[Versions]:
        """All rows of a host, for ``writer``, its new process, which alone may write from now on."""
        self._writers[path] = writer
        self._files[path] = StateFile(layout, Path(path))
        return self._files[path].get()

    def put(self, path: str, layout: StateLayout, writer: str, changed: list[Versions]) -> bool:
        """Keep rows; False if another process has taken the host over, and nothing was kept."""
        # A mirror that was itself restarted knows no writers: whoever comes first goes on.
        if self._writers.setdefault(path, writer) != writer:
            return False
        if path not in self._files:
            self._files[path] = StateFile(layout, Path(path))
        for each in changed:
            self._files[path].put(each)
        return True

    def store(self, path: str, content: bytes) -> None:
        """Write a part of a checkpoint, its owner's alone."""
        partial = Path(f"{path}.part")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(partial, path)

    def checkpoint(self, folder: str) -> dict[str, bytes]:
        """The clients' files of a checkpoint, by name."""
        return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("clients-*.safetensors"))}


def start_mirror(node: str) -> Any:
    """Start a mirror on the node with the run's folder. It is restarted from its files if it is lost."""
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": on_node(node)}
    return ray.remote(MirrorActor).options(**options).remote()


class Mirrored:
    """A host away from the run's folder. It holds its states in memory and has every change of them kept by the mirror.

    Args:
        path: the host's state file, on the mirror's node.
    """

    def __init__(self, host: Host, path: str, mirror: Any) -> None:
        self._host, self._path, self._mirror = host, path, mirror
        self._states = host.states_kept
        self._writer = ray.get_runtime_context().get_actor_id()
        versions = ray.get(mirror.take.remote(path, self._states.layout, self._writer))
        self._states.take_over(versions)
        host.states_replaced()
        self._kept = self._states.stamps.copy()

    def call(self, name: str, *arguments: Any) -> Any:
        """A call of the host; what it changed is kept before the answer is given."""
        if name in _CHECKPOINT_CALLS:
            answer = getattr(self, f"_{name}")(*arguments)
        else:
            answer = getattr(self._host, name)(*arguments)
        changed = self._states.changed(self._kept)
        if changed:
            kept = ray.get(self._mirror.put.remote(self._path, self._states.layout, self._writer, changed))
            if not kept:
                raise RuntimeError("this host was given up for lost and another process has taken its place")
            for each in changed:
                self._kept[each.version, each.slots] = each.stamps
        return answer

    def _save(self, path: str) -> None:
        with tempfile.TemporaryDirectory(prefix="dualfed-checkpoint-") as folder:
            own = Path(folder) / Path(path).name
            self._host.save(str(own))
            ray.get(self._mirror.store.remote(path, own.read_bytes()))

    def _restore(self, folder: str) -> Any:
        with tempfile.TemporaryDirectory(prefix="dualfed-checkpoint-") as here:
            for name, content in ray.get(self._mirror.checkpoint.remote(folder)).items():
                (Path(here) / name).write_bytes(content)
            answer = self._host.restore(here)  # type: ignore[attr-defined]
        self._kept[:] = _UNKNOWN  # everything is new, whatever round it is from
        return answer
