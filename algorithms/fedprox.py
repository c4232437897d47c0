"""FedProx: FedAvg with a proximal term towards the global model, without privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import InvalidValue
from .fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """Li et al. 2020, "Federated optimization in heterogeneous networks", Algorithm 2.

    Client i minimises h_i(x) = w_i f_i(x) + R(x) + (μ/2)‖x − x_0‖² inexactly, here by the Q steps of FedAvg:

        x ← prox_{ηR}( x − η ( w_i ∇f_i(x; B_r) + μ (x − x_0) ) )

    μ = 0 is FedAvg. Not private: see ``Reference``.

    Attributes:
        mu: μ ≥ 0, and the rest as in FedAvg. ημ must be below 1, or a step passes the point that it is pulled to.
    """

    mu: float = 0.1

    name: ClassVar[str] = "fedprox"
    source: ClassVar[str] = "Li et al. 2020: Federated optimization in heterogeneous networks"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mu < float("inf") or self.mu * self.eta.at(1) >= 1:
            raise InvalidValue("method.mu", self.mu, f"give a number from 0 to below 1/eta = {1 / self.eta.at(1):g}")

    @property
    def proximal_weight(self) -> float:
        return self.mu

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "μ": self.mu}
