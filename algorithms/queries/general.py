"""The local stage (Z2–Z6) of models that are known by their function values alone, in torch.

The draws are those of the compiled stage, so both agree to rounding where both apply. All clients of a host take a local
step together; a step's queries go through in blocks, so that few directions are held as numbers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..problems.base import Problem
from ..shards import Shards
from .directions import draw_directions
from .draws import batches, noises

Values = Callable[[Tensor, Tensor, Tensor], Tensor]
Ints = NDArray[np.int64]

# Numbers of directions held at once: 32 MB of float64.
BLOCK = 1 << 22


@dataclass(frozen=True)
class Cost:
    """What a query is: see ``local_stage`` for the fields."""

    estimator: str
    direction: str
    shape: tuple[int, int]
    eta: float
    mu: float
    noise: float
    chunk: int


@dataclass(frozen=True)
class Block:
    """Queries of equal size: ``row`` client, ``h`` component, ``at`` its place in flat memory, ``scale`` of its value."""

    row: Ints
    h: Ints
    at: Ints
    scale: Tensor
    features: Tensor
    labels: Tensor


class GeneralStage:
    """One round of a cohort. ``values(x [q, d], features [q, n, p], labels [q, n]) -> [q]`` are mean losses.

    For ``gradient`` the memory is a table of all ΣH_i gradients.
    """

    def __init__(
        self,
        problem: Problem,
        values: Values,
        shards: Shards,
        slots: Tensor,
        x0: Tensor,
        correction: Tensor,
        cost: Cost,
        keys: NDArray[np.uint64],
        steps: Ints,
        batch: Ints,
        weights: NDArray[np.float64],
    ) -> None:
        self.problem, self.values, self.shards, self.slots, self.cost = problem, values, shards, slots, cost
        self.keys, self.steps, self.batch, self.weights = keys, steps, batch, weights
        self.sizes = shards.sizes[slots].cpu().numpy()
        self.counts = -(-self.sizes // cost.chunk)
        self.start = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])
        self.x0, self.correction = x0, correction
        self.phi, self.delta, self.mean = x0, torch.zeros_like(x0), torch.zeros_like(x0)
        self.memory = np.zeros(self.start[-1])
        self.visits = np.zeros(self.start[-1], np.int64)
        rows = int(self.start[-1]) if cost.estimator == "gradient" else 0
        self.table = x0.new_zeros(rows, x0.shape[1])
        self.queries = np.zeros(len(x0), np.int64)

    def run(self) -> tuple[Tensor, Ints, NDArray[np.float64]]:
        """Δ_i ``[C, d]``, queries ``[C]`` and the mean of each client's first values ``[C]``."""
        first = np.repeat(np.arange(len(self.counts)), self.counts)
        each = np.concatenate([np.arange(count) for count in self.counts])
        self._visit(first, each, 0, self.mean, 1.0 / self.counts)
        level = np.add.reduceat(self.memory, self.start[:-1]) / self.counts
        drawn = [batches(*of) for of in zip(self.keys, self.counts, self.steps, self.batch, strict=True)]
        inverse = self._column(1.0 / self.batch)
        kept = 0.0 if self.cost.estimator == "baseline" else 1.0
        share = self._column(kept / self.counts)
        change = torch.zeros_like(self.phi)
        for t in range(int(self.steps.max(initial=0))):
            active = np.flatnonzero(self.steps > t)
            row = np.repeat(active, self.batch[active])
            self._visit(row, np.concatenate([drawn[i][t] for i in active]), t + 1, change.zero_(), np.ones(len(drawn)))
            here = torch.from_numpy(active).to(self.phi.device)
            self.delta[here] -= (change * inverse + self.mean)[here]  # (Z4, Z6)
            self.phi = self.x0 - (t + 1) * self.correction + self.delta  # (Z5), as it is for those that go on
            self.mean += share * change
        return self.delta, self.queries, level

    def _visit(self, row: Ints, h: Ints, visit: int, target: Tensor, factor: NDArray[np.float64]) -> None:
        """Queries at φ; ``target += factor·η·(g_h(φ) − r_h)`` and r_h ← g_h(φ) (Z3, Z4). Visit 0 has no r_h yet."""
        cost = self.cost
        self.queries += (2 if cost.estimator == "two-point" else 1) * np.bincount(row, minlength=len(self.queries))
        for block in self._blocks(row, h):
            where = torch.from_numpy(block.row).to(target.device)
            scale = cost.eta * factor[block.row]
            if cost.estimator == "gradient":
                gradient, self.memory[block.at] = self._gradient(block)
                at = torch.from_numpy(block.at).to(target.device)
                target.index_add_(0, where, self._column(scale) * (gradient - self.table[at]))
                self.table[at] = gradient
                continue
            if cost.estimator == "baseline" and visit == 0:
                self.memory[block.at] = self._ask(block, self.phi[where], visit)[0]
                continue
            u = self._directions(block, np.full(len(block.row), visit))
            seen = self._seen(block, where, u, visit)
            kept = self.memory[block.at]
            if cost.estimator == "baseline":
                target.index_add_(0, where, self._column(scale * (seen - kept)) * u)
            else:
                target.index_add_(0, where, self._column(scale * seen) * u)
                if visit > 0:
                    old = self._directions(block, self.visits[block.at])
                    target.index_add_(0, where, self._column(-scale * kept) * old)
            self.memory[block.at], self.visits[block.at] = seen, visit

    def _seen(self, block: Block, where: Tensor, u: Tensor, visit: int) -> NDArray[np.float64]:
        above: NDArray[np.float64] = self._ask(block, self.phi[where] + self.cost.mu * u, visit)[0]
        if self.cost.estimator != "two-point":
            return above
        below = self._ask(block, self.phi[where] - self.cost.mu * u, visit)[1]
        return np.asarray(0.5 * (above - below))

    def _ask(self, block: Block, points: Tensor, visit: int) -> NDArray[np.float64]:
        """Values of a block's components at points ``[q, d]``, with either of the two noises of a query ``[2, q]``."""
        value = self._value(block, points)
        if self.cost.noise == 0:
            return np.stack([value, value])
        visits = np.full(len(value), visit)
        return np.asarray(value + self.cost.noise * noises(self.keys[block.row], block.h, visits).T)

    def _gradient(self, block: Block) -> tuple[Tensor, NDArray[np.float64]]:
        """μ∇f_h(φ) ``[q, d]`` and f_h(φ) ``[q]``."""
        points = self.phi[torch.from_numpy(block.row).to(self.phi.device)]
        gradient = torch.zeros_like(points)
        scale = self.cost.mu * block.scale[:, None]
        self.problem.add_gradient(gradient, points, block.features, block.labels, scale)
        return gradient, self._value(block, points)

    def _value(self, block: Block, points: Tensor) -> NDArray[np.float64]:
        with torch.no_grad():
            value = self.values(points, block.features, block.labels) * block.scale
        return np.asarray(value.double().cpu().numpy())

    def _directions(self, block: Block, visits: Ints) -> Tensor:
        dtype = np.float32 if self.phi.dtype == torch.float32 else np.float64
        u = draw_directions(self.cost.direction, *self.cost.shape, self.keys[block.row], block.h, visits, dtype)
        return torch.from_numpy(u).to(self.phi.device)

    def _blocks(self, row: Ints, h: Ints) -> Iterator[Block]:
        chunk, device = self.cost.chunk, self.phi.device
        length = np.minimum(self.sizes[row], (h + 1) * chunk) - h * chunk
        limit = max(1, BLOCK // self.phi.shape[1])
        for n in np.unique(length):
            chosen = np.flatnonzero(length == n)
            for first in range(0, len(chosen), limit):
                some = chosen[first : first + limit]
                r, c = row[some], h[some]
                records = torch.from_numpy(c[:, None] * chunk + np.arange(n)).to(device)
                features, labels = self.shards.rows(self.slots[torch.from_numpy(r).to(device)], records)
                scale = torch.from_numpy(self.weights[r] * self.counts[r] * n / self.sizes[r]).to(self.phi)
                yield Block(r, c, self.start[r] + c, scale, features.to(self.phi.dtype), labels)

    def _column(self, numbers: NDArray) -> Tensor:
        return torch.as_tensor(numbers).to(self.phi)[:, None]
