"""FedSPD-DP: stochastic primal-dual learning with local steps, partial participation and record-level privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import EpochEvent, Event, GaussianEvent, IidEvent, IndependentEvent, Status, Unit
from ..privacy.gate import Bound, Gate
from .denoise import carried_noise, kept_share
from .local_steps import Gradients
from .method import Cohort, ServerMethod, State
from .problems.base import Problem
from .schedule import Schedule


@dataclass(frozen=True)
class FedSPDDP(ServerMethod):
    """SPEC section 2, (S1)–(C4).

    Attributes:
        rounds: T.
        participants: K clients a round, uniform without replacement; ``None`` is all of them.
        local_steps: Q.
        batch_size: b records a step; ignored where ``batches`` is ``"full"``.
        batches: ``epoch`` (Q disjoint batches), ``independent`` (each of distinct records), ``iid`` (with replacement),
            ``full`` (all m_i records at every step).
        rho: ρ, the penalty.
        gamma: γ_t, the inverse step size; a number, ``{value, shape = "constant" | "sqrt"}`` or a table over rounds.
        state: ``released``, where all that a client keeps is computed from what it released and the loss is guaranteed, or
            ``paper``, the published form, whose loss is claimed only.
        memory: s of (C4); 1 is the method itself, less forgets noise; ``auto`` forgets what in x_i is noise (C5).
            ``released`` only.
        increment_clip: C; the round's increment x̄ − x_i^{t−1} is clipped at this norm, which protects a client's whole
            data set and holds for any loss. ``released`` only.
    """

    rounds: int = 100
    participants: int | None = None
    local_steps: int = 5
    batch_size: int = 10
    batches: Literal["epoch", "independent", "iid", "full"] = "epoch"
    rho: float = 1.0
    gamma: Any = 1.0
    state: Literal["released", "paper"] = "released"
    memory: float | Literal["auto"] = 1.0
    increment_clip: float | None = None

    name: ClassVar[str] = "fedspd-dp"
    source: ClassVar[str] = "FedSPD-DP: federated stochastic primal-dual learning with differential privacy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", Schedule.parse("method.gamma", self.gamma))
        for field in ("rounds", "local_steps", "batch_size"):
            if (value := getattr(self, field)) < 1:
                raise InvalidValue(f"method.{field}", value, "give a whole number ≥ 1")
        if self.participants is not None and self.participants < 1:
            raise InvalidValue(
                "method.participants", self.participants, "give a whole number ≥ 1, or leave it out for all"
            )
        if not 1e-9 <= self.rho <= 1e9:
            raise InvalidValue("method.rho", self.rho, "give a penalty between 1e-9 and 1e9")
        if self.memory != "auto" and not 0 <= self.memory <= 1:
            raise InvalidValue("method.memory", self.memory, 'give a number from 0 to 1, or "auto"')
        if self.state == "paper" and self.memory != 1:
            raise InvalidValue("method.memory", self.memory, 'memory other than 1 needs state = "released"')
        clip = self.increment_clip
        if clip is not None and not (clip > 0 and np.isfinite(clip)):
            raise InvalidValue("method.increment_clip", clip, "give a finite norm > 0, or leave it out")
        if self.state == "paper" and clip is not None:
            raise InvalidValue("method.increment_clip", clip, 'a clipped increment needs state = "released"')

    @property
    def status(self) -> Status:
        return "guaranteed" if self.state == "released" else "claimed"

    @property
    def unit(self) -> Unit:
        return "record" if self.increment_clip is None else "client"

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        smallest = int(sizes.min())
        if self.batches == "epoch" and self.local_steps * self.batch_size > smallest:
            raise InvalidValue(
                "method.batch_size",
                self.batch_size,
                f"epoch batches take local_steps·batch_size = {self.local_steps * self.batch_size} distinct records and client "
                f"{int(sizes.argmin())} has {smallest}; lower either, raise partition.min_size, or take "
                'batches = "independent"',
            )
        if self.batches == "independent" and self.batch_size > smallest:
            raise InvalidValue(
                "method.batch_size",
                self.batch_size,
                f"client {int(sizes.argmin())} has {smallest} records; lower it, raise partition.min_size, or take "
                'batches = "full"',
            )
        if not private or self.increment_clip is not None:
            return
        if not np.isfinite(problem.gradient_bound):
            raise InvalidValue(
                "problem.clip",
                problem.clip,
                f"{problem.name} gradients have no bound; give one record's largest gradient norm, or protect whole clients "
                "by method.increment_clip",
            )
        if not problem.convex_smooth and self.local_steps > 1:
            raise InvalidValue(
                "method.local_steps",
                self.local_steps,
                f"the sensitivity bound of {problem.name}, which is not convex and smooth, holds for one local step; take 1, "
                "or clip the round's increment (method.increment_clip), which protects whole clients",
            )

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        if self.increment_clip is not None:  # whatever the batches were, and no record is drawn out of a client's set
            return GaussianEvent(status=self.status, unit="client")
        status, steps, kappa = self.status, self.local_steps, float(self.contraction(problem, weight, t))
        if self.batches == "full":
            return GaussianEvent(status=status)
        if self.batches == "epoch":
            return EpochEvent(status=status, rate=steps * self.batch_size / size, steps=steps, contraction=kappa)
        if self.batches == "independent":
            return IndependentEvent(status=status, rate=self.batch_size / size, steps=steps, contraction=kappa)
        return IidEvent(status=status, rate=_chance(size, self.batch_size * steps))

    def contraction(self, problem: Problem, weight: float | np.ndarray, t: int) -> Any:
        """κ of one step (C1): γ·max(1, L/γ − 1)/(γ + ρ), L scaled by the client's weight."""
        gamma = self.gamma.at(t)
        smoothness = np.asarray(weight) * problem.smoothness
        expansion = np.maximum(1.0, smoothness / gamma - 1) if problem.convex_smooth else np.ones_like(smoothness)
        return gamma * expansion / (gamma + self.rho)

    def average_sensitivity(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> np.ndarray:
        """Δx̄ of (C2), ``[C]``: (D2) for epoch batches, else (D1), with the batch that each kind of draw divides by."""
        gamma, steps = self.gamma.at(t), self.local_steps
        kappa = np.broadcast_to(self.contraction(problem, weights, t), sizes.shape)
        divisor = {"epoch": self.batch_size, "independent": self.batch_size, "iid": 1, "full": sizes}[self.batches]
        added = 2 * weights * problem.gradient_bound / (divisor * (gamma + self.rho))
        powers = np.power(kappa[:, None], np.arange(steps))
        if self.batches == "epoch":
            # The record sits in one batch of Q; with κ ≤ 1 the first is the worst, with κ > 1 too: it lives longest.
            return np.asarray(added / steps * powers.sum(axis=1))
        return np.asarray(added / steps * powers.cumsum(axis=1).sum(axis=1))

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        if self.increment_clip is not None:  # two clipped increments are at most 2C apart: Δx̄ = 2C
            return Bound(np.full(len(sizes), 2 * self.increment_clip), self.increment_clip)
        average = self.average_sensitivity(problem, sizes, weights, t)
        # ``released`` perturbs x̄ by ξ/2, σ = z·2Δx̄ (D3): the same as noise z·Δx̄ on x̄ itself.
        return Bound(average if self.state == "released" else 2 * average)

    def init(self, start: Tensor) -> State:
        state = {"x": start, "dual": torch.zeros_like(start)}
        if self.memory == "auto":
            state["noise"] = start.new_zeros(3)
        return state if self.state == "released" else {**state, "upload": start}

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        x, dual = state["x"], state["dual"]
        new: State = {}
        if self.memory == "auto":
            x, new["noise"] = self._denoised(state, x0, gate, t)
        elif self.memory < 1:  # (C4)
            x, dual = x0 + self.memory * (x - x0), self.memory * dual
        average = self._local_steps(x, dual, x0, cohort, gate, t)
        if self.state == "released":  # (C3)
            if self.increment_clip is None:
                x = gate.release(average)
            else:  # x is public here, and what the gate clips is the increment from it
                x = gate.release(average.sub_(x)).add_(x)
            return {**new, "x": x, "dual": torch.add(dual, x - x0, alpha=self.rho)}
        dual = torch.add(dual, average - x0, alpha=self.rho)
        return {"x": average, "dual": dual, "upload": gate.release(average + dual / self.rho)}

    def upload(self, state: State) -> Tensor:
        return state["upload"] if self.state == "paper" else torch.add(state["x"], state["dual"], alpha=1 / self.rho)

    def _denoised(self, state: State, x0: Tensor, gate: Gate, t: int) -> tuple[Tensor, Tensor]:
        """The start that (C5) keeps, ``[C, d]``, and the noise in what the round will leave, ``[C, 3]``."""
        x, noise = state["x"], state["noise"]
        away = x - x0
        share = kept_share(away, noise)
        gamma = self.gamma.at(t)
        kappa = gamma / (gamma + self.rho)
        weight = float(np.mean(kappa ** np.arange(1, self.local_steps + 1)))
        released = torch.as_tensor(gate.noise_std, dtype=torch.float64, device=x.device) ** 2
        carried = carried_noise(noise, share, weight, released).to(x.dtype)
        # x less what is lost of it, rather than x_0 plus what is kept: without noise that is x to the last bit.
        return torch.addcmul(x, away, (1 - share)[:, None].to(x.dtype), value=-1), carried

    def upload_total(self, state: State) -> Tensor:
        if self.state == "paper":
            return super().upload_total(state)
        return torch.add(state["x"].sum(dim=0), state["dual"].sum(dim=0), alpha=1 / self.rho)

    def _local_steps(self, x: Tensor, dual: Tensor, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> Tensor:
        """(C1) Q times and the average (C2), ``[C, d]``."""
        gamma, steps = self.gamma.at(t), self.local_steps
        total = gamma + self.rho
        gradients = Gradients(cohort, gate, self.batches, steps, self.batch_size)
        anchor = torch.add(
            x0 * (self.rho / total), dual, alpha=-1 / total
        )  # (ρ x_0 − λ)/(γ + ρ), the same in all steps
        average: Tensor | None = None
        for step in range(steps):
            point = torch.add(anchor, x, alpha=gamma / total)
            gradients.add(point, x, step, -1 / total)
            x = cohort.problem.regulariser.prox_(point, 1 / total)
            average = x / steps if average is None else average.add_(x, alpha=1 / steps)
        assert average is not None
        return average

    def describe(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "batches": self.batches,
            "Q": self.local_steps,
            "b": self.batch_size,
            "ρ": self.rho,
        }


def _chance(size: int, draws: int) -> float:
    """1 − (1 − 1/m)^n, that one of m records is among n drawn with replacement."""
    return 1.0 if size == 1 else float(-np.expm1(draws * np.log1p(-1.0 / size)))
