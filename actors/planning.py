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
    IndependentEvent,
    LaplaceEvent,
    PureEvent,
    ZcdpEvent,
)
from ..privacy.profiles import repeats
from .plan import Plan

# Of these, one with a smaller contraction costs more at the same rate.
_ORDERED = (GaussianEvent, EpochEvent, IidEvent)
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
    cap: int | None = None,
    arrivals_decide: bool = False,
) -> Plan:
    """Solve the noise of every client for its own number of participations and lay out the events.

    ``cap`` is the most participations of any client, kept by the ledger. With ``arrivals_decide`` nobody knows beforehand
    which rounds a client takes part in: noise is solved for ``cap`` (by default all) participations at the highest price.

    Raises InvalidValue where the calibration asked for is not valid.
    """
    kinds, kind_of = np.unique(np.stack([sizes.astype(float), weights]), axis=1, return_inverse=True)
    kind_of = kind_of.reshape(-1)
    opening = np.unique(np.concatenate(participants)) if method.opens else None
    first = 1 if opening is None else 0
    templates, growths, template_of, round_class = _templates(
        method, problem, kinds, range(first, len(participants) + 1)
    )
    foreseen = participants if cap is None else first_participations(participants, len(sizes), cap)
    if arrivals_decide and opening is not None:
        raise InvalidValue("policy.kind", "async", f"{method.name} releases its records first; take a policy of rounds")
    every = foreseen if opening is None else [opening, *foreseen]
    if arrivals_decide:
        if (growths != 1).any():
            cure = f"{method.name} has a schedule of noise over the rounds, of which nobody knows beforehand who is in which"
            raise InvalidValue("policy.kind", "async", f"{cure}; take a policy of rounds")
        templates, dearest = _dearest(templates, template_of)
        growths = np.ones(len(templates))
        counts = np.zeros((len(sizes), len(templates)), dtype=np.int64)
        counts[np.arange(len(sizes)), dearest[kind_of]] = len(participants) if cap is None else cap
    else:
        counts = _count(every, kind_of, round_class, template_of, len(templates))
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
    if arrivals_decide:
        planned = _plan_dearest(templates, counts, classes[1], client_class, events, used)
    else:
        planned = np.zeros((len(sizes), len(events)), dtype=np.int64)
        for column, chosen in zip(round_class, every):
            if event_of[0, column] >= 0:
                np.add.at(planned, (chosen, event_of[client_class[chosen], column]), 1)
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
        opening,
        None if cap is None else np.full(len(sizes), cap, dtype=np.int64),
    )


def first_participations(participants: list[np.ndarray], clients: int, cap: int) -> list[np.ndarray]:
    """The participations that a cap leaves of a list by rounds: each client's first ones."""
    taken, kept = np.zeros(clients, dtype=np.int64), []
    for chosen in participants:
        kept.append(chosen[taken[chosen] < cap])
        taken[kept[-1]] += 1
    return kept


def _dearest(templates: list[Event], template_of: np.ndarray) -> tuple[list[Event], np.ndarray]:
    """(templates, the number by kind of one that costs at least as much as any of the kind's, in any composition).

    One event is its own; of epoch batches the smallest contraction (see ``_costliest``); where neither holds, the plain
    Gaussian release that every one of them is a subsample of.
    """
    templates, chosen = list(templates), []
    for row in template_of:
        distinct = np.unique(row[row >= 0])
        mine = [templates[number] for number in distinct]
        if len(distinct) == 1:
            chosen.append(int(distinct[0]))
        elif all(isinstance(event, _ORDERED) for event in mine):
            one = np.zeros((1, len(templates)), dtype=np.int64)
            one[0, distinct] = 1
            chosen.append(int(_costliest(templates, one).argmax()))
        elif not all(isinstance(event, (*_ORDERED, IndependentEvent)) for event in mine):
            cure = "the rounds of this method differ in what they cost; take the same parameters in all, or a policy of rounds"
            raise InvalidValue("policy.kind", "async", cure)
        else:
            least = min(event.noise_multiplier for event in mine)
            templates.append(GaussianEvent(noise_multiplier=least, status=mine[0].status, unit=mine[0].unit))
            chosen.append(len(templates) - 1)
    return templates, np.array(chosen, dtype=np.int64)


def _plan_dearest(
    templates: list[Event],
    counts: np.ndarray,
    multipliers: np.ndarray,
    client_class: np.ndarray,
    events: dict[Event, int],
    used: dict[int, float],
) -> np.ndarray:
    """``[N, len(events)]``: every client's counts as events of its own noise, which are added to ``events``."""
    numbers = []
    for client, row in enumerate(counts):
        template, multiplier = templates[int(row.argmax())], float(multipliers[client_class[client]])
        event = replace(template, noise_multiplier=multiplier * template.noise_multiplier)
        numbers.append(events.setdefault(event, len(events)))
        used[numbers[-1]] = max(used.get(numbers[-1], 0.0), multiplier)
    planned = np.zeros((len(counts), len(events)), dtype=np.int64)
    planned[np.arange(len(counts)), numbers] = counts.max(axis=1)
    return planned


def _templates(
    method: Method, problem: Problem, kinds: np.ndarray, rounds: range
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
    round_class = np.empty(len(rounds), dtype=np.int64)
    for place, t in enumerate(rounds):
        growth, found = method.noise_growth(t), list[int]()
        for size, weight in kinds.T:
            event = method.event(problem, int(size), float(weight), t)
            if event is None:
                found.append(-1)
                continue
            found.append(numbers.setdefault(coarse(replace(event, noise_multiplier=growth)), len(numbers)))
            growths[found[-1]] = max(growth, growths.get(found[-1], 0.0))
        if len({number < 0 for number in found}) > 1:
            raise ValueError(f"{method.name}: round {t} has an event for some clients and none for others")
        round_class[place] = columns.setdefault(tuple(found), len(columns))
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
    for column, chosen in zip(round_class, participants):
        if template_of[0, column] >= 0:
            np.add.at(counts, (chosen, template_of[kind_of[chosen], column]), 1)
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
    ordered = all(isinstance(event, _ORDERED) for event in templates) and bool((growths == 1).all())
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
    shortfall = max((growth / event.noise_multiplier for growth, event in zip(growths, templates)), default=1.0)
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
