"""ADMM over a graph with penalties that grow, each client's its own, decoupled from the dual step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import InvalidValue
from .graph_admm import PerturbedObjective
from .method import GraphMethod, Network
from .problems.base import Problem


@dataclass(frozen=True)
class PenaltyADMM(PerturbedObjective):
    """Modified ADMM of Zhang, Khalili & Liu (2018), with private penalties η_i(t) = η_i·q^{t−1} in (A1) and a fixed θ in (A2):

        x_i^{t+1} = argmin_x O_i(x) + 2⟨λ_i^t, x⟩ + η_i(t+1) Σ_j ‖x + ε_i − ½(x_i^t + x_j^t)‖²
        λ_i^{t+1} = λ_i^t + (θ/2) Σ_j (x_i^{t+1} − x_j^{t+1})

    The noise stands inside the penalty, so that the linear term is b_i = 2η_i(t)d_i ε_i with ε_i of density ∝ exp(−α‖ε‖) and the
    same α in all rounds: its part of a round's loss, α·2w_iG/(m_i·2η_i(t)d_i), falls like 1/η_i(t), and so does the curvature
    term (A5). Here a round's whole ε is made to fall like that, ε_t = ε_1/q^{t−1} (``noise_growth``), and the gate sets the
    noise for it, net of (A5).

    Privacy: guaranteed, one record of a client, pure ε_t; derivation and remainder as in `PerturbedObjective`, with
    Λ_i = w + φ + 2η_i(t)d_i. Penalties are public; that each client has its own matters to convergence, not to the account.

    Attributes:
        eta: η_i(1), one number or one a client.
        growth: q ≥ 1 a round.
        theta: θ; left out: the smallest η_i(1).
    """

    eta: Any = 0.5
    growth: float = 1.05
    theta: float | None = None

    name: ClassVar[str] = "penalty-admm"
    source: ClassVar[str] = (
        "Zhang, Khalili & Liu 2018, Improving the privacy and accuracy of ADMM-based distributed algorithms"
    )

    def __post_init__(self) -> None:
        given = self.eta
        values = given if isinstance(given, (list, tuple)) else [given]
        if not values or not all(isinstance(v, (int, float)) and 0 < v < float("inf") for v in values):
            raise InvalidValue("method.eta", given, "give a finite number > 0, or a list of them, one a client")
        object.__setattr__(self, "eta", float(values[0]))  # for the checks of one number
        super().__post_init__()
        object.__setattr__(self, "eta", tuple(float(v) for v in given) if isinstance(given, (list, tuple)) else given)
        if not 1 <= self.growth < float("inf"):
            raise InvalidValue("method.growth", self.growth, "penalties must not fall; give a number ≥ 1")
        if (self.rounds - 1) * math.log(self.growth) > math.log(1e9):
            raise InvalidValue(
                "method.growth", self.growth, "the last penalty is 1e9 times the first; give a smaller one"
            )
        if self.theta is not None and not 0 < self.theta < float("inf"):
            raise InvalidValue("method.theta", self.theta, "give a finite number > 0, or leave it out")

    def settle(self, network: Network, problem: Problem, sizes: np.ndarray) -> tuple[GraphMethod, list[str]]:
        if isinstance(self.eta, tuple) and len(self.eta) != network.clients:
            cure = f"give one number, or one for each of the {network.clients} clients"
            raise InvalidValue("method.eta", list(self.eta), cure)
        return super().settle(network, problem, sizes)

    def noise_growth(self, t: int) -> float:
        return float(self.growth ** (t - 1))

    def penalty(self, clients: np.ndarray, t: int) -> np.ndarray:
        first = np.asarray(self.eta)[clients] if isinstance(self.eta, tuple) else np.full(len(clients), self.eta)
        return np.asarray(first * self.growth ** (t - 1))

    @property
    def dual_step(self) -> float:
        if self.theta is not None:
            return self.theta
        return float(min(self.eta)) if isinstance(self.eta, tuple) else float(self.eta)
