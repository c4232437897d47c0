"""Works out a plan before anything runs: who takes part in which round, and how much noise each client needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..algorithms.method import Method
from ..algorithms.problems.base import Problem
from ..errors import InvalidValue
from ..keys import generator, public_key
from ..privacy.accountants import Accountant
from ..privacy.calibration import analytic_noise_multiplier, classic_noise_multiplier, coarsen, plan_noise
from ..privacy.events import (
    ApproximateEvent,
    EpochEvent,
    Event,
    GaussianEvent,
    IidEvent,
    LaplaceEvent,
    PureEvent,
    ZcdpEvent,
)
from ..privacy.profiles import repeats
from .plan import Plan

# Past this many distinct accounts the noise is solved for the costliest of a client's events instead of for each of them.
_ACCOUNTS_SOLVED = 48


@dataclass(frozen=True)
class Noise:
    """How each client's noise multiplier is found: the privacy table of the configuration, checked."""

    mode: str
    epsilon: float | None = None
    delta: float = 1e-5
    round_delta: float | None = None
    calibration: str = "analytic"
    noise_multiplier: float | None = None
    rho_z: float | None = None
    budget: float | None = None


def draw_participants(rounds: int, clients: int, participants: int | None, seed: int) -> list[np.ndarray]:
    """S_t of (S2) for every round: K of N uniformly without replacement, keyed by the seed and the round."""
    if participants is not None and participants > clients:
        raise InvalidValue("method.participants", participants, f"there are {clients} clients; give at most that many")
    if participants is None or participants == clients:
        return [np.arange(clients)] * rounds
    key = public_key(seed)
    drawn = (
        generator(key, "participants", round=t).choice(clients, participants, replace=False)
        for t in range(1, rounds + 1)
    )
    return [np.sort(chosen) for chosen in drawn]


def check_participants(given: Sequence[Sequence[int]], rounds: int, clients: int) -> list[np.ndarray]:
    """An explicit list of participants, one entry a round, as ``draw_participants`` gives it."""
    if len(given) != rounds:
        raise InvalidValue(
            "participation", f"{len(given)} rounds", f"give one list of clients for each of the {rounds} rounds"
        )
    checked = []
    for t, listed in enumerate(given, 1):
        if not all(isinstance(client, (int, np.integer)) and not isinstance(client, bool) for client in listed):
            raise InvalidValue("participation", list(listed), f"round {t} must list whole numbers, the clients' ids")
        chosen = np.unique(np.asarray(listed, dtype=np.int64))
        if len(chosen) != len(listed) or (len(chosen) and not (chosen[0] >= 0 and chosen[-1] < clients)):
            raise InvalidValue(
                "participation", list(listed), f"round {t} must name different clients from 0 to {clients - 1}"
            )
        checked.append(chosen)
    return checked


def make_plan(
    method: Method,
    problem: Problem,
    sizes: np.ndarray,
    weights: np.ndarray,
    participants: list[np.ndarray],
    noise: Noise,
) -> Plan:
    """Solve the noise of every client for its own number of participations and lay out the events.

    Raises InvalidValue where the calibration asked for is not valid.
    """
    kinds, kind_of = np.unique(np.stack([sizes.astype(float), weights]), axis=1, return_inverse=True)
    kind_of = kind_of.reshape(-1)
    templates, growths, template_of, round_class = _templates(method, problem, kinds, len(participants))
    counts = _count(participants, kind_of, round_class, template_of, len(templates))
    multipliers = _multipliers(templates, growths, counts, noise)

    classes, client_class = np.unique(np.stack([kind_of.astype(float), multipliers]), axis=1, return_inverse=True)
    client_class = client_class.reshape(-1)
    events: dict[Event, int] = {}
    used: dict[int, float] = {}
    event_of = np.empty((classes.shape[1], template_of.shape[1]), dtype=np.int64)
    for row, (kind, multiplier) in enumerate(classes.T):
        for column, template in enumerate(template_of[int(kind)]):
            if template < 0:
                event_of[row, column] = -1
                continue
            relative = templates[template].noise_multiplier
            event = replace(templates[template], noise_multiplier=float(multiplier) * relative)
            number = event_of[row, column] = events.setdefault(event, len(events))
            used[number] = max(used.get(number, 0.0), float(multiplier) * growths[template])
    planned = np.zeros((len(sizes), len(events)), dtype=np.int64)
    for t, chosen in enumerate(participants):
        if event_of[0, round_class[t]] >= 0:
            np.add.at(planned, (chosen, event_of[client_class[chosen], round_class[t]]), 1)
    budget = noise.epsilon if noise.mode == "total" else noise.budget
    budgets = None if budget is None else np.full(len(sizes), budget)
    return Plan(
        participants,
        list(events),
        np.array([used[number] for number in range(len(events))]),
        multipliers,
        noise.delta,
        budgets,
        planned,
        client_class,
        round_class,
        event_of,
    )


def _templates(
    method: Method, problem: Problem, kinds: np.ndarray, rounds: int
) -> tuple[list[Event], np.ndarray, np.ndarray, np.ndarray]:
    """(distinct events on the coarse grid, the growth of the noise in their rounds, their number by [kind, class of
    round], the class of every round).

    Their noise multiplier is what the coarse grid leaves of that growth, which is 1 but for methods with a schedule of
    their own: an event may have to state less noise than is added. The number is −1 in a round that is not charged.
    """
    coarse = lru_cache(maxsize=None)(coarsen)
    numbers: dict[Event, int] = {}
    growths: dict[int, float] = {}
    columns: dict[tuple[int, ...], int] = {}
    round_class = np.empty(rounds, dtype=np.int64)
    for t in range(1, rounds + 1):
        growth, found = method.noise_growth(t), list[int]()
        for size, weight in kinds.T:
            event = method.event(problem, int(size), float(weight), t)
            if event is None:
                found.append(-1)
                continue
            found.append(numbers.setdefault(coarse(replace(event, noise_multiplier=growth)), len(numbers)))
            growths[found[-1]] = max(growth, growths.get(found[-1], 0.0))
        round_class[t - 1] = columns.setdefault(tuple(found), len(columns))
    template_of = np.array(list(columns), dtype=np.int64).reshape(len(columns), -1).T
    return list(numbers), np.array([growths[number] for number in range(len(numbers))]), template_of, round_class


