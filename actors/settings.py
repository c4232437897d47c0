"""What a coordinator needs to know of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .policies import OnError
from .timing import TimeSettings


@dataclass(frozen=True)
class RunSettings:
    """What the coordinator needs to know of a run.

    Attributes:
        hosts: the clients of each host, ascending.
        dim: d; item_bytes: bytes of one number on the simulated network.
        folder: the run's folder, or None to keep nothing on disk.
        state_is_released: whether checkpoints hold only released values.
        mixing_rounds, final_mixing: exchanges without data after each release, and at the end.
        numbers_down, numbers_up: what a client of a server receives and uploads in a round; None: dim.
        fresh_uploads: whether the server adds up the uploads of the round alone, not every client's last.
        server: ``[S]`` the state that the server itself starts with, or None where it keeps none.
        messages: clients' messages that the graph's edges carry in one exchange, 2|E|.
        message_length: numbers in one of them; d where clients share their model alone.
        time: what takes how long and what a straggler means; None where nothing takes time.
        on_error, retries: what a client's error means for the run, and how often it may try again.
    """

    rounds: int
    hosts: list[np.ndarray]
    dim: int
    item_bytes: int
    evaluate_every: int
    checkpoint_every: int
    folder: str | None = None
    state_is_released: bool = True
    record_states: bool = False
    mixing_rounds: int = 0
    final_mixing: int = 0
    messages: int = 0
    numbers_down: int | None = None
    numbers_up: int | None = None
    fresh_uploads: bool = False
    server: np.ndarray | None = None
    message_length: int = 0
    time: TimeSettings | None = None
    on_error: OnError = "stop"
    retries: int = 2

    @property
    def clients(self) -> int:
        return sum(len(members) for members in self.hosts)

    @property
    def checkpoints(self) -> Path | None:
        """Where checkpoints go: private states stay apart from what may be shared."""
        if self.folder is None:
            return None
        return Path(self.folder) / ("checkpoint" if self.state_is_released else "private")
