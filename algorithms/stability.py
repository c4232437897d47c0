"""How far one replaced record moves the last of Q local steps, and what a release of it costs.

One step x ← prox( (γ x + public terms − g_r)/(γ + ρ) ) moves two runs apart by a factor of at most κ, and by c more where
the batch holds the record (SPEC section 2: κ = γ·max(1, L/γ − 1)/(γ+ρ), c = 2G/(b(γ+ρ))). FedSPD-DP releases the average of
the Q iterates, (D1) and (D2); the methods here release the last one. With the record in the batches A,

    ‖x^Q − x'^Q‖ ≤ c Σ_{r∈A} κ^{Q−r} ≤ |A|·c·max(1, κ)^{Q−1}                                                (L1)

so with c' = c·max(1, κ)^{Q−1} the shift is at most c' where the batches are disjoint (epoch: |A| ≤ 1), and |A|·c' where they
are drawn independently. Both have an exact event: with contraction 0 all batches weigh the same in ``EpochEvent`` and
``IndependentEvent``, and the noise multiplier refers to c' and to Q·c'. (L1) is an equality for κ = 1, that is ρ = 0 and
γ ≥ L/2; for κ < 1 it overstates the earlier batches by at most κ^{1−Q}. Where no batch hides the record (``full``) or a
record may fill one (``iid``), the shift is c Σ_{k<Q} κ^k.
"""

from __future__ import annotations

import numpy as np

from ..privacy.events import EpochEvent, Event, GaussianEvent, IidEvent, IndependentEvent, Status
from .local_steps import Batches


def contraction(gamma: float, rho: float, smoothness: np.ndarray, convex_smooth: bool) -> np.ndarray:
    """κ of one step, ``[C]``, from each client's w_i·L; 1/(1 + ρ/γ) where steps do not repeat and L may be infinite."""
    expansion = np.maximum(1.0, smoothness / gamma - 1) if convex_smooth else np.ones_like(smoothness)
    return np.asarray(gamma * expansion / (gamma + rho))


def step_shift(
    bound: float, weights: np.ndarray, sizes: np.ndarray, batches: Batches, batch: int, denominator: float
) -> np.ndarray:
    """c, ``[C]``: what the record adds in a step that sees it; ``denominator`` is γ + ρ."""
    divisor = sizes if batches == "full" else np.full(len(sizes), 1 if batches == "iid" else batch)
    return np.asarray(2 * weights * bound / (divisor * denominator))


def last_iterate_shift(batches: Batches, steps: int, added: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """The sensitivity of x^Q, ``[C]``, to which the noise multiplier of ``last_iterate_event`` refers."""
    if batches in ("full", "iid"):
        return np.asarray(added * np.power(kappa[:, None], np.arange(steps)).sum(axis=1))
    worst = added * np.maximum(kappa, 1.0) ** (steps - 1)
    return np.asarray(worst if batches == "epoch" else steps * worst)


def last_iterate_event(batches: Batches, size: int, steps: int, batch: int, status: Status) -> Event:
    """What a release of x^Q costs a client with ``size`` records, for one replaced record."""
    if batches == "full":
        return GaussianEvent(status=status)
    if batches == "epoch":
        return EpochEvent(status=status, rate=steps * batch / size, steps=steps, contraction=0.0)
    if batches == "independent":
        return IndependentEvent(status=status, rate=batch / size, steps=steps, contraction=0.0)
    drawn = 1.0 if size == 1 else float(-np.expm1(steps * batch * np.log1p(-1.0 / size)))
    return IidEvent(status=status, rate=drawn)
