"""What methods over Metropolis weights share: the matrix, gradients of local objectives, and the checks."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..privacy.events import Event, GaussianEvent
from ..privacy.gate import Bound, Gate
from .method import Cohort, GraphMethod, Network
from .problems.base import Problem
from .regularisers import L2, NoRegulariser


class GossipMethod(GraphMethod):
    """A method whose clients average what neighbours share with Metropolis weights W: ``pull`` = W·shared.

    W is symmetric and doubly stochastic (Xiao & Boyd 2004), so averaging keeps the mean of all clients.
    """

    def mixing_matrix(self, network: Network) -> Any:
        return network.metropolis

    def settle(self, network: Network, problem: Problem, sizes: np.ndarray) -> tuple[GraphMethod, list[str]]:
        return self, []

    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        check_regulariser(self.name, problem)
        check_batch(getattr(self, "batch_size", None), sizes)


class GossipReference(GossipMethod):
    """A method without a privacy mechanism. Its gradients pass the gate all the same, as everything that depends on data
    does, and every release is in the ledger as one without noise: what it costs is ε = ∞, never a small number.

    ``bound`` states no sensitivity, so that no noise could be given a size; a privacy budget is refused beforehand.
    """

    private: ClassVar[bool] = False

    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event:
        return GaussianEvent()

    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        return Bound(np.full(len(sizes), np.inf))


def check_reference(method: Any) -> None:
    """The parameters that references have in common: ``rounds``, ``alpha``, ``batch_size``, ``final_mixing``."""
    check_whole(method, rounds=1, final_mixing=0)
    check_positive(method, "alpha")
    if method.batch_size is not None and method.batch_size < 1:
        raise InvalidValue("method.batch_size", method.batch_size, "give a whole number ≥ 1, or leave it out for all")


def check_whole(method: Any, **least: int) -> None:
    """Raises InvalidValue for a field below its least whole number."""
    for field, smallest in least.items():
        if (value := getattr(method, field)) < smallest:
            raise InvalidValue(f"method.{field}", value, f"give a whole number ≥ {smallest}")


def check_positive(method: Any, *fields: str) -> None:
    """Raises InvalidValue for a field that is not a finite number > 0; None, left out, passes."""
    for field in fields:
        value = getattr(method, field)
        if value is not None and not 0 < value < math.inf:
            raise InvalidValue(f"method.{field}", value, "give a finite number > 0")


def check_regulariser(name: str, problem: Problem) -> None:
    """Methods that take a gradient of R need one. Raises InvalidValue."""
    if not isinstance(problem.regulariser, (NoRegulariser, L2)):
        kind = type(problem.regulariser).__name__
        raise InvalidValue("problem.regulariser", kind, f"{name} takes a gradient of it; give none or l2")


def check_batch(batch: int | None, sizes: np.ndarray) -> None:
    """Raises InvalidValue where a client holds fewer records than one batch of distinct ones."""
    if batch is not None and batch > sizes.min():
        client = int(sizes.argmin())
        raise InvalidValue("method.batch_size", batch, f"client {client} has {int(sizes[client])} records; lower it")


def curvature(problem: Problem) -> float:
    """w of R(x) = (w/2)‖x‖², whose gradient is w·x; 0 without a regulariser."""
    return problem.regulariser.weight if isinstance(problem.regulariser, L2) else 0.0


def local_gradient(x: Tensor, cohort: Cohort, gate: Gate, batch: int | None) -> tuple[Tensor, int]:
    """w_i∇f_i(x_i) of each client's own parameters ``x`` ``[C, d]``, without R; and how many records were asked.

    ``batch``: records drawn by the gate, distinct; None takes all.
    """
    if batch is None:
        gradient = cohort.problem.full_gradient(x, cohort.shards, cohort.slots)
        asked = int(cohort.sizes.sum())
    else:
        features, labels = cohort.shards.rows(cohort.slots, gate.batches("independent", cohort.sizes, 1, batch))
        gradient = torch.zeros_like(x)
        cohort.problem.add_gradient(gradient, x, features, labels)
        asked = batch * len(cohort)
    return gradient.mul_(torch.as_tensor(cohort.weights, dtype=x.dtype)[:, None]), asked
