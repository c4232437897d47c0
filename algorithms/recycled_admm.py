"""Recycled ADMM: every second round is computed from what the round before released, at no privacy cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..privacy.events import Event
from .gossip import check_positive, curvature
from .graph_admm import PerturbedObjective, _column
from .method import GraphMethod, Network, State
from .problems.base import Problem


@dataclass(frozen=True)
class RecycledADMM(PerturbedObjective):
    """R-ADMM of Zhang, Khalili & Liu (2018). Odd rounds: (A1) with ⟨b_i, x⟩ added, and (A2). Its optimality condition gives the
    gradient with its noise from released values,

        g_i = −2λ_i^{t−1} − 2ηd_i(x_i^t − x_i^{t−1}) − η(ℒx^{t−1})_i  =  ∇O_i(x_i^t) + b_i                          (A6)

    (φ included), and the even round takes the linearised step of (A1) with it,

        x_i^{t+1} = x_i^t − ( g_i + 2λ_i^t + η(ℒx^t)_i )/(γ + 2ηd_i)                                                (A7)

    and (A2) again.

    Privacy: guaranteed, one record of a client, pure ε in odd rounds; derivation and remainder as in `PerturbedObjective`.
    (A6, A7) read releases alone: even rounds have no event, touch no record and are not charged, so T rounds cost ⌈T/2⌉
    releases. A client that was lost in an odd round has nothing new to read off and keeps its last g_i.

    Attributes:
        gamma: γ of (A7); left out: the largest curvature of any O_i, with which the linearised step cannot overshoot.
    """

    gamma: float | None = None

    name: ClassVar[str] = "recycled-admm"
    source: ClassVar[str] = (
        "Zhang, Khalili & Liu 2018, Recycled ADMM: improve privacy and accuracy with less computation"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "gamma")

    def settle(self, network: Network, problem: Problem, sizes: np.ndarray) -> tuple[GraphMethod, list[str]]:
        method = self
        if self.gamma is None:
            method = replace(self, gamma=problem.smoothness + curvature(problem) + self.phi)
        return super(RecycledADMM, method).settle(network, problem, sizes)

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event | None:
        return super().event(problem, size, weight, t) if t % 2 else None

    def init(self, start: Tensor) -> State:
        return super().init(start) | {"gradient": torch.zeros_like(start)}

    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        dual, gradient = self.next_dual(state, pull), state["gradient"]
        pressure = _column(self.pressure(clients, t)).to(pull.dtype)
        if t % 2 == 0:  # (A7)
            assert self.gamma is not None
            step = (gradient + 2 * dual + self.eta * pull) / (self.gamma + pressure)
            return {"x": state["x"] - step, "dual": dual, "gradient": gradient}
        if increment is None:
            return {"x": state["x"].clone(), "dual": dual, "gradient": gradient}
        read = -2 * dual - pressure * increment - self.eta * pull  # (A6)
        silent = (increment == 0).all(dim=1, keepdim=True)
        return {"x": state["x"] + increment, "dual": dual, "gradient": torch.where(silent, gradient, read)}
