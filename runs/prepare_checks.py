"""Checks of a run that need more than one of its parts. Each raises InvalidValue, before anything runs or is charged."""

from __future__ import annotations

import numpy as np
import torch

from ..actors.plan import Plan
from ..algorithms.method import GraphMethod, Method
from ..algorithms.problems.base import Problem
from ..errors import InvalidValue
from ..privacy.events import (
    ApproximateEvent,
    EpochEvent,
    Event,
    GaussianEvent,
    IidEvent,
    IndependentEvent,
    PureEvent,
    SubsampledEvent,
    ZcdpEvent,
)
from .config import RunConfig
from .data import Dataset

# What a release with σ = z sensitivities, or with radial noise that makes it 1/z-DP, keeps with this noise multiplier z.
_COVERED: dict[str, tuple[type[Event], ...]] = {
    "gaussian": (GaussianEvent, EpochEvent, IndependentEvent, IidEvent, SubsampledEvent, ZcdpEvent),
    "radial": (PureEvent, ZcdpEvent, ApproximateEvent),
}


def check_mechanism(method: Method, config: RunConfig) -> None:
    """A reference without a mechanism is refused where privacy is asked for."""
    if not method.private and config.privacy.mode != "none":
        raise InvalidValue(
            "privacy.mode", config.privacy.mode, f'{method.name} is a reference without privacy; take mode = "none"'
        )


def check_records(problem: Problem, dataset: Dataset) -> None:
    """Every record keeps the bounds that the problem declares."""
    for features, labels in (
        (dataset.train_features, dataset.train_labels),
        (dataset.test_features, dataset.test_labels),
    ):
        problem.check(torch.from_numpy(np.ascontiguousarray(features)), torch.from_numpy(np.ascontiguousarray(labels)))


def check_account(method: Method, problem: Problem, sizes: np.ndarray, weights: np.ndarray, plan: Plan) -> None:
    """What the ledger will charge is what the method says of itself, and about the noise that the gate will add."""
    for event in plan.events:
        if (event.unit, event.status) != (method.unit, method.status):
            raise InvalidValue(
                "method.name",
                method.name,
                f"is {method.status} for one {method.unit}, and its event() gives one that is {event.status} for one "
                f"{event.unit}; hand on unit=self.unit, status=self.status",
            )
    everyone, seen = np.arange(len(sizes)), set[tuple[int, ...]]()
    for t in range(0 if method.opens else 1, len(plan.participants) + 1):
        numbers = tuple(np.unique(plan.events_of(t, everyone)).tolist())
        if numbers[0] < 0 or numbers in seen:
            continue
        seen.add(numbers)
        at = method.bound_at if isinstance(method, GraphMethod) else None
        bound = method.bound(problem, sizes, weights, t) if at is None else at(problem, sizes, weights, everyone, t)
        for event in (plan.events[number] for number in numbers):
            if not isinstance(event, _COVERED[bound.noise]):
                raise InvalidValue(
                    "method.name",
                    method.name,
                    f"adds {bound.noise} noise in round {t}, which an event of kind {event.kind!r} says nothing of; give "
                    "the event of the noise that its bound() names",
                )
            # Gaussian noise on several values is that on all of them together; radial noise on each is not, and of the
            # steps of DP-SGD every one is a value on a sample of its own.
            covered = (
                event.steps if isinstance(event, SubsampledEvent) else 1 if bound.noise == "radial" else bound.parts
            )
            if bound.parts > covered:
                raise InvalidValue(
                    "method.name",
                    method.name,
                    f"releases {bound.parts} values in round {t}, and its event of kind {event.kind!r} covers {covered}",
                )


def check_curvature(
    config: RunConfig, method: Method, problem: Problem, sizes: np.ndarray, weights: np.ndarray, plan: Plan
) -> None:
    """A perturbed objective loses some privacy by its shape alone, whatever the noise: the rest must be more than 0."""
    if not isinstance(method, GraphMethod):
        return
    everyone = np.arange(len(sizes))
    for t, chosen in enumerate(plan.participants, 1):
        bound = method.bound_at(problem, sizes, weights, everyone, t) if len(chosen) else None
        if bound is None or bound.noise != "radial":
            continue
        z = np.zeros(len(sizes))
        z[chosen] = plan.multipliers[plan.events_of(t, chosen)]
        if (short := np.isinf(bound.radial_scale(z))).any():
            client = int(short.argmax())
            costs = 0.0 if bound.curvature is None else float(bound.curvature[client])
            raise InvalidValue(
                "privacy.epsilon",
                config.privacy.epsilon,
                f"it leaves client {client} ε = {1 / z[client]:.3g} for round {t}, and the curvature of its objective alone "
                f"costs {costs:.3g}; give a larger one, fewer rounds, a larger penalty or method.phi",
            )


def check_injected(injected: np.ndarray | None, config: RunConfig, shape: tuple[int, int, int]) -> None:
    """Known noise has the run's shape, and stands in no run that claims privacy."""
    if injected is None:
        return
    if config.privacy.mode != "none":
        raise InvalidValue("noise", "an array", 'known noise protects nobody; inject it with privacy.mode = "none"')
    if injected.shape != shape:
        raise InvalidValue("noise", injected.shape, f"give an array of shape {shape}: rounds, clients, parameters")
