"""A small world in which methods are checked: three clients of unequal size, and a gate that lets nothing true out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..keys import generator
from ..privacy.gate import NoiseGate
from .method import Method
from .problems import make_problem
from .problems.base import Problem
from .shards import Shards

SIZES = (12, 17, 30)
"""Records of the three clients."""


class FixedGate(NoiseGate):
    """Releases public values whatever it is given: what still differs between two data sets left a client unprotected."""

    def release(self, value: Tensor, part: int = 0) -> Tensor:
        super().release(value, part)
        rows = [
            generator(b"fixed", "release", int(client), self._granted.round, part) for client in self._granted.clients
        ]
        return torch.stack([torch.from_numpy(row.standard_normal(value.shape[1])) for row in rows]).to(value.dtype)

    def release_rows(self, value: Tensor, counts: Sequence[int] | np.ndarray, part: int = 0) -> Tensor:
        super().release_rows(value, counts, part)
        draw = generator(b"fixed", "rows", round=self._granted.round, grant=part)
        return torch.from_numpy(draw.standard_normal(value.shape)).to(value.dtype)

    def release_minimiser(self, solve: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        return self.release(torch.zeros_like(like))


def check_events(make: Callable[[], Method], problem: Problem | None = None) -> None:
    """Every round's event and bound are known beforehand, in the method's unit and status, for every size."""
    method = make()
    problem, _ = world(torch.float64, problem)
    charged = 0
    for t in (0, 1, 2, method.rounds) if method.opens else (1, 2, method.rounds):
        events = [method.event(problem, size, 1.0, t) for size in SIZES]
        assert len({event is None for event in events}) == 1, (
            f"round {t} is charged for some clients and not for others"
        )
        for event in events:
            if event is not None:
                assert event.unit == method.unit
                assert event.status == method.status
                assert event.noise_multiplier == 0
        if events[0] is None:
            continue
        charged += 1
        bound = method.bound(problem, np.array(SIZES), np.ones(len(SIZES)), t)
        assert bound.sensitivity.shape == (len(SIZES),)
        assert bound.parts >= 1
        assert bool((bound.sensitivity > 0).all())
        assert bool(np.isfinite(bound.sensitivity).all()) or not method.private
    assert charged, f"{method.name}: no round has an event"


def world(dtype: torch.dtype, problem: Problem | None, seed: int = 0) -> tuple[Problem, Shards]:
    """A problem (``problem`` where one is given) and the records of the three clients, in this precision."""
    draw = generator(b"world", "records", round=seed)
    total = sum(SIZES)
    features = draw.standard_normal((total, 5))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = draw.integers(0, 3, total)
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    shards = Shards.from_flat(features.astype(str(dtype).removeprefix("torch.")), labels, offsets)
    return problem or make_problem("softmax", 5, 3, 1.0), shards
