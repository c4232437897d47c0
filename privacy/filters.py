"""Budgets that hold however the next release was chosen from what the ones before it showed.

A schedule that is fixed beforehand composes by any account, and ``envelope`` checks it. Where noise, participation or the
decision to go on depend on released values, the bounds themselves are random, and a budget holds for those quantities
for which a filter is proven: keep releasing while the sum of what the releases cost, known before each, stays within a
limit that was fixed at the start.

* ``"gaussian"``: Σ μ_i² ≤ μ² keeps the whole μ-Gaussian-DP (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023),
  with the exact conversion of μ to (ε, δ);
* ``"rdp"``: Σ_i t·D_{1+t} ≤ B_t keeps the whole within B_t at an order t fixed at the start (Feldman & Zrnic 2021).
  Several orders are kept at once, with δ shared evenly between them: the filter stops when the last of them is spent,
  and the part of δ(ε) = E(1 − e^{ε−L})₊ of histories that ended within an order is at most that order's share;
* ``"zcdp"``: Σ ρ_i ≤ ρ is the same at all orders together, so no sharing is needed (Whitehouse, Ramdas, Rogers & Wu
  2023, "Fully-adaptive composition in differential privacy").

For a schedule that happens to be fixed each says what its plain composition says: the filters cost nothing, except that
the account must be chosen at the start and not after the fact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from . import renyi
from .accountants import Accountant
from .calibration import analytic_noise_multiplier
from .envelope import Counts, Flags
from .events import ApproximateEvent, Event
from .profiles import Floats, gaussian_shift, repeats

FilterKind = Literal["gaussian", "zcdp", "rdp"]

ORDERS: Floats = np.exp2(np.arange(-1, 11, dtype=np.float64))
"""The orders t = α − 1 that ``"rdp"`` keeps."""
_ROUNDING = 1e-9
"""As in ``envelope``: a budget is passed only by more than this share of it."""
_SUMMING = 1e-12
_MOST_RELEASES = 2**20
_INFINITE = 1e-6
"""The share of δ set aside for losses that the moments leave out."""


class Filter:
    """The filter of ``len(budgets)`` clients at one δ; ``budgets`` are ε, ``inf`` where there is none.

    It answers what ``Envelope`` answers, by sums that are linear in the counts. Events that the chosen quantity does not
    bound (ρ-zCDP for ``"gaussian"``, sampled ones without amplification for it and for ``"zcdp"``, (ε, δ)-DP for none)
    are refused to clients with a budget. Releases of both units have one sum, which is that for one record (see
    ``account_for``) and never below that for a whole data set.
    """

    def __init__(self, kind: FilterKind, accountant: Accountant, delta: float, budgets: Floats) -> None:
        self.kind = kind
        self._accountant = accountant
        self._delta = delta
        self._budgets = budgets
        width = len(ORDERS) if kind == "rdp" else 1
        distinct, place = np.unique(budgets, return_inverse=True)
        table = np.array([self._limit(float(budget)) for budget in distinct]).reshape(len(distinct), width)
        self._limits: Floats = table[place]
        self._events: list[Event] = []
        self._costs: Floats = np.zeros((0, width))
        self._infinite: Floats = np.zeros(0)
        self._boundless = np.zeros(0, dtype=bool)

    def extend(self, events: Sequence[Event]) -> None:
        """Take in further events; they become the next columns of the counts."""
        for event in events:
            cost, infinite = self._cost(event)
            boundless = not np.isfinite(cost).all()
            self._events.append(event)
            self._costs = np.vstack([self._costs, np.zeros_like(cost) if boundless else cost])
            self._infinite = np.append(self._infinite, infinite)
            self._boundless = np.append(self._boundless, boundless)

    def admits(self, clients: Counts, accounts: Counts, growth: Counts) -> Flags:
        """Whether each client's account, shape [C, E] after the charge, is within the filter; [C]."""
        return np.asarray(np.isinf(self._budgets[clients]) | self._within(accounts, self._limits[clients]))

    def certify(self, accounts: Counts) -> Flags:
        """Whether the accounts, shape [N, E], of all clients are within the filter. It proves nothing in advance."""
        return self.admits(np.arange(len(self._budgets)), accounts, accounts)

    def releases_left(self, client: int, account: Counts, growth: Counts) -> float:
        """How often ``growth``, shape [E], can still be added to the account; ``inf`` without a budget, at most 2²⁰."""
        if math.isinf(self._budgets[client]):
            return math.inf
        fits, fails = 0, _MOST_RELEASES + 1
        while fails - fits > 1:
            middle = (fits + fails) // 2
            after = (account + middle * growth)[None]
            fits, fails = (middle, fails) if self._within(after, self._limits[[client]])[0] else (fits, middle)
        return fits

    def holds(self, account: Mapping[Event, int], client: int = 0) -> bool:
        """Whether an account is within the client's limit, whether or not its events were taken in before."""
        costs = [(count, *self._cost(event)) for event, count in account.items() if count]
        if math.isinf(self._budgets[client]) or not costs:
            return True
        spent = np.sum([count * cost for count, cost, _ in costs], axis=0)
        infinite = math.fsum(count * chance for count, _, chance in costs)
        return bool((spent <= self._limits[client] * (1 + _SUMMING)).any() and infinite <= _INFINITE * self._delta)

    def _within(self, accounts: Counts, limits: Floats) -> Flags:
        good = ~(accounts[:, self._boundless] > 0).any(axis=1)
        # Some order that is not spent is enough; the others have one only.
        good &= (accounts @ self._costs <= limits * (1 + _SUMMING)).any(axis=1)
        return np.asarray(good & (accounts @ self._infinite <= _INFINITE * self._delta))

    def _limit(self, budget: float) -> Floats:
        """What the sums may come to for (budget, δ), shape [orders]; negative where an order can prove nothing."""
        if math.isinf(budget):
            return np.full(len(ORDERS) if self.kind == "rdp" else 1, np.inf)
        budget *= 1 + _ROUNDING
        if self.kind == "gaussian":
            return np.array([analytic_noise_multiplier(budget, self._delta) ** -2 if budget > 0 else 0.0])
        if self.kind == "rdp":
            share = self._delta * (1 - _INFINITE) / len(ORDERS)
            return ORDERS * budget - renyi.hoelder(ORDERS) + math.log(share)
        return np.array([_largest_rho(budget, self._delta)])

    def _cost(self, event: Event) -> tuple[Floats, float]:
        """What one release adds to the sums, shape [orders], ``inf`` where it has no bound; its chance of an infinite
        loss."""
        width = len(ORDERS) if self.kind == "rdp" else 1
        if event.noise_multiplier <= 1e-150 or isinstance(event, ApproximateEvent):
            return np.full(width, np.inf), 0.0
        if self.kind == "gaussian":
            return np.array([gaussian_shift(event) ** 2]), 0.0
        if self.kind == "zcdp":
            return np.array([repeats(event) / (2 * event.noise_multiplier**2)]), 0.0
        if renyi.closed_form(event):
            return renyi.log_moment(event, ORDERS), 0.0
        loss = self._accountant.loss(event)
        return repeats(event) * loss.log_moment(ORDERS), repeats(event) * loss.infinite


def _largest_rho(epsilon: float, delta: float) -> float:
    """The largest ρ (to 1e-12, rounded down) at which ρ-zCDP is proven to be (ε, δ)-DP; 0 for ε = 0."""
    if epsilon <= 0:
        return 0.0

    def loss(rho: float) -> float:
        return renyi.epsilon(lambda t: t * (t + 1) * rho, delta)

    low, high = 0.0, epsilon
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) <= epsilon else (low, middle)
    return low
