"""A random search for the pair of neighbouring data sets that a method's releases tell apart best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..algorithms.method import Method
from ..keys import generator
from ..privacy.profiles import Floats
from .audit_pairs import Pairs, candidate_pairs, unit_rows
from .audit_replay import exact_mu

_CANDIDATES = 64
_GENERATIONS = 10
_SEARCHED_SIZE = 4


@dataclass(frozen=True)
class Found:
    """The best pair of a search, its μ by generation (the largest so far), and how it came about."""

    pairs: Pairs
    mu: float
    history: tuple[float, ...]


def search_neighbours(method: Method, noise_multiplier: float, seed: bytes, size: int, features: int) -> Found:
    """Two records that, replaced one for the other, move the releases as far as a search can find.

    Draws pairs of unit records with labels, and keeps redrawing around the best with a scale that halves; all other
    records are 0 and the start is far out, where losses can be straight. The candidates of a generation are the clients
    of one cohort. Shifts do not depend on m but through 1/m, so the search runs on few records.
    """
    draw = generator(seed, "audit/search")
    records = unit_rows(draw, _CANDIDATES, 2, features)
    labels = draw.integers(0, 2, (_CANDIDATES, 2)).astype(np.float64)
    history: list[float] = []
    best, best_labels, largest, scale = records[0], labels[0], -1.0, 1.0
    for _ in range(_GENERATIONS):
        reached = exact_mu(method, candidate_pairs(records, labels, _SEARCHED_SIZE), noise_multiplier)
        index = int(np.argmax(reached))
        if reached[index] > largest:
            largest, best, best_labels = float(reached[index]), records[index], labels[index]
        history.append(largest)
        records = _around(draw, best, scale)
        # One in four candidates may turn its labels as well.
        turned = draw.random((_CANDIDATES, 2)) < 0.25
        labels = np.where(turned, 1 - best_labels, best_labels)
        scale /= 2
    pairs = candidate_pairs(best[None], best_labels[None], size)
    return Found(pairs, float(exact_mu(method, pairs, noise_multiplier)[0]), tuple(history))


def _around(draw: np.random.Generator, best: Floats, scale: float) -> Floats:
    moved = best + scale * unit_rows(draw, _CANDIDATES, *best.shape)
    return np.asarray(moved / np.linalg.norm(moved, axis=-1, keepdims=True))
