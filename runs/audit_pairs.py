"""Neighbouring data sets for an audit: a random pair, and pairs built to show as much as any pair can."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..algorithms.method import Cohort
from ..algorithms.problems import make_problem
from ..algorithms.problems.base import Problem
from ..algorithms.shards import Shards
from ..privacy.profiles import Floats

_SATURATED_SCORE = 12.0
_DISTANCE = 120.0


@dataclass(frozen=True)
class Pairs:
    """C pairs of neighbouring data sets of one client, all of m records.

    Attributes:
        problem: model and loss, with its constants.
        shards: client c holds the first data set of pair c, client C + c the second.
        start: ``[d]`` the public start, and the broadcast x_0 in every round.
        words: what the pairs are, for a table.
    """

    problem: Problem
    shards: Shards
    start: Tensor
    words: str

    @property
    def count(self) -> int:
        """C."""
        return self.shards.n_clients // 2

    def cohort(self, side: int, trials: int | None = None) -> Cohort:
        """One side, 0 or 1, of all pairs, or ``trials`` copies of the first pair's."""
        slots = torch.arange(self.count) + side * self.count
        if trials is not None:
            slots = torch.full((trials,), side * self.count)
        clients = np.arange(len(slots))
        return Cohort(self.problem, self.shards, slots, clients, self.shards.sizes[slots].numpy(), np.ones(len(slots)))

    def to(self, dtype: torch.dtype) -> Pairs:
        """The same pairs in another floating type."""
        shards = Shards(self.shards.features.to(dtype), self.shards.labels, self.shards.offsets)
        return Pairs(self.problem, shards, self.start.to(dtype), self.words)


def differing_in_first(
    rest: Floats, rest_labels: Floats, records: Floats, labels: Floats, start: Floats, words: str
) -> Pairs:
    """Pairs that share ``rest`` ``[m − 1, p]`` and differ in record 0: ``records`` ``[C, 2, p]``, ``labels`` ``[C, 2]``."""
    count, size = len(records), len(rest) + 1
    features = np.empty((2, count, size, rest.shape[1]))
    marks = np.empty((2, count, size), dtype=np.int64)
    features[:, :, 1:], marks[:, :, 1:] = rest, rest_labels
    features[:, :, 0], marks[:, :, 0] = records.swapaxes(0, 1), labels.T
    offsets = np.arange(2 * count + 1) * size
    shards = Shards.from_flat(features.reshape(-1, rest.shape[1]), marks.reshape(-1), offsets)
    problem = make_problem("logistic", rest.shape[1], 1, 1.0)
    problem.check(shards.features, shards.labels)
    return Pairs(problem, shards, torch.from_numpy(start), words)


def unit_rows(draw: np.random.Generator, *shape: int) -> Floats:
    """Directions drawn uniformly from the sphere, ``shape``, along the last axis."""
    rows = draw.standard_normal(shape)
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def random_pair(draw: np.random.Generator, size: int, features: int) -> Pairs:
    """Unit records with random labels, one of them replaced by another; the start is 0."""
    rest, labels = unit_rows(draw, size - 1, features), draw.integers(0, 2, size - 1).astype(np.float64)
    return differing_in_first(
        rest, labels, unit_rows(draw, 1, 2, features), np.array([[0.0, 1.0]]), np.zeros(features), "random records"
    )


def saturated_pair(size: int, features: int) -> Pairs:
    """Two records whose logistic losses are straight lines of slope G, pulling (almost) opposite ways, all others 0.

    At x = R e_1 the records cos θ e_1 ± sin θ e_2 with label 0 have the score R cos θ = 12: their gradients have norm
    0.99999 and differ by 2 sin θ times that. Nothing curves, so (D1) and (D2) hold with equality up to sin θ = 0.995.
    """
    records, start = _saturated(features)
    rest = np.zeros((size - 1, features))
    return differing_in_first(rest, np.zeros(size - 1), records[None], np.zeros((1, 2)), start, "saturated records")


def crowded_pair(size: int, features: int) -> Pairs:
    """The records of ``saturated_pair``, but all others equal the second: which of them a batch drew makes no difference.

    The second data set's releases are then Gaussian, the first's a mixture over whether, and in which batch, its odd
    record was drawn: the pair for which the profile (D4) holds with equality for ε ≥ 0.
    """
    records, start = _saturated(features)
    rest = np.tile(records[1], (size - 1, 1))
    return differing_in_first(
        rest, np.zeros(size - 1), records[None], np.zeros((1, 2)), start, "saturated, all others alike"
    )


def _saturated(features: int) -> tuple[Floats, Floats]:
    """The two records ``[2, p]`` and R e_1 ``[p]``."""
    cosine = _SATURATED_SCORE / _DISTANCE
    records, start = np.zeros((2, features)), np.zeros(features)
    records[:, 0], records[0, 1] = cosine, math.sqrt(1 - cosine * cosine)
    records[1, 1], start[0] = -records[0, 1], _DISTANCE
    return records, start


def candidate_pairs(records: Floats, labels: Floats, size: int) -> Pairs:
    """Candidates of a search: ``records`` ``[C, 2, p]``, ``labels`` ``[C, 2]``, all others 0, from R e_1."""
    width = records.shape[2]
    start, rest = np.zeros(width), np.zeros((size - 1, width))
    start[0] = _DISTANCE
    return differing_in_first(rest, np.zeros(size - 1), records, labels, start, "searched records")


def opposite_clients(size: int) -> Pairs:
    """Two data sets that share no record, all of whose losses fall in opposite directions: one number a record, 1,
    with label 0 or 1. A model has one parameter, so no query direction can point elsewhere."""
    labels = np.repeat(np.array([0, 1]), size)
    shards = Shards.from_flat(np.ones((2 * size, 1)), labels, np.arange(3) * size)
    start = torch.zeros(1, dtype=torch.float64)
    return Pairs(make_problem("logistic", 1, 1, 1.0), shards, start, "opposite data sets")
