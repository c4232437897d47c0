"""Which penalties are stable on a graph: the Jury test of (Z8) and (Z10) without data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ..errors import DualfedError, InvalidValue
from .spectrum import largest_eigenvalue

LIMIT = 8.0 / 3.0
"""aρλ must stay below this for every eigenvalue λ of the Laplacian."""


@dataclass(frozen=True)
class Stability:
    """A stable choice and how far it is from the edge.

    Args:
        largest: aρλ_max; with unequal gains the largest eigenvalue of ρ A^{1/2} ℒ A^{1/2}.
        limit: 8/3; stable while ``largest < limit``.
        lambda_max: of ℒ.
        largest_a: the gain a = ταβ must stay below this; with unequal gains, the largest of them, in the same
            proportions. Infinite for N = 1.
    """

    largest: float
    limit: float
    lambda_max: float
    largest_a: float


class UnstablePenalty(DualfedError):
    """The penalty makes consensus diverge.

    Args:
        largest: aρλ_max, or the largest eigenvalue of ρ A^{1/2} ℒ A^{1/2}.
        lambda_max: of the Laplacian.
        rho: the penalty ρ.
        a: the largest gain a = ταβ in use.
        largest_a: what the largest gain must stay below.
    """

    limit = LIMIT

    def __init__(self, largest: float, lambda_max: float, rho: float, a: float, largest_a: float) -> None:
        self.largest, self.lambda_max, self.rho, self.a, self.largest_a = largest, lambda_max, rho, a, largest_a
        super().__init__(
            f"consensus diverges: a·ρ·λ_max = {largest:.6g} must stay below 8/3 (a = τ·α·β = {a:.6g}, ρ = {rho:.6g}, "
            f"λ_max = {lambda_max:.6g}): take β or ρ smaller, so that a stays below {largest_a:.6g} at this ρ"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.largest, self.lambda_max, self.rho, self.a, self.largest_a)


def check_stability(laplacian: sparse.csr_array, rho: float, a: ArrayLike) -> Stability:
    """Accept the penalty where 0 < aρλ < 8/3 for every non-zero eigenvalue λ of ℒ.

    That is the Jury test of x_{k+1} = x_k − a(ρλ x_k + y_{k−1}), y_k = y_{k−1} + ½ρλ x_k. For unequal gains,
    A = diag(a_i): the eigenvalues of ρ A^{1/2} ℒ A^{1/2} must lie in (0, 8/3), which is exact too. This is consensus
    alone; with losses see `curvature_warning`.

    Args:
        laplacian: ℒ ``[N, N]`` of a connected graph.
        rho: the penalty ρ > 0.
        a: a = ταβ > 0 of all clients, or ``[N]``, one for each.

    Raises:
        UnstablePenalty: naming λ_max and what a must stay below.
        InvalidValue: ρ or a gain that is not positive and finite, or gains of the wrong number.
    """
    n = laplacian.shape[0]
    gains = np.asarray(a, dtype=np.float64)
    if not (np.isfinite(rho) and rho > 0):
        raise InvalidValue("method.rho", rho, "give a positive number")
    if gains.ndim and gains.shape != (n,):
        raise InvalidValue("method.a", gains.shape, f"give one gain, or one for each of the {n} clients")
    if not (np.all(np.isfinite(gains)) and np.all(gains > 0)):
        raise InvalidValue("method.a", float(np.min(gains)), "every client's τ·α·β must be a positive number")
    lambda_max = largest_eigenvalue(laplacian)
    top = float(np.max(gains))
    if gains.ndim and np.ptp(gains) > 0:
        root = sparse.diags_array(np.sqrt(gains), format="csr")
        largest = rho * largest_eigenvalue(sparse.csr_array(root @ laplacian @ root))
    else:
        largest = top * rho * lambda_max
    largest_a = top * LIMIT / largest if largest > 0 else float("inf")
    if not largest < LIMIT:
        raise UnstablePenalty(largest, lambda_max, rho, top, largest_a)
    return Stability(largest, LIMIT, lambda_max, largest_a)


def curvature_warning(largest: float, tau: int, alpha: float, smoothness: float) -> str | None:
    """A sentence where losses may upset a consensus that is stable by itself, unless aρλ_max + (4/3)ταL < 8/3.

    The condition is exact at τ = 1 and one common curvature L, a guide otherwise.

    Args:
        largest: aρλ_max, as in `Stability.largest`.
        tau: local steps τ of a round.
        alpha: α = ημ, the step along the gradient.
        smoothness: L, the largest curvature of a client's loss.
    """
    total = largest + 4.0 / 3.0 * tau * alpha * smoothness
    if total < LIMIT:
        return None
    return (
        f"a·ρ·λ_max + (4/3)·τ·α·L = {total:.4g} is not below 8/3 (a·ρ·λ_max = {largest:.4g}, τ = {tau}, "
        f"α = {alpha:.4g}, L = {smoothness:.4g}): the run may diverge; take a smaller step η, fewer local steps τ, "
        "or a smaller β"
    )
