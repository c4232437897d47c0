"""The events of an asynchronous server in virtual time: who is at work, since which version, and who answers next."""

from __future__ import annotations

import heapq
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .rounds_in_time import RoundsInTime


@dataclass
class Task:
    """One client's work.

    Attributes:
        version: the update (from 1) towards which the client began: it works from the model of update ``version − 1``.
        started, arrival: simulated seconds; dropped: whether it will never answer.
        gone: whether its result is lost, with its process or by an error of its own.
    """

    client: int
    version: int
    started: float
    arrival: float
    dropped: bool = False
    gone: bool = False


class InFlight(RoundsInTime):
    """Tasks at work, by client; the next arrival is the earliest, and of equal ones that of the lower client id.

    Attributes:
        tasks: by client; starts: ``[N]`` how often each client began; errors: ``[N]`` how often in a row it raised.
    """

    tasks: dict[int, Task]
    starts: np.ndarray
    errors: np.ndarray

    def prepare(self, clients: int) -> None:
        """Nobody is at work yet."""
        self.tasks, self._queue = {}, list[tuple[float, int]]()
        self.starts, self.errors = np.zeros((2, clients), dtype=np.int64)

    def begin(self, clients: np.ndarray, version: int) -> np.ndarray:
        """Let ``clients``, none of which is at work, begin now; those among them that are off begin when they are back."""
        keeper = self.keeper
        self.starts[clients] += 1
        started, arrivals, dropped = keeper.begin(clients, self.starts[clients], keeper.now)
        for row, client in enumerate(clients.tolist()):
            task = Task(client, version, float(started[row]), float(arrivals[row]), bool(dropped[row]))
            self.tasks[client] = task
            heapq.heappush(self._queue, (task.arrival, client))
        away = clients[started > keeper.now]
        keeper.count("offline", away)
        return away

    def next(self) -> Task | None:
        """Go on to the next arrival; None where nobody at work ever answers."""
        if not self._queue or not np.isfinite(self._queue[0][0]):
            return None
        arrival, client = heapq.heappop(self._queue)
        self.keeper.now = max(self.keeper.now, arrival)
        return self.tasks.pop(client)

    def idle(self, out: np.ndarray) -> np.ndarray:
        """Clients, ascending, that are not at work, nor ``out`` (bool ``[N]``)."""
        free = ~out
        free[list(self.tasks)] = False
        return np.flatnonzero(free)

    def close(self, task: Task, t: int, outcome: str) -> None:
        """Book a task that has arrived: ``used``, ``void`` or ``dropped``."""
        who, useless = np.array([task.client]), outcome != "used"
        self.keeper.spend(who, np.array([task.arrival - task.started]), np.zeros(1), np.array([useless]))
        self.keeper.span(who, t, np.array([task.started]), np.array([task.arrival]), np.array([outcome]))
        if useless:
            self.keeper.count(outcome, who)

    def save(self) -> dict[str, Any]:
        return {
            **super().save(),
            "tasks": [asdict(task) for task in self.tasks.values()],
            "starts": self.starts.tolist(),
            "errors": self.errors.tolist(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        super().load(saved)
        self.starts = np.array(saved["starts"], dtype=np.int64)
        self.errors = np.array(saved.get("errors", np.zeros_like(self.starts)), dtype=np.int64)
        self.tasks = {task["client"]: Task(**task) for task in saved["tasks"]}
        self._queue = [(task.arrival, task.client) for task in self.tasks.values()]
        heapq.heapify(self._queue)
