"""SPADE-DFL: derivative-free linearized ADMM over a neighbour graph, with local training and client-level privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent, Unit
from ..privacy.gate import Bound, Gate
from .local_queries import compile_stage
from .method import Cohort, GraphMethod, Increment, Network, State, sum_of_directions
from .problems.base import Problem
from .queries import DirectionKind, Estimator, local_stage, split_keys
from .regularisers import L2, NoRegulariser

# aρλ_max = 2 takes the fastest mode of consensus to rest in one round, and all others faster than any smaller gain.
_DEADBEAT = 2.0


@dataclass(frozen=True)
class SPADEDFL(GraphMethod):
    """SPEC section 3, (Z1)–(Z10).

    A smooth regulariser R is public: α∇R(x_{i,k}), taken at the released state and frozen for the round like c, joins
    every local step (Z5) and so (Z8), but not Δ, which the gate clips and perturbs. Fixed points are those of f_i + R.

    Attributes:
        rounds: K, releases a client makes.
        local_steps: τ, for all clients or one number a client.
        batch_size: b components a local step, for all clients or one number a client.
        estimator: ``paper`` (Z1–Z4), ``baseline`` (remembers values only), ``two-point`` and ``gradient`` for reference.
        direction: distribution of the query directions u.
        eta: η; mu: μ, the smoothing radius; α = ημ.
        beta: β, the correction gain; None takes aρλ_max = 2, a = ταβ, the fastest consensus on this graph.
        rho: ρ.
        clip: C, the largest norm of a client's increment; needed for privacy.
        chunk: records a component; components of a client are runs of that many records.
        query_noise: standard deviation of ζ, the noise of one function value.
        schedule: ``constant`` takes the numbers as given; ``rate`` derives η, μ, τ, β and K from ``budget`` by the
            schedule of SPEC section 3: η = eta·T^{−1/2}, μ = mu·T^{−1/6}, τ = ⌈tau0·T^{1/3}⌉, K = T/τ.
        budget: T, local steps in all, for ``schedule = "rate"``.
        tau0: τ_0 of that schedule.
        mixing_rounds: J rounds of (Z8) without data after each release.
        final_mixing: gossip rounds on a copy of the released states at the end, for the models that clients use.
    """

    rounds: int = 10
    local_steps: Any = 200
    batch_size: Any = 1
    estimator: Estimator = "baseline"
    direction: DirectionKind = "rademacher"
    eta: float = 0.1
    mu: float = 0.01
    beta: float | None = None
    rho: float = 1.0
    clip: float | None = None
    chunk: int = 1
    query_noise: float = 0.0
    schedule: Literal["constant", "rate"] = "constant"
    budget: int | None = None
    tau0: float = 1.0
    mixing_rounds: int = 0
    final_mixing: int = 0

    name: ClassVar[str] = "spade-dfl"
    source: ClassVar[str] = "SPADE-DFL: derivative-free ADMM with local training for decentralized federated learning"
    unit: ClassVar[Unit] = "client"
    per_edge: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field in ("local_steps", "batch_size"):
            given = getattr(self, field)
            values = given if isinstance(given, (list, tuple)) else [given]
            if not values or not all(isinstance(v, int) and not isinstance(v, bool) and v >= 1 for v in values):
                raise InvalidValue(f"method.{field}", given, "give a whole number ≥ 1, or a list of them, one a client")
            if isinstance(given, (list, tuple)):
                object.__setattr__(self, field, tuple(given))
        for field in ("eta", "mu", "rho", "tau0"):
            if not (0 < (value := getattr(self, field)) < math.inf):
                raise InvalidValue(f"method.{field}", value, "give a finite number > 0")
        for field in ("beta", "clip"):
            if (value := getattr(self, field)) is not None and not (0 < value < math.inf):
                raise InvalidValue(f"method.{field}", value, "give a finite number > 0, or leave it out")
        for field, least in (("rounds", 1), ("chunk", 1), ("mixing_rounds", 0), ("final_mixing", 0)):
            if (value := getattr(self, field)) < least:
                raise InvalidValue(f"method.{field}", value, f"give a whole number ≥ {least}")
        if not (0 <= self.query_noise < math.inf):
            raise InvalidValue("method.query_noise", self.query_noise, "give a number ≥ 0")
        if self.schedule == "rate":
            self._follow_rate()

    def _follow_rate(self) -> None:
        """η, μ, τ and K of SPEC section 3 from the budget T, once: afterwards the schedule is constant."""
        if self.budget is None or self.budget < 1:
            raise InvalidValue("method.budget", self.budget, 'schedule = "rate" needs T, the local steps in all')
        total = float(self.budget)
        steps = math.ceil(self.tau0 * total ** (1 / 3) - 1e-9)  # a cube's root is not whole in floating point
        derived = {
            "eta": self.eta * total ** (-1 / 2),
            "mu": self.mu * total ** (-1 / 6),
            "local_steps": steps,
            "rounds": max(1, round(total / steps)),
            "schedule": "constant",
        }
        for field, value in derived.items():
            object.__setattr__(self, field, value)

    def per_client(self, field: Literal["local_steps", "batch_size"], clients: int) -> np.ndarray:
        """``[N]`` int64: τ_i or b_i of all clients. Raises InvalidValue if a list has another length."""
        given = getattr(self, field)
        if isinstance(given, tuple) and len(given) != clients:
            raise InvalidValue(
                f"method.{field}", list(given), f"give one number, or one for each of the {clients} clients"
            )
        return np.broadcast_to(np.asarray(given, dtype=np.int64), clients).copy()

    def gains(self, clients: int) -> np.ndarray:
        """``[N]`` a_i = τ_i·α·β, what multiplies the correction over a whole round (Z8)."""
        assert self.beta is not None, "settle() comes first"
        return self.per_client("local_steps", clients) * (self.eta * self.mu * self.beta)

    def settle(self, network: Network, problem: Problem, sizes: np.ndarray) -> tuple[GraphMethod, list[str]]:
        steps, batch = self.per_client("local_steps", network.clients), self.per_client("batch_size", network.clients)
        components = -(-sizes // self.chunk)
        if (short := np.flatnonzero(batch > components)).size:
            client = int(short[0])
            cure = f"client {client} has {components[client]} components; lower it, or method.chunk"
            raise InvalidValue("method.batch_size", int(batch[client]), cure)
        alpha, method = self.eta * self.mu, self
        if self.beta is None:
            largest = network.lambda_max if network.clients > 1 else 1.0
            method = replace(self, beta=_DEADBEAT / (self.rho * largest * int(steps.max()) * alpha))
        largest = network.check_stability(self.rho, method.gains(network.clients))
        curvature = problem.smoothness + _curvature(problem)
        # A network's loss has no L to compare with.
        known = math.isfinite(curvature)
        warning = network.curvature_warning(largest, int(steps.max()), alpha, curvature) if known else None
        return method, [] if warning is None else [warning]

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        self.per_client("local_steps", len(sizes))
        if not isinstance(problem.regulariser, (NoRegulariser, L2)):
            kind = type(problem.regulariser).__name__
            raise InvalidValue("problem.regulariser", kind, "spade-dfl takes a gradient of it; give none or l2")
        if private and self.clip is None:
            raise InvalidValue("method.clip", None, "privacy needs a bound on a client's increment; give one > 0")

    def compile(self, problem: Problem, dtype: str) -> None:
        compile_stage(problem, dtype, self.estimator, self.direction)

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        return GaussianEvent(unit="client", status=self.status)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        # Neighbours differ in a client's whole data set: two clipped increments are at most 2C apart (Z7).
        clip = self.clip
        return Bound(np.full(len(sizes), 0.0 if clip is None else 2 * clip), clip)

    def init(self, start: Tensor) -> State:
        return {"x": start, "y": torch.zeros_like(start)}

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        """(Z2)–(Z7): the local stage against the frozen correction, clipped and perturbed once; less τ_i·α·∇R(x)."""
        steps, batch = self._own("local_steps", cohort.clients), self._own("batch_size", cohort.clients)
        assert self.beta is not None
        alpha, curvature = self.eta * self.mu, _curvature(cohort.problem)
        correction = (self.rho * pull + state["y"]).mul_(alpha * self.beta)
        if curvature:
            correction.add_(state["x"], alpha=alpha * curvature)
        stage = local_stage(
            cohort.problem,
            cohort.shards,
            cohort.slots,
            state["x"],
            correction,
            estimator=self.estimator,
            direction=self.direction,
            eta=self.eta,
            mu=self.mu,
            steps=steps,
            batch=batch,
            chunk=self.chunk,
            query_noise=self.query_noise,
            keys=split_keys(gate.stream_keys("queries")),
            weights=cohort.weights,
        )
        heading = sum_of_directions(stage.delta)
        released = gate.release(stage.delta)
        if curvature:
            pull_in = torch.as_tensor(steps * (alpha * curvature), dtype=released.dtype)
            released.addcmul_(state["x"], pull_in[:, None], value=-1)
        return Increment(released, {"queries": int(stage.queries.sum())}, heading)

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        """(Z8) and (Z10): public arithmetic on released values."""
        assert self.beta is not None
        gains = torch.as_tensor(self._own("local_steps", clients) * (self.eta * self.mu * self.beta), dtype=pull.dtype)
        correction = (self.rho * pull).add_(state["y"])
        x = torch.addcmul(state["x"], correction, gains[:, None], value=-1)
        if increment is not None:
            x.add_(increment)
        return {"x": x, "y": torch.add(state["y"], pull, alpha=self.rho / 2)}

    def _own(self, field: Literal["local_steps", "batch_size"], clients: np.ndarray) -> np.ndarray:
        given = getattr(self, field)
        if isinstance(given, tuple):
            return np.asarray(np.asarray(given, dtype=np.int64)[clients])
        return np.full(len(clients), given, dtype=np.int64)


def _curvature(problem: Problem) -> float:
    """w of R(x) = (w/2)‖x‖², whose gradient is w·x; 0 without a regulariser."""
    return problem.regulariser.weight if isinstance(problem.regulariser, L2) else 0.0
