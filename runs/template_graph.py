"""What the file that ``dualfed init --method NAME`` writes says of the parameters of the other methods over a graph."""

from __future__ import annotations

import dataclasses
from typing import Any

Words = dict[str, tuple[str, Any]]

_SHARED: Words = {
    "name": ("see `dualfed list`", None),
    "rounds": ("T, rounds; under privacy each is a release that needs noise", None),
    "alpha": ("α, the step along the gradient", None),
    "batch_size": ("records of a stochastic gradient, distinct; left out: all", 10),
    "final_mixing": ("gossip rounds at the end, for the models that clients use", None),
    "mixing_rounds": ("exchanges without data after each release: they cost messages and no privacy", None),
    "eta": ("η, the penalty", None),
    "tolerance": ("of the gradient at which a local problem counts as solved: what the account leaves open", None),
    "phi": ("φ, further curvature (φ/2)‖x‖² of every objective, where its own would eat up ε", None),
    "clip": ("C, the largest norm of a client's increment of one round; privacy needs it", None),
    "rho": ("ρ, the penalty", None),
}
_LOCAL: Words = {
    "local_steps": ("τ, local steps a round, of the order of d or more under privacy", None),
    "batch_size": ("b components a local step", None),
    "estimator": (
        '"baseline" (function values only), "paper" (one query, memory of directions), "two-point" or "gradient"',
        None,
    ),
    "direction": ('of a query: "rademacher", "gaussian" or "sphere"', None),
    "eta": ("η; a local step is η·μ along the gradient", None),
    "mu": ("μ, how far from the model a query is made", None),
    "chunk": ("records a component: one query is the mean loss of so many records", None),
    "query_noise": ("standard deviation of the noise of one function value", None),
}
_OWN: dict[str, Words] = {
    "dsgd": {},
    "gradient-tracking": {},
    "extra": {},
    "dp-dsgd": _LOCAL,
    "dp-gt": _LOCAL | {"alpha": ("α, the step along the tracked gradient; left out: η·μ·τ", 0.2)},
    "lt-admm": {
        "local_steps": ("τ, local steps a round", None),
        "memory": ("LT-ADMM-VR: a memory of each record's gradient reduces the variance", None),
        "gamma": ("γ, a local step along the gradient", None),
        "beta": ("β, gain of the correction; left out: the fastest that is safe on this graph", 0.01),
    },
    "dvp-admm": {},
    "pvp-admm": {"noise": ('"radial", as published: pure ε a round; or "gaussian", whose rounds compose better', None)},
    "penalty-admm": {
        "eta": ("η_i(1), the first penalty: a number, or a list, one a client", None),
        "growth": ("q ≥ 1, by which penalties grow every round and losses of rounds fall", None),
        "theta": ("θ, the step of the dual; left out: the smallest η_i(1)", 0.5),
    },
    "recycled-admm": {"gamma": ("γ of the linearised step; left out: the largest curvature of an objective", 1.0)},
}
NEED_CLIP = frozenset({"dp-dsgd", "dp-gt", "lt-admm"})
"""Methods that a private run needs a bound for: what the template fills in."""


def graph_words() -> dict[str, Words]:
    """For each method, its parameters with their meaning and an example for those that are left out by default."""
    from ..algorithms.registry import method_class

    told = {}
    for name, own in _OWN.items():
        fields = ("name", *(each.name for each in dataclasses.fields(method_class(name)) if each.init))  # type: ignore[arg-type]
        told[name] = {field: own.get(field) or _SHARED[field] for field in fields}
    return told
