"""ADMM over a graph with exact local steps: the skeleton of the private variants, and what their noise is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, PureEvent, Unit
from ..privacy.gate import Bound, Gate
from .gossip import check_positive, check_regulariser, check_whole, curvature
from .local_argmin import minimise
from .method import Cohort, GraphMethod, Increment, Network, State, sum_of_directions
from .problems.base import Problem
from .problems.linear import LinearProblem
from .problems.softmax import SoftmaxProblem


@dataclass(frozen=True)
class GraphADMM(GraphMethod):
    """The skeleton (Zhang & Zhu 2017, section II; Mota et al. 2013), O_i = f_i + R strongly convex, ``pull`` = ℒx:

        x_i^{t+1} = argmin_x O_i(x) + 2⟨λ_i^t, x⟩ + η Σ_{j∈𝒩_i} ‖x − ½(x_i^t + x_j^t)‖²                      (A1)
        λ_i^{t+1} = λ_i^t + (η/2) Σ_{j∈𝒩_i} (x_i^{t+1} − x_j^{t+1})                                           (A2)

    (A1) has Σ_j (x_i + x_j) = 2d_i x_i − (ℒx)_i, so it is argmin w_i f_i(x) + (Λ_i/2)‖x‖² + ⟨v_i, x⟩ with
    Λ_i = w + φ + 2ηd_i, v_i = 2λ_i − 2ηd_i x_i + η(ℒx)_i, and (A2) is λ_i += (η/2)(ℒx)_i, which each round begins
    with. Everything in v_i is known from releases.

    Neighbours differ in one record of a client. Λ_i bounds the curvature of its objective from below, so that
        Δ_i = 2 w_i G/m_i                    the gradients of two data sets' objectives differ by no more,     (A3)
        Δ_i/Λ_i                              and so their minimisers by no more.                               (A4)

    Attributes:
        rounds: T.
        eta: η, the penalty.
        tolerance: of the gradient where (A1) counts as solved, relative to ‖v_i‖ where that is above 1.
        final_mixing: gossip rounds at the end, for the models that clients use.
    """

    rounds: int = 20
    eta: float = 0.5
    tolerance: float = 1e-10
    final_mixing: int = 0
    neighbours: tuple[int, ...] = field(default=(), init=False, repr=False)

    unit: ClassVar[Unit] = "record"

    def __post_init__(self) -> None:
        check_whole(self, rounds=1, final_mixing=0)
        check_positive(self, "eta", "tolerance")

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_regulariser(self.name, problem)
        if not (problem.convex_smooth and math.isfinite(problem.smoothness)):
            raise InvalidValue("problem.kind", problem.name, f"{self.name} solves convex smooth problems exactly")
        if private and not math.isfinite(problem.gradient_bound):
            cure = f"{problem.name} gradients have no bound; give one record's largest gradient norm"
            raise InvalidValue("problem.clip", problem.clip, cure)

    def settle(self, network: Network, problem: Problem, sizes: np.ndarray) -> tuple[GraphMethod, list[str]]:
        method = replace(self)
        object.__setattr__(method, "neighbours", tuple(int(degree) for degree in network.degrees))
        if not (method.convexity(problem, np.arange(network.clients), 1) > 0).all():
            cure = 'a client without neighbours needs a strongly convex objective; give problem.regulariser = "l2"'
            raise InvalidValue("problem.weight", curvature(problem), cure)
        return method, []

    def penalty(self, clients: np.ndarray, t: int) -> np.ndarray:
        """``[C]`` η_i of round ``t`` in (A1)."""
        return np.full(len(clients), self.eta)

    @property
    def dual_step(self) -> float:
        """η of (A2)."""
        return self.eta

    @property
    def extra_curvature(self) -> float:
        """φ: curvature that the method itself adds to objectives."""
        return 0.0

    def pressure(self, clients: np.ndarray, t: int) -> np.ndarray:
        """``[C]`` 2η_i d_i."""
        return np.asarray(2 * self.penalty(clients, t) * np.asarray(self.neighbours, dtype=float)[clients])

    def convexity(self, problem: Problem, clients: np.ndarray, t: int) -> np.ndarray:
        """``[C]`` Λ_i."""
        return curvature(problem) + self.extra_curvature + self.pressure(clients, t)

    def change(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """``[C]`` Δ_i of (A3)."""
        return np.asarray(2 * weights * problem.gradient_bound / sizes)

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        """For clients of unknown degree: that of the client with fewest neighbours, which covers all."""
        fewest = np.full(len(sizes), int(np.argmin(self.neighbours)))
        return self.bound_at(problem, sizes, weights, fewest, t)

    def init(self, start: Tensor) -> State:
        return {"x": start, "dual": torch.zeros_like(start)}

    def next_dual(self, state: State, pull: Tensor) -> Tensor:
        """(A2), of the last round's models."""
        return torch.add(state["dual"], pull, alpha=self.dual_step / 2)

    def linear(self, state: State, pull: Tensor, clients: np.ndarray, t: int) -> Tensor:
        """``[C, d]`` float64 v_i."""
        eta, pressure = (_column(each) for each in (self.penalty(clients, t), self.pressure(clients, t)))
        dual, x = self.next_dual(state, pull).to(torch.float64), state["x"].to(torch.float64)
        return 2 * dual - pressure * x + eta * pull.to(torch.float64)

    def solve(self, state: State, linear: Tensor, cohort: Cohort, t: int, relative: bool = True) -> Tensor:
        """(A1), float64 ``[C, d]``."""
        convexity = torch.from_numpy(self.convexity(cohort.problem, cohort.clients, t))
        scale = torch.linalg.vector_norm(linear, dim=1).clamp_(min=1.0) if relative else 1.0
        return minimise(cohort, state["x"], convexity, linear, self.tolerance * scale)

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        x = state["x"].clone() if increment is None else state["x"] + increment
        return {"x": x, "dual": self.next_dual(state, pull)}


