"""A local stage of queries in a method over Metropolis weights: what DP-DSGD and DP gradient tracking share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent, Unit
from ..privacy.gate import Bound, Gate
from .gossip import GossipMethod, check_positive, check_regulariser, check_whole, curvature
from .method import Cohort, sum_of_directions
from .problems.base import Problem
from .queries import DirectionKind, Estimator, local_stage, split_keys
from .shards import Shards


@dataclass(frozen=True)
class LocalQueries(GossipMethod):
    """Each round a client makes τ local steps from a public point, by any estimator of SPADE-DFL (Z1, Z3, Z4), and
    releases the increment Δ_i = −η Σ_t ĝ of (Z6), clipped at C and perturbed once (Z7).

    Sensitivity. Neighbours differ in one client's whole data set. The point where the stage starts is a function of what
    was released before, so given the releases the two runs start alike and their clipped increments are two points of a
    ball of radius C: at most 2C apart, whatever the estimator, the number of steps and the draws. One release is a
    Gaussian event with sensitivity 2C.

    Attributes:
        rounds: K, releases a client makes.
        local_steps: τ.
        batch_size: b components a local step.
        estimator: ``baseline`` (remembers values only), ``paper`` (one query and a memory of directions), ``two-point``,
            or ``gradient`` (exact gradients of components).
        direction: distribution of the query directions u.
        eta: η; mu: μ, the smoothing radius; a local step is ημ along the gradient.
        clip: C, the largest norm of a client's increment; needed for privacy.
        chunk: records a component.
        query_noise: standard deviation of the noise of one function value.
        mixing_rounds: exchanges without data after each release, W once more each: post-processing.
        final_mixing: gossip rounds at the end, for the models that clients use: post-processing.
    """

    rounds: int = 10
    local_steps: int = 200
    batch_size: int = 1
    estimator: Estimator = "baseline"
    direction: DirectionKind = "rademacher"
    eta: float = 0.1
    mu: float = 0.01
    clip: float | None = None
    chunk: int = 1
    query_noise: float = 0.0
    mixing_rounds: int = 0
    final_mixing: int = 0

    unit: ClassVar[Unit] = "client"

    def __post_init__(self) -> None:
        check_whole(self, rounds=1, local_steps=1, batch_size=1, chunk=1, mixing_rounds=0, final_mixing=0)
        check_positive(self, "eta", "mu", "clip")
        if not 0 <= self.query_noise < float("inf"):
            raise InvalidValue("method.query_noise", self.query_noise, "give a number ≥ 0")

    @property
    def reach(self) -> float:
        """ημτ: an increment is −ημτ times a gradient where the loss is linear."""
        return self.eta * self.mu * self.local_steps

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_regulariser(self.name, problem)
        components = -(-sizes // self.chunk)
        if (client := int(components.argmin())) >= 0 and self.batch_size > components[client]:
            cure = f"client {client} has {components[client]} components; lower it, or method.chunk"
            raise InvalidValue("method.batch_size", self.batch_size, cure)
        if private and self.clip is None:
            raise InvalidValue("method.clip", None, "privacy needs a bound on a client's increment; give one > 0")

    def compile(self, problem: Problem, dtype: str) -> None:
        compile_stage(problem, dtype, self.estimator, self.direction)

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        return GaussianEvent(unit="client", status=self.status)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        return clipped_bound(len(sizes), self.clip)

    def explore(self, x: Tensor, cohort: Cohort, gate: Gate) -> tuple[Tensor, Tensor, dict[str, int]]:
        """Δ̃_i ``[C, d]`` of a stage from the public ``x`` ``[C, d]``, out of the gate; where it went; the counts.

        R's gradient at ``x`` bends the path of the stage and is no part of Δ̃: it is public.
        """
        count = len(cohort)
        drift = torch.mul(x, self.eta * self.mu * curvature(cohort.problem))
        stage = local_stage(
            cohort.problem,
            cohort.shards,
            cohort.slots,
            x,
            drift,
            estimator=self.estimator,
            direction=self.direction,
            eta=self.eta,
            mu=self.mu,
            steps=np.full(count, self.local_steps),
            batch=np.full(count, self.batch_size),
            chunk=self.chunk,
            query_noise=self.query_noise,
            keys=split_keys(gate.stream_keys("queries")),
            weights=cohort.weights,
        )
        heading = sum_of_directions(stage.delta)
        return gate.release(stage.delta), heading, {"queries": int(stage.queries.sum())}


def clipped_bound(clients: int, clip: float | None) -> Bound:
    """Two increments clipped at C are at most 2C apart. Without a clip there is no bound, and no noise is added: 0."""
    return Bound(np.full(clients, 0.0 if clip is None else 2 * clip), clip)


def compile_stage(problem: Problem, dtype: str, estimator: Estimator, direction: DirectionKind) -> None:
    """One query of a single record of zeros: numba keeps the machine code that it makes."""
    features = np.zeros((1, problem.n_features), dtype=dtype)
    labels = np.zeros(1, dtype=np.int64 if problem.has_accuracy else dtype)
    shards = Shards.from_flat(features, labels, np.array([0, 1]))
    x = torch.zeros(1, problem.dim, dtype=shards.features.dtype)
    one = np.ones(1, dtype=np.int64)
    options: dict[str, Any] = {"estimator": estimator, "direction": direction, "eta": 1.0, "mu": 1.0}
    slots = torch.zeros(1, dtype=torch.int64)
    local_stage(problem, shards, slots, x, x, steps=one, batch=one, keys=split_keys([0]), **options)
