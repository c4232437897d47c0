"""LT-ADMM and LT-ADMM-VR: ADMM over a graph with local training by gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent, Unit
from ..privacy.gate import Bound, Gate
from .gossip import check_batch, check_positive, check_regulariser, check_whole, curvature, local_gradient
from .local_queries import clipped_bound, compile_stage
from .method import Cohort, GraphMethod, Increment, Network, State, sum_of_directions
from .problems.base import Problem
from .queries import local_stage, split_keys

# τβρλ_max = 2 takes the fastest mode of consensus to rest in one round, and all others faster than any smaller gain.
_DEADBEAT = 2.0


@dataclass(frozen=True)
class LTADMM(GraphMethod):
    """Ren, Bastianello, Johansson & Parisini (2024): SPEC section 3's update with gradients in place of queries.

        c_i = ρ d_i x_i − Σ_j z_ij                                   frozen for the round, as in (Z2)
        φ⁰ = x_i;   φ^{s+1} = φ^s − γ ĝ(φ^s) − β c_i,   s < τ;        x_i ← φ^τ
        z_ij ← ½(z_ij − z_ji + 2ρ x_j)                                as in (Z9), by the Laplacian (Z10)

    ``memory = false`` is LT-ADMM: ĝ is the gradient of b records, or of all. ``memory = true`` is LT-ADMM-VR: ĝ is the
    SAGA estimator of (Z4) on single records, its memory filled anew at x_i in every round. Here the memory then keeps the
    gradients that were seen, at φ^s; the paper asks for those b records once more, at φ^{s+1}.
    Fixed points with full gradients or memory are exactly the optima of (P1). A regulariser's gradient is taken at x_i
    and frozen for the round.

    Privacy: without ``clip`` none, a reference. With it Δ_i = −γ Σ ĝ is clipped at C and perturbed once (Z7), as in
    SPADE-DFL: guaranteed, for a client's whole data set; sensitivity 2C, since given the releases both data sets
    start the stage alike, and a Gaussian event a round. x_i and y_i are functions of releases.

    Attributes:
        rounds: K.
        local_steps: τ.
        batch_size: b records a local step; left out: all.
        memory: whether to reduce the variance (LT-ADMM-VR).
        gamma: γ, a local step along the gradient.
        beta: β, the gain of the correction; left out: τβρλ_max = 2, the fastest consensus on this graph.
        rho: ρ.
        clip: C, the largest norm of a client's increment; needed for privacy.
        mixing_rounds: rounds without data after each release; final_mixing: gossip rounds at the end.
    """

    rounds: int = 20
    local_steps: int = 20
    batch_size: int | None = None
    memory: bool = False
    gamma: float = 0.1
    beta: float | None = None
    rho: float = 1.0
    clip: float | None = None
    mixing_rounds: int = 0
    final_mixing: int = 0

    name: ClassVar[str] = "lt-admm"
    source: ClassVar[str] = "Ren, Bastianello, Johansson & Parisini 2024, Distributed learning by local training ADMM"
    unit: ClassVar[Unit] = "client"

    def __post_init__(self) -> None:
        check_whole(self, rounds=1, local_steps=1, mixing_rounds=0, final_mixing=0)
        check_positive(self, "gamma", "beta", "rho", "clip")
        if self.batch_size is not None:
            check_whole(self, batch_size=1)

    def settle(self, network: Network, problem: Problem, sizes: np.ndarray) -> tuple[GraphMethod, list[str]]:
        method, steps = self, self.local_steps
        if self.beta is None:
            largest = network.lambda_max if network.clients > 1 else 1.0
            method = replace(self, beta=_DEADBEAT / (self.rho * largest * steps))
        assert method.beta is not None
        largest = network.check_stability(self.rho, np.full(network.clients, steps * method.beta))
        total = problem.smoothness + curvature(problem)
        warning = network.curvature_warning(largest, steps, self.gamma, total) if math.isfinite(total) else None
        return method, [] if warning is None else [warning]

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_regulariser(self.name, problem)
        check_batch(self.batch_size, sizes)
        if private and self.clip is None:
            raise InvalidValue("method.clip", None, "privacy needs a bound on a client's increment; give one > 0")

    def compile(self, problem: Problem, dtype: str) -> None:
        if self.memory:
            compile_stage(problem, dtype, "gradient", "rademacher")

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        return GaussianEvent(unit="client", status=self.status)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        return clipped_bound(len(sizes), self.clip)

    def init(self, start: Tensor) -> State:
        return {"x": start, "y": torch.zeros_like(start)}

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        assert self.beta is not None, "settle() comes first"
        weight = self.gamma * curvature(cohort.problem)
        correction = (self.rho * pull).add_(state["y"]).mul_(self.beta).add_(state["x"], alpha=weight)
        train = self._with_memory if self.memory else self._without_memory
        delta, asked = train(state["x"], correction, cohort, gate)
        heading = sum_of_directions(delta)
        released = gate.release(delta).add_(state["x"], alpha=-self.local_steps * weight)
        return Increment(released, {"queries": asked}, heading)

    def _without_memory(self, x: Tensor, correction: Tensor, cohort: Cohort, gate: Gate) -> tuple[Tensor, int]:
        phi, delta, asked = x, torch.zeros_like(x), 0
        weights = torch.as_tensor(cohort.weights, dtype=x.dtype)[:, None]
        if self.batch_size is not None:
            drawn = gate.batches("independent", cohort.sizes, self.local_steps, self.batch_size)
        for step in range(self.local_steps):
            if self.batch_size is None:
                gradient, count = local_gradient(phi, cohort, gate, None)
            else:
                here = drawn[:, step * self.batch_size : (step + 1) * self.batch_size]
                gradient, count = torch.zeros_like(x), here.numel()
                cohort.problem.add_gradient(gradient, phi, *cohort.shards.rows(cohort.slots, here))
                gradient.mul_(weights)
            delta.add_(gradient, alpha=-self.gamma)
            phi = torch.add(x, delta).sub_(correction, alpha=step + 1)
            asked += count
        return delta, asked

    def _with_memory(self, x: Tensor, correction: Tensor, cohort: Cohort, gate: Gate) -> tuple[Tensor, int]:
        stage = local_stage(
            cohort.problem,
            cohort.shards,
            cohort.slots,
            x,
            correction,
            estimator="gradient",
            direction="rademacher",
            eta=self.gamma,
            mu=1.0,
            steps=np.full(len(cohort), self.local_steps),
            batch=cohort.sizes if self.batch_size is None else np.full(len(cohort), self.batch_size),
            keys=split_keys(gate.stream_keys("queries")),
            weights=cohort.weights,
        )
        return stage.delta, int(stage.queries.sum())

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        assert self.beta is not None
        correction = (self.rho * pull).add_(state["y"])
        x = torch.sub(state["x"], correction, alpha=self.local_steps * self.beta)
        if increment is not None:
            x.add_(increment)
        return {"x": x, "y": torch.add(state["y"], pull, alpha=self.rho / 2)}
