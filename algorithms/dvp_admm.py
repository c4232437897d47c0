"""Dual variable perturbation: ADMM over a graph whose dual gets noise before each local minimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .graph_admm import PerturbedObjective


@dataclass(frozen=True)
class DVPADMM(PerturbedObjective):
    """Zhang & Zhu (2017), DVP: in (A1) λ_i^t is replaced by λ_i^t + b_i/2, b_i of density ∝ exp(−ζ_i‖b‖) and new in
    every round, and (φ/2)‖x‖² is added; (A2) runs on the models that were released.

    Privacy: guaranteed, one record of a client, pure ε a round; see `PerturbedObjective` for the derivation, for the curvature
    term and for what the tolerance of the solver leaves. T rounds compose; the ledger takes the tightest account.

    Attributes: see `GraphADMM` and `PerturbedObjective`.
    """

    name: ClassVar[str] = "dvp-admm"
    source: ClassVar[str] = (
        "Zhang & Zhu 2017, Dynamic differential privacy for ADMM-based distributed classification (DVP)"
    )
