"""The local stage of SPADE-DFL: from the released state to the increment that the gate clips and perturbs (Z2–Z6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import InvalidValue
from ..problems.base import Problem
from ..problems.least_squares import LeastSquaresProblem
from ..problems.linear import LinearProblem
from ..problems.logistic import LogisticProblem
from ..problems.softmax import SoftmaxProblem
from ..shards import Shards
from . import kernels
from .clients import Host
from .directions import KINDS
from .general import Cost, GeneralStage, Values
from .links import LOGISTIC, SOFTMAX, SQUARES
from .words import VISITS

Estimator = Literal["paper", "baseline", "two-point", "gradient"]
DirectionKind = Literal["rademacher", "gaussian", "sphere"]

ESTIMATORS = get_args(Estimator)

# Exact types: a subclass may have another loss.
_LINKS: dict[type, int] = {SoftmaxProblem: SOFTMAX, LogisticProblem: LOGISTIC, LeastSquaresProblem: SQUARES}


@dataclass(frozen=True)
class Increment:
    """What a client's local stage gives.

    Attributes:
        delta: ``[C, d]`` Δ_i of (Z6), all that depends on the data; to be clipped and perturbed.
        queries: int64 ``[C]``, evaluations of a component made: H_i + τ_i·b_i, twice that for ``two-point``.
        components: int64 ``[C]`` H_i.
        level: ``[C]`` mean of the first H_i values asked (Z3): w·f_i(x_i) for ``baseline`` and ``gradient``, its smoothed
            form for ``paper``; 0 in the mean for ``two-point``. A diagnostic of the simulation, not private.
    """

    delta: Tensor
    queries: NDArray[np.int64]
    components: NDArray[np.int64]
    level: NDArray[np.float64]


def split_keys(keys: list[int]) -> NDArray[np.uint64]:
    """128-bit keys, as ``stream_key`` gives them, as uint64 ``[C, 2]``, low half first."""
    mask = (1 << 64) - 1
    return np.array([(key & mask, key >> 64) for key in keys], dtype=np.uint64).reshape(-1, 2)


def local_stage(
    problem: Problem,
    shards: Shards,
    slots: Tensor,
    x0: Tensor,
    correction: Tensor,
    *,
    estimator: Estimator,
    direction: DirectionKind,
    eta: float,
    mu: float,
    steps: NDArray[np.int64],
    batch: NDArray[np.int64],
    chunk: int = 1,
    query_noise: float = 0.0,
    keys: NDArray[np.uint64],
    weights: NDArray[np.float64] | None = None,
) -> Increment:
    """(Z2–Z6) for the clients of a host together; a client's result does not depend on the others in the call.

    Component h of a client is the h-th run of ``chunk`` consecutive records, the last one maybe shorter; its loss is
    H/m times the sum over its records, so that the plain mean of the H components is f_i whatever the sizes.

    Softmax, logistic and least-squares problems on the CPU run in compiled code. Any other problem needs a method
    ``values(x [q, d], features [q, n, p], labels [q, n]) -> [q]`` (mean losses, row by row), which every linear problem
    has by its ``record_losses``; it sees the same draws. The regulariser takes no part, and ``problem.clip`` only in
    ``gradient``.

    Args:
        problem: the model and loss.
        shards: the host's records.
        slots: int64 ``[C]``, the client of each row.
        x0: ``[C, d]`` the released states, float32 or float64.
        correction: ``[C, d]`` α_k β c_{i,k}, subtracted at every local step (Z5).
        estimator: ``paper`` (Z1–Z4); ``baseline``, which remembers the value last seen of each component; ``two-point``,
            ``g_h = u·(f_h(x + μu) − f_h(x − μu))/2`` with the memory of ``paper``; ``gradient``, ``g_h = μ∇f_h``.
        direction: distribution of u.
        eta: η_k.
        mu: μ_k.
        steps: ``[C]`` τ_i.
        batch: ``[C]`` b_i, distinct components a step.
        chunk: records a component.
        query_noise: standard deviation of ζ (Gaussian); no part in ``gradient``.
        keys: uint64 ``[C, 2]``, of this round and client, low half first; every direction, batch and ζ follows from them.
        weights: ``[C]`` w_i that scale f_i; 1 where left out.

    Raises:
        InvalidValue: an unknown estimator or direction, a number out of range, a batch larger than a client's H_i, or a
            problem without function values.
    """
    steps, batch = (np.ascontiguousarray(each, dtype=np.int64) for each in (steps, batch))
    keys = np.ascontiguousarray(keys, dtype=np.uint64)
    weights = np.ones(len(x0)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    _check_names(estimator, direction, eta, mu, chunk, query_noise)
    sizes = shards.sizes[slots].cpu().numpy()
    components = -(-sizes // chunk)
    _check_counts(components, steps, batch)
    if len(x0) == 0:
        return Increment(torch.zeros_like(x0), components * 0, components, weights)
    link = _LINKS.get(type(problem))
    cost = Cost(estimator, direction, _shape(problem), eta, mu, query_noise, chunk)
    if link is not None and x0.device.type == "cpu":
        found = _compiled(problem, link, shards, slots, x0, correction, cost, keys, steps, batch, weights)
    else:
        values = values_of(problem)
        found = GeneralStage(problem, values, shards, slots, x0, correction, cost, keys, steps, batch, weights).run()
    delta, queries, level = found
    expected = (components + steps * batch) * (2 if estimator == "two-point" else 1)
    assert (queries == expected).all(), "a stage must ask exactly H_i + τ_i·b_i queries"
    return Increment(delta, queries, components, level)


def values_of(problem: Problem) -> Values:
    """``values(x [q, d], features [q, n, p], labels [q, n]) -> [q]`` of a problem: mean losses, row by row.

    Raises:
        InvalidValue: the problem is not linear and has no method ``values``.
    """
    given: Any = getattr(problem, "values", None)
    if given is not None:
        return given  # type: ignore[no-any-return]
    if not isinstance(problem, LinearProblem):
        raise InvalidValue("problem.kind", problem.name, "this problem gives no function values; take another method")
    shape = (-1, problem.n_outputs, problem.n_features)

    def values(x: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        return problem.record_losses(torch.bmm(x.reshape(shape), features.transpose(1, 2)), labels).mean(1)

    return values


def _shape(problem: Problem) -> tuple[int, int]:
    """(p, k): how the parameters are read when directions are drawn."""
    return (problem.n_features, problem.n_outputs) if isinstance(problem, LinearProblem) else (problem.dim, 1)


def _compiled(
    problem: Problem,
    link: int,
    shards: Shards,
    slots: Tensor,
    x0: Tensor,
    correction: Tensor,
    cost: Cost,
    keys: NDArray[np.uint64],
    steps: NDArray[np.int64],
    batch: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> tuple[Tensor, NDArray[np.int64], NDArray[np.float64]]:
    host = Host(
        x0.detach().contiguous().numpy(),
        correction.detach().to(x0.dtype).contiguous().numpy(),
        # One type throughout: the loops over a record then need no conversion.
        shards.features.to(x0.dtype).contiguous().numpy(),
        shards.labels.to(torch.float64).numpy(),
        shards.offsets[slots].numpy(),
        shards.offsets[slots + 1].numpy(),
        keys,
        steps,
        batch,
        weights,
        cost.chunk,
        float(cost.eta),
        float(cost.mu),
        float(cost.noise),
        np.inf if problem.clip is None else float(problem.clip),
    )
    delta = torch.empty_like(x0, memory_format=torch.contiguous_format)
    queries, level = np.zeros(len(x0), np.int64), np.zeros(len(x0))
    k, kind, out = problem.n_outputs, KINDS[cost.direction], (delta.numpy(), queries, level)
    if cost.estimator == "gradient":
        kernels.by_gradients(host, link, k, *out)
    elif cost.estimator == "baseline":
        kernels.by_values(host, link, kind, k, *out)
    else:
        kernels.by_memory(host, cost.estimator == "two-point", link, kind, k, *out)
    return delta, queries, level


def _check_names(estimator: str, direction: str, eta: float, mu: float, chunk: int, noise: float) -> None:
    if estimator not in ESTIMATORS:
        raise InvalidValue("method.estimator", estimator, f"give one of {', '.join(ESTIMATORS)}")
    if direction not in KINDS:
        raise InvalidValue("method.direction", direction, f"give one of {', '.join(KINDS)}")
    for field, number in (("method.eta", eta), ("method.mu", mu)):
        if not 0 < number < float("inf"):
            raise InvalidValue(field, number, "give a finite number > 0")
    if chunk < 1:
        raise InvalidValue("method.chunk", chunk, "a component needs at least one record")
    if not 0 <= noise < float("inf"):
        raise InvalidValue("method.query_noise", noise, "give a finite number ≥ 0")


def _check_counts(components: NDArray[np.int64], steps: NDArray[np.int64], batch: NDArray[np.int64]) -> None:
    if steps.min(initial=0) < 0 or steps.max(initial=0) >= VISITS - 1:
        raise InvalidValue("method.local_steps", int(steps.max()), f"give a whole number from 0 to {VISITS - 2}")
    if batch.min(initial=1) < 1:
        raise InvalidValue("method.batch_size", int(batch.min()), "give a whole number ≥ 1")
    if (batch > components).any():
        worst = int((batch - components).argmax())
        cure = f"a client has {int(components[worst])} components; lower it, or take fewer records a component"
        raise InvalidValue("method.batch_size", int(batch[worst]), cure)
