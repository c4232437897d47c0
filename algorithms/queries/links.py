"""Losses of linear scores and their derivatives, for one record at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .compiled import kernel

SOFTMAX, LOGISTIC, SQUARES = 0, 1, 2


@kernel
def loss(link: int, scores: NDArray[np.float64], label: float) -> float:
    """ℓ of a record with scores ``[k]`` and a label, a class as its number."""
    if link == SQUARES:
        return float(0.5 * (scores[0] - label) * (scores[0] - label))
    if link == LOGISTIC:
        margin = scores[0] if label > 0 else -scores[0]
        # Either form of log(1 + exp(−margin)), whichever cannot overflow.
        return math.log1p(math.exp(-margin)) if margin > 0 else math.log1p(math.exp(margin)) - margin
    largest = scores[0]
    for c in range(1, len(scores)):
        largest = max(largest, scores[c])
    total = 0.0
    for c in range(len(scores)):
        total += math.exp(scores[c] - largest)
    return float(math.log(total) + largest - scores[int(label)])


@kernel
def residual(link: int, scores: NDArray[np.float64], label: float) -> None:
    """Writes ∂ℓ/∂s over the scores ``[k]``."""
    if link == SQUARES:
        scores[0] -= label
        return
    if link == LOGISTIC:
        decay = math.exp(-abs(scores[0]))
        scores[0] = (1.0 if scores[0] > 0 else decay) / (1.0 + decay) - (1.0 if label > 0 else 0.0)
        return
    largest = scores[0]
    for c in range(1, len(scores)):
        largest = max(largest, scores[c])
    total = 0.0
    for c in range(len(scores)):
        scores[c] = math.exp(scores[c] - largest)
        total += scores[c]
    for c in range(len(scores)):
        scores[c] /= total
    scores[int(label)] -= 1.0
