"""Pure releases composed exactly: the loss of ε₀-DP releases is a walk of steps ±ε₀ (Kairouz, Oh & Viswanath 2015)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from .profiles import Floats

_MOST_ATOMS = 2**17
_ROUNDING = 1e-9
"""What logarithms of factorials and sums lose, as a share of δ, many times over."""


class Walk:
    """The loss of ``counts[j]`` releases, each ``losses[j]``-DP, as atoms; every sequence of such releases, adaptive or
    not, is dominated by it, and some are equal to it.

    ``feasible`` says whether the atoms are few enough to be listed.
    """

    def __init__(self, losses: Sequence[float], counts: Sequence[int]) -> None:
        values, logs = np.zeros(1), np.zeros(1)
        for loss, count in zip(losses, counts):
            falls = np.arange(count + 1, dtype=np.float64)
            ways = gammaln(count + 1) - gammaln(falls + 1) - gammaln(count - falls + 1)
            chance = ways - falls * loss - count * math.log1p(math.exp(-loss))
            values = np.add.outer(values, (count - 2 * falls) * loss).ravel()
            logs = np.add.outer(logs, chance).ravel()
        up = values > 0
        self._losses: Floats = values[up]
        self._masses: Floats = np.exp(logs[up]) * (1 + _ROUNDING)

    @staticmethod
    def feasible(counts: Sequence[int]) -> bool:
        return math.prod(count + 1 for count in counts) <= _MOST_ATOMS

    def delta(self, epsilon: float) -> float:
        """The smallest δ at ``epsilon`` ≥ 0: Σ_l P(l) (1 − e^{ε−l})₊."""
        return min(1.0, float(-self._masses @ np.expm1(np.minimum(epsilon - self._losses, 0.0))))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 at ``delta``, rounded up; ``inf`` for δ < 0, and all losses together for δ = 0."""
        if delta < 0:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        top = float(self._losses.max())
        if delta == 0:
            return top
        root = float(brentq(lambda e: self.delta(e) - delta, 0.0, top, xtol=1e-13 * top, rtol=1e-13))
        return min(top, root * (1 + 1e-12) + 1e-13 * top)
