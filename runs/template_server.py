"""What the file that ``dualfed init --method NAME`` writes says of the parameters of the other methods with a server."""

from __future__ import annotations

import dataclasses
from typing import Any

Words = dict[str, tuple[str, Any]]

_ETA = 'the step size: a number, {value = 1.0, shape = "inverse-sqrt"} for η/√t, or a list over rounds that never rises'
_SHARED: Words = {
    "name": ("see `dualfed list`", None),
    "rounds": ("T", None),
    "participants": ("K clients a round, drawn without replacement; left out: all of them", 10),
    "local_steps": ("Q local steps a round", None),
    "batch_size": ("b records a step", None),
    "batches": (
        '"epoch" (Q disjoint batches: Q·b ≤ records of a client), "independent", "iid" or "full"',
        None,
    ),
    "eta": (f"η, {_ETA}", None),
    "rho": ("ρ, the penalty", None),
    "gamma": (
        'γ of "inexact", the inverse step size: a number, {value = 1.0, shape = "sqrt"} for γ√t, or a list over rounds',
        None,
    ),
    "clip": ("scale each record's gradient down to this norm; left out: the problem's own bound", 1.0),
    "mu": ("μ, the weight of the proximal term towards the global model; ημ must be below 1", None),
    "eta_g": ("η_g, the server's step", 1.0),
    "unit": ('"client": protect whole clients by a clipped increment; "record": perturb local models', None),
    "solver": ('"exact" (an inner solver) or "inexact" (one proximal gradient step)', None),
    "tolerance": ('"exact" only: relative length of the last inner step', None),
    "inner_steps": ('"exact" only: the most inner steps', None),
    "staleness": ("the most rounds between two uploads of a client; it then comes whether drawn or not", None),
    "share": ("the share of the coordinates that an upload carries, public and random", None),
    "sharing_seed": ("the seed of these coordinates", None),
}
_OWN: dict[str, Words] = {
    "dp-sgd": {"batches": ('"independent" (b distinct records at every step) or "full"', None)},
    "dp-fedavg": {"clip": ('"client" only: C, the largest norm of an increment', None)},
    "async-dp-admm": {"participants": ("how many come of themselves in a round; left out: all of them", 10)},
    "fedadmm": {"eta_g": ("η_g, the server's step; left out: the share of clients that took part", 1.0)},
}
_METHODS = (
    "dp-sgd",
    "dp-fedavg",
    "dp-admm",
    "stochastic-dp-admm",
    "two-phase-dp-admm",
    "async-dp-admm",
    "fedavg",
    "fedprox",
    "scaffold",
    "fedadmm",
    "consensus-admm",
)


def server_words() -> dict[str, Words]:
    """For each method, its parameters with their meaning and an example for those that are left out by default."""
    from ..algorithms.registry import method_class

    words = {}
    for name in _METHODS:
        fields = ["name", *(field.name for field in dataclasses.fields(method_class(name)))]  # type: ignore[arg-type]
        known = _SHARED | _OWN.get(name, {})
        words[name] = {field: known[field] for field in fields}
    return words