def _count(
    participants: list[np.ndarray],
    kind_of: np.ndarray,
    round_class: np.ndarray,
    template_of: np.ndarray,
    templates: int,
) -> np.ndarray:
    counts = np.zeros((len(kind_of), templates), dtype=np.int64)
    for t, chosen in enumerate(participants):
        if len(chosen):
            np.add.at(counts, (chosen, template_of[kind_of[chosen], round_class[t]]), 1)
    return counts


def _multipliers(templates: list[Event], growths: np.ndarray, counts: np.ndarray, noise: Noise) -> np.ndarray:
    clients = len(counts)
    if noise.mode == "none":
        return np.zeros(clients)
    if noise.mode == "noise-multiplier":
        if noise.noise_multiplier is None:
            raise InvalidValue(
                "privacy.noise_multiplier", None, 'mode = "noise-multiplier" needs it; give a number > 0'
            )
        return np.full(clients, noise.noise_multiplier)
    if noise.mode == "zcdp":
        if noise.rho_z is None:
            raise InvalidValue("privacy.rho_z", None, 'mode = "zcdp" needs it; give a number > 0')
        # n releases of multiplier z cost n/(2z²)-zCDP (Bun & Steinke 2016), and so do n that are 1/z-DP.
        releases = counts @ (np.array([repeats(event) for event in templates]) / growths**2)
        return np.asarray(np.sqrt(np.maximum(releases, 1) / (2 * noise.rho_z)))
    if noise.epsilon is None:
        raise InvalidValue("privacy.epsilon", None, f"mode = {noise.mode!r} needs it; give a number > 0")
    if noise.mode == "per-round":
        return np.full(clients, max((_one_round(event, noise) for event in templates), default=0.0))
    distinct, account_of = np.unique(counts, axis=0, return_inverse=True)
    ordered = all(isinstance(event, (GaussianEvent, EpochEvent, IidEvent)) for event in templates)
    if len(distinct) > _ACCOUNTS_SOLVED and ordered:
        distinct, account_of = np.unique(_costliest(templates, counts), axis=0, return_inverse=True)
    accounts: list[Mapping[Event, int]] = [
        {templates[index]: int(row[index]) for index in np.flatnonzero(row)} for row in distinct
    ]
    solved = np.zeros(len(accounts))
    taking_part = [index for index, account in enumerate(accounts) if account]
    if (growths == 1).all():
        solved[taking_part] = plan_noise([accounts[index] for index in taking_part], noise.epsilon, noise.delta)
    else:
        solved[taking_part] = [_grown(accounts[index], noise.epsilon, noise.delta) for index in taking_part]
    # Noise is solved for events that state all of it; where one states less, more is added.
    shortfall = max(growth / event.noise_multiplier for growth, event in zip(growths, templates))
    return np.asarray(solved[account_of.reshape(-1)] * shortfall)


def _one_round(event: Event, noise: Noise) -> float:
    """The noise multiplier at which one event costs at most the loss of a round; sampling is not counted on."""
    assert noise.epsilon is not None
    if isinstance(event, (PureEvent, LaplaceEvent)):
        return 1 / noise.epsilon
    delta = noise.round_delta or noise.delta
    if isinstance(event, (ZcdpEvent, ApproximateEvent)):
        return plan_noise([{event: 1}], noise.epsilon, delta)[0]
    solve = classic_noise_multiplier if noise.calibration == "classic" else analytic_noise_multiplier
    return solve(noise.epsilon, delta) * math.sqrt(repeats(event))


def _grown(account: Mapping[Event, int], epsilon: float, delta: float) -> float:
    """The smallest z on the grid 1.001^k at which events with z times their own noise multiplier cost (ε, δ) at most.

    Raises InvalidValue where no z below 1e9 does.
    """
    accountant, step = Accountant(rdp=False), math.log(1.001)

    def fits(k: int) -> bool:
        scaled: dict[Event, int] = {}
        for event, count in account.items():
            noised = replace(event, noise_multiplier=event.noise_multiplier * math.exp(k * step))
            scaled[noised] = scaled.get(noised, 0) + count
        return accountant.bound(scaled, delta) <= epsilon

    low, high = math.floor(math.log(1e-3) / step), math.ceil(math.log(1e9) / step)
    if not fits(high):
        raise InvalidValue("privacy.epsilon", epsilon, "no noise keeps this budget; give a larger one")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return math.exp(high * step)


def _costliest(templates: list[Event], counts: np.ndarray) -> np.ndarray:
    """Count each client's participations as the costliest of its own events: the smallest contraction, at its own rate.

    Valid for epoch batches: the shifts by position relative to the largest fall with κ, so a smaller κ costs more.
    """
    contraction = np.array([getattr(event, "contraction", 0.0) for event in templates])
    order = np.argsort(contraction, kind="stable")
    costliest = order[(counts[:, order] > 0).argmax(axis=1)]
    merged = np.zeros_like(counts)
    merged[np.arange(len(counts)), costliest] = counts.sum(axis=1)
    return merged
