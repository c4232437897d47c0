"""What is audited of each method: which form of it, on which pair of data sets, at which noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..algorithms.method import Method
from ..algorithms.registry import make_method, method_class
from ..errors import InvalidValue
from ..keys import generator
from .audit_pairs import Pairs, crowded_pair, opposite_clients, random_pair, saturated_pair
from .audit_replay import settled
from .audit_search import search_neighbours

# The setting of SPEC section 2: m = 100, d = 20, T = 100, z = 1.
_SIZE, _FEATURES, _ROUNDS, _MULTIPLIER = 100, 20, 100, 1.0
_PAPER_RATIO = 20.0
_CLIP = 1e-3
_FIXED = ("name", "rounds", "state", "batches", "increment_clip", "participants")


@dataclass(frozen=True)
class Case:
    """One row of an audit. ``trials``: whether releases are repeated, beside what can be computed exactly."""

    label: str
    method: Method
    pairs: Pairs
    noise_multiplier: float
    trials: bool


def cases(name: str, given: Mapping[str, Any], rounds: int, noise_multiplier: float, seed: bytes) -> list[Case]:
    """The rows for a method; ``given`` are parameters of the user's, ``rounds`` and ``noise_multiplier`` those of the
    repeated releases.

    Raises InvalidValue for a method without a known worst case, and for a parameter that the audit sets itself.
    """
    chosen = method_class(name)
    for field in given:
        if field in _FIXED:
            raise InvalidValue(f"method.{field}", given[field], "an audit sets this itself; leave it out")
    if chosen.name == "fedspd-dp":
        return _exact_server(given, seed) + _repeated_server(given, rounds, noise_multiplier)
    if chosen.name == "spade-dfl":
        return _graph(given, rounds, noise_multiplier)
    raise InvalidValue("METHOD", name, "no worst case is known for it; give fedspd-dp or spade-dfl")


def _exact_server(given: Mapping[str, Any], seed: bytes) -> list[Case]:
    saturated, random = saturated_pair(_SIZE, _FEATURES), random_pair(generator(seed, "audit/pair"), _SIZE, _FEATURES)
    released = _server(given, random, rounds=_ROUNDS, batches="full")
    searched = search_neighbours(released, _MULTIPLIER, seed, _SIZE, _FEATURES).pairs
    rows = [Case("released", released, pairs, _MULTIPLIER, False) for pairs in (random, searched, saturated)]
    rho = float(given.get("rho", 1.0))
    # The gap needs Q = 1 and γ ≫ ρ, and memory belongs to ``released``.
    own = {"gamma": _PAPER_RATIO * rho, "local_steps": 1, **given, "memory": 1.0}
    paper = _server(own, random, rounds=_ROUNDS, batches="full", state="paper")
    return rows + [Case("paper", paper, pairs, _MULTIPLIER, False) for pairs in (random, saturated)]


def _repeated_server(given: Mapping[str, Any], rounds: int, noise_multiplier: float) -> list[Case]:
    few = saturated_pair(20, 2)
    full = _server(given, few, rounds=rounds, batches="full")
    own = {"local_steps": 5, "batch_size": 4, **given}
    crowd = crowded_pair(2 * int(own["local_steps"]) * int(own["batch_size"]), 2)
    epoch = _server(own, crowd, rounds=rounds, batches="epoch")
    clients = opposite_clients(10)
    clipped = _server(given, clients, rounds=rounds, batches="full", increment_clip=_CLIP)
    return [
        Case("released", full, few, noise_multiplier, True),
        Case("released", epoch, crowd, noise_multiplier, True),
        Case("released, increments clipped", clipped, clients, noise_multiplier, True),
    ]


def _graph(given: Mapping[str, Any], rounds: int, noise_multiplier: float) -> list[Case]:
    pairs = opposite_clients(10)
    own = {"local_steps": 10, "eta": 0.1, "mu": 0.1, "clip": 0.01, **given}
    method = settled(make_method({"name": "spade-dfl", "rounds": rounds, **own}), pairs)
    return [Case(f"estimator {own.get('estimator', 'baseline')}", method, pairs, noise_multiplier, True)]


def _server(given: Mapping[str, Any], pairs: Pairs, **forced: Any) -> Method:
    return settled(make_method({"name": "fedspd-dp", **given, **forced}), pairs)
