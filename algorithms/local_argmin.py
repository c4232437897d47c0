"""The exact local steps of ADMM: minimisers of all clients of a host together, to a stated tolerance."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DualfedError
from .method import Cohort
from .shards import Shards

_MOST_STEPS = 20_000


class NotSolved(DualfedError):
    """A client's local problem was not solved to its tolerance; nothing of it was released."""

    def __init__(self, client: int, left: float) -> None:
        self.client, self.left = client, left
        super().__init__(
            f"client {client}: after {_MOST_STEPS} steps the local problem's gradient still has norm {left:.3g}; "
            "raise method.tolerance, or take a larger penalty"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.client, self.left)


def minimise(cohort: Cohort, start: Tensor, quadratic: Tensor, linear: Tensor, tolerance: float | Tensor) -> Tensor:
    """argmin_x w_i f_i(x) + (Λ_i/2)‖x‖² + ⟨v_i, x⟩ of each client, float64 ``[C, d]``, where the gradient is no longer
    than ``tolerance``: Λ_i-strong convexity puts that point within tolerance/Λ_i of the minimiser.

    Nesterov's accelerated gradient for strongly convex functions (2004, scheme 2.2.9), step 1/(w_i L + Λ_i). A client
    that is done takes no further steps, so its answer does not depend on the others. All in float64, whatever the run's
    type.

    Args:
        start: ``[C, d]`` where to begin.
        quadratic: ``[C]`` Λ_i > 0. linear: ``[C, d]`` v_i.
        tolerance: one number, or one a client ``[C]``.

    Raises:
        NotSolved: naming the first client that is not.
    """
    shards = _double(cohort.shards)
    weights = torch.as_tensor(cohort.weights, dtype=torch.float64)[:, None]
    quadratic, linear = quadratic.to(torch.float64)[:, None], linear.to(torch.float64)
    enough = torch.as_tensor(tolerance, dtype=torch.float64).expand(len(start))
    top = weights * cohort.problem.smoothness + quadratic
    momentum = (top.sqrt() - quadratic.sqrt()) / (top.sqrt() + quadratic.sqrt())
    found = start.to(torch.float64).clone()
    x, y, active = found.clone(), found.clone(), torch.arange(len(start))
    for _ in range(_MOST_STEPS):
        gradient = cohort.problem.full_gradient(y, shards, cohort.slots[active]).mul_(weights[active])
        gradient.addcmul_(y, quadratic[active]).add_(linear[active])
        left = torch.linalg.vector_norm(gradient, dim=1)
        open_ = left > enough[active]
        if not bool(open_.all()):
            done = ~open_
            found[active[done]] = y[done]
            active, x, y, gradient = active[open_], x[open_], y[open_], gradient[open_]
            if not len(active):
                return found
        new = torch.addcdiv(y, gradient, top[active], value=-1)
        y = torch.addcmul(new, momentum[active], new - x)
        x = new
    raise NotSolved(int(cohort.clients[int(active[0])]), float(left[open_][0]))


def _double(shards: Shards) -> Shards:
    if shards.features.dtype == torch.float64:
        return shards
    labels = shards.labels.to(torch.float64) if shards.labels.is_floating_point() else shards.labels
    return Shards(shards.features.to(torch.float64), labels, shards.offsets)
