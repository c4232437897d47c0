"""What the file that ``dualfed init --method spade-dfl`` writes says of the method's parameters."""

from __future__ import annotations

from typing import Any

SPADE: dict[str, tuple[str, Any]] = {
    "name": ("see `dualfed list`", None),
    "rounds": ("K, releases of a client: few, since each needs noise", None),
    "local_steps": (
        "τ, local steps a round, of the order of d or more under privacy; or a list, one number a client",
        None,
    ),
    "batch_size": ("b components a local step; or a list, one number a client", None),
    "estimator": (
        '"baseline" (values only), "paper" (with memory of directions), "two-point" and "gradient" for reference',
        None,
    ),
    "direction": ('of a query: "rademacher", "gaussian" or "sphere"', None),
    "eta": ("η; a local step is η·μ along the gradient", None),
    "mu": ("μ, how far from the model a query is made", None),
    "beta": ("β, gain of the correction; left out: the fastest that is safe on this graph", 1.0),
    "rho": ("ρ, the penalty", None),
    "clip": ("C, the largest norm of a client's increment of one round; privacy needs it", None),
    "chunk": ("records a component: one query is the mean loss of so many records", None),
    "query_noise": ("standard deviation of the noise of one function value", None),
    "schedule": ('"constant", or "rate": eta, mu, tau0 are those of the non-private schedule for a budget T', None),
    "budget": ('"rate" only: T, local steps in all', 30000),
    "tau0": ('"rate" only: τ = ⌈tau0·T^(1/3)⌉', None),
    "mixing_rounds": ("exchanges without data after each release: they cost messages and no privacy", None),
    "final_mixing": ("gossip rounds at the end, for the models that clients use", None),
}