@dataclass(frozen=True)
class PerturbedObjective(GraphADMM):
    """(A1) with ⟨b_i, x⟩ added, b_i of density ∝ exp(−ζ‖b‖), and its minimiser released: objective perturbation.

    The account. Let J_D be a client's objective without b. Its minimiser x with noise b satisfies b = −∇J_D(x), a
    one-to-one map, so the density of x is exp(−ζ‖∇J_D(x)‖)·det ∇²J_D(x) up to a constant. For neighbours D, D′:
      * the first factor changes by e^{ζΔ_i} at most, by (A3);
      * ∇²J_D = H + A and ∇²J_{D′} = H + A′ with H ⪰ Λ_i·I common and A, A′ ⪰ 0 the replaced record's own w_i/m_i ∇²ℓ.
        det(H + A)/det(H + A′) ≤ det(H + A)/det H = det(I + H^{−½}AH^{−½}) ≤ Π_r (1 + a_r/Λ_i), a_r the eigenvalues of A.
        A has rank at most r (one a score; k − 1 for softmax, whose record Hessian has trace ≤ (1 − 1/k)‖a‖²), so
        ln of that is at most
            κ_i = r ln(1 + w_i c/(m_i Λ_i)),   c = L, for softmax ‖a‖²/k                                          (A5)
    So a round is (ζΔ_i + κ_i, 0)-DP given what was released before, and the gate takes 1/ζ = Δ_i/(ε − κ_i) for a round's ε.
    Chaudhuri et al. (2011) and Zhang & Zhu (2017) bound both determinants and have 2 ln(1 + c/(m_iΛ_i)) where (A5) has
    ln(1 + c/(m_iΛ_i)), for one score: never less than this. As there, φ raises Λ_i where κ_i would eat up ε; a run in which it
    does is refused before it starts.

    What remains. The account is that of the exact minimiser. (A1) is solved in float64 until the gradient is below
    ``tolerance`` (times ‖v_i‖ above 1), so what is released lies within tolerance/Λ_i of it: of the order of rounding, and like
    rounding, here and in every sampler of noise, not in the account. All that a client keeps is a function of releases:
    guaranteed, up to that remainder.

    Attributes:
        phi: φ, further curvature (φ/2)‖x‖² of every objective, which biases the optimum.
    """

    phi: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.phi < math.inf:
            raise InvalidValue("method.phi", self.phi, "give a finite number ≥ 0")

    @property
    def extra_curvature(self) -> float:
        return self.phi

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event | None:
        return PureEvent(unit="record", status=self.status)

    def bound_at(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, clients: np.ndarray, t: int) -> Bound:
        rank, largest = record_curvature(problem)
        kappa = rank * np.log1p(weights * largest / (sizes * self.convexity(problem, clients, t)))
        return Bound(self.change(problem, sizes, weights), noise="radial", curvature=np.asarray(kappa))

    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        linear = self.linear(state, pull, cohort.clients, t)
        x = gate.release_minimiser(lambda b: self.solve(state, linear + b, cohort, t), state["x"])
        moved = x - state["x"]
        return Increment(moved, {}, sum_of_directions(moved))


def record_curvature(problem: Problem) -> tuple[int, float]:
    """(r, c): the rank of one record's Hessian, and a bound on the mean of its r largest eigenvalues."""
    if type(problem) is SoftmaxProblem:
        return problem.n_outputs - 1, problem.record_norm**2 / problem.n_outputs
    return problem.n_outputs if isinstance(problem, LinearProblem) else problem.dim, problem.smoothness


def _column(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(numbers, dtype=np.float64))[:, None]
