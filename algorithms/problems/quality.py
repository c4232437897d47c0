"""How good predictions are, beside their loss."""

from __future__ import annotations

from torch import Tensor


def r2(predictions: Tensor, targets: Tensor) -> float:
    """Share of the variance of ``targets`` ``[n]`` that ``predictions`` ``[n]`` explain, as scikit-learn scores it."""
    targets = targets.to(predictions.dtype)
    unexplained = float((predictions - targets).square().sum())
    total = float((targets - targets.mean()).square().sum())
    if total == 0:  # constant targets: nothing to explain
        return 1.0 if unexplained == 0 else 0.0
    return 1 - unexplained / total
