"""What a run that was stopped would have come to, had it gone on to its planned end."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..actors.plan import Plan
from ..privacy.accountants import Accountant
from ..privacy.events import Event
from ..privacy.ledger import Ledger
from .prepare import Prepared


def whole_epsilon(prepared: Prepared, ledger: Ledger, done: int) -> float:
    """The largest ε of a client after what ``ledger`` holds and what the plan has left after round ``done``.

    A run that was killed was charged twice for some rounds, so the plan alone would say too little. ``inf`` where nothing
    bounds what would come: a client of an asynchronous server that drops out begins anew and is charged again.
    """
    plan, config = prepared.job.plan, prepared.config
    most = math.inf if plan.budgets is None else float(np.max(plan.budgets))
    arrivals_decide = config.policy.kind == "async"
    if arrivals_decide and plan.caps is None and config.time.dropout > 0:
        return most
    taken = ledger.participations
    left = _arriving(plan, taken, done) if arrivals_decide else _listed(plan, taken, done)
    number = {event: place for place, event in enumerate(ledger.events)}
    total = ledger.counts
    total[:, [number[event] for event in plan.events]] += left
    accountant = Accountant(rdp=False)
    accounts: list[Mapping[Event, int]] = [
        {ledger.events[e]: int(row[e]) for e in np.flatnonzero(row)} for row in np.unique(total, axis=0)
    ]
    return min(most, max(accountant.bound(account, plan.delta) for account in accounts))


def _listed(plan: Plan, taken: np.ndarray, done: int) -> np.ndarray:
    """What the rounds after ``done`` charge, ``[N, len(events)]``: each client's first ones that its cap still allows."""
    left = np.zeros_like(plan.planned)
    free = None if plan.caps is None else plan.caps - taken
    for t, who in enumerate(plan.participants[done:], done + 1):
        clients = who if free is None else who[free[who] > 0]
        events = plan.events_of(t, clients)
        if not len(clients) or events[0] < 0:
            continue
        left[clients, events] += 1
        if free is not None:
            free[clients] -= 1
    return left


def _arriving(plan: Plan, taken: np.ndarray, done: int) -> np.ndarray:
    """The same where arrivals decide: whatever the cap leaves or one start a version, at the price that was planned."""
    most = np.full(len(taken), len(plan.participants) - done) if plan.caps is None else np.maximum(plan.caps - taken, 0)
    return np.where(plan.planned > 0, most[:, None], 0)
