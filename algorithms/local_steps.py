"""Local steps of a cohort: its batches, drawn once a round, and Q proximal gradient steps on them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.gate import Gate
from .method import Cohort
from .problems.base import Problem

Batches = Literal["epoch", "independent", "iid", "full"]


class Gradients:
    """w_i ∇f_i(·; B_r) of a cohort for the Q batches of a round, drawn together.

    Rows are gathered step by step: those of one step stay in the cache until both products have read them.

    Args:
        batches: how records are drawn, as in SPEC (D1), (D2); ``full`` takes all m_i at every step.
        steps, batch: Q and b.
        clip: the norm to which each record's gradient is scaled down first, or None.
    """

    def __init__(
        self, cohort: Cohort, gate: Gate, batches: Batches, steps: int, batch: int, clip: float | None = None
    ) -> None:
        self._cohort, self._clip = cohort, clip
        like = cohort.shards.features
        self._weights = torch.as_tensor(cohort.weights, dtype=like.dtype, device=like.device)[:, None]
        self._uniform = bool((cohort.weights == 1).all())
        self._places: Tensor | None = None
        if batches != "full":
            drawn = gate.batches(batches, cohort.sizes, steps, batch)
            places = cohort.shards.places(cohort.slots, drawn)
            self._places = places.view(len(places), steps, batch).transpose(0, 1).contiguous()

    def add(self, out: Tensor, x: Tensor, step: int, scale: float) -> None:
        """``out += scale · w_i ∇f_i(x; B_step)``, in place; ``out``, ``x``: ``[C, d]``."""
        problem, cohort = self._cohort.problem, self._cohort
        if self._places is None:
            gradient = problem.full_gradient(x, cohort.shards, cohort.slots, self._clip)
            out.addcmul_(gradient, self._weights, value=scale)
            return
        features, labels = cohort.shards.taken(self._places[step])
        weight = scale if self._uniform else self._weights * scale
        if self._clip is None:
            problem.add_gradient(out, x, features, labels, weight)
        else:
            problem.add_clipped_gradient(out, x, features, labels, self._clip, weight)


def descend(
    x: Tensor,
    gradients: Gradients,
    steps: int,
    eta: float,
    problem: Problem,
    *,
    pull: Tensor | None = None,
    anchor: Tensor | None = None,
    mu: float = 0.0,
) -> Tensor:
    """Q steps x ← prox_{ηR}( x − η ( w_i ∇f_i(x; B_r) + pull + μ (x − anchor) ) ) from ``x`` ``[C, d]``, which stays.

    ``pull`` ``[C, d]`` and ``anchor`` ``[d]`` are the same in all steps.
    """
    for step in range(steps):
        point = x.clone() if mu == 0 or anchor is None else torch.add((eta * mu) * anchor, x, alpha=1 - eta * mu)
        if pull is not None:
            point.sub_(pull, alpha=eta)
        gradients.add(point, x, step, -eta)
        x = problem.regulariser.prox_(point, eta)
    return x


def check_numbers(method: object, **least: int) -> None:
    """Refuse whole-number fields of a method that are smaller than given here, or None where that is not allowed."""
    for field, smallest in least.items():
        value = getattr(method, field)
        if value is not None and value < smallest:
            raise InvalidValue(f"method.{field}", value, f"give a whole number ≥ {smallest}")


def check_positive(method: object, *fields: str) -> None:
    """Refuse fields of a method that are given and not finite numbers > 0."""
    for field in fields:
        value = getattr(method, field)
        if value is not None and not (0 < value < float("inf")):
            raise InvalidValue(f"method.{field}", value, "give a finite number > 0")


def check_batches(batches: Batches, steps: int, batch: int, sizes: np.ndarray) -> None:
    """Refuse batches that some client has too few records for; ``sizes`` ``[N]``."""
    smallest, client = int(sizes.min()), int(sizes.argmin())
    if batches == "epoch" and steps * batch > smallest:
        raise InvalidValue(
            "method.batch_size",
            batch,
            f"epoch batches take local_steps·batch_size = {steps * batch} distinct records and client {client} has "
            f'{smallest}; lower either, raise partition.min_size, or take batches = "independent"',
        )
    if batches == "independent" and batch > smallest:
        raise InvalidValue(
            "method.batch_size",
            batch,
            f'client {client} has {smallest} records; lower it, raise partition.min_size, or take batches = "full"',
        )


def record_bound(problem: Problem, clip: float | None) -> float:
    """The largest norm of one record's gradient: G, or the method's own clip where that is smaller."""
    return problem.gradient_bound if clip is None else min(clip, problem.gradient_bound)


def check_record_bound(problem: Problem, clip: float | None, private: bool) -> None:
    """Refuse a clip that the problem cannot do, and privacy for gradients without a bound."""
    if clip is not None and not problem.clips:
        raise InvalidValue(
            "method.clip", clip, f"{problem.name} does not clip record by record; leave it out and use its own bound"
        )
    if private and not np.isfinite(record_bound(problem, clip)):
        raise InvalidValue(
            "method.clip",
            clip,
            f"{problem.name} gradients have no bound; give the norm to clip each record's gradient at",
        )
