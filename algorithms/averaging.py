"""What methods that average the participants' models share, and what references without privacy share."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent
from ..privacy.gate import Bound
from .method import ServerMethod, State
from .problems.base import Problem


class Averaging(ServerMethod):
    """A server whose state is the model: after a round it is the mean of what the round's participants uploaded,
    x_0 ← (1/|S_t|) Σ_{i∈S_t} x_i, and stays where nobody did."""

    uploads: ClassVar[Literal["kept", "fresh"]] = "fresh"

    def server_start(self, start: np.ndarray) -> np.ndarray:
        return np.asarray(start, dtype=np.float64)

    def serve(self, server: np.ndarray, total: np.ndarray, uploads: int, clients: int) -> np.ndarray:
        return np.asarray(total / uploads) if uploads else server

    def broadcast(self, kept: np.ndarray, clients: int) -> np.ndarray:
        return kept

    def init(self, start: Tensor) -> State:
        return {"x": start}

    def upload(self, state: State) -> Tensor:
        return state["x"]


class Reference(ServerMethod):
    """A method without noise. What its clients upload passes the gate as it is, against an event without noise, so that
    every account of such a run says ε = ∞; a run that asks for privacy is refused."""

    private: ClassVar[bool] = False

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        return GaussianEvent(noise_multiplier=0.0)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        return Bound(np.full(len(sizes), np.inf))

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        if private:
            raise InvalidValue(
                "method.name",
                self.name,
                'adds no noise and protects nobody; set privacy.mode = "none", or take another',
            )
