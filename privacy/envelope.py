"""Which accounts are known to stay within a budget, so that most charges need no composition.

Loss grows with every count, so an account below a proven one is proven, and one above a refused one is refused. What is
left is first tried with Chernoff's bound, which is linear in the counts; only then is the loss composed, once for all
clients with equal accounts and budgets, and the proof is stretched along the growth that was asked for by galloping, in
a number of compositions that is logarithmic in the releases that still fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .accountants import Accountant, by_unit
from .events import Event
from .pld import ORDERS, within
from .profiles import Floats

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

_ROUNDING = 1e-9
"""A budget is passed only by more than this share of it: an ε planned to equal it is within."""
_SHORTEST_STRETCH = 32
_LONGEST_STRETCH = 2**20


class Envelope:
    """The proven accounts of ``len(budgets)`` clients at one δ; ``budgets`` are ε, ``inf`` where there is none."""

    def __init__(self, accountant: Accountant, delta: float, budgets: Floats) -> None:
        self._accountant = accountant
        self._delta = delta
        self._budgets = budgets
        self._events: list[Event] = []
        self._noiseless = np.zeros(0, dtype=bool)
        self._moments: Floats = np.zeros((0, len(ORDERS)))
        self._infinite: Floats = np.zeros(0)
        self._planned: Counts = np.zeros((len(budgets), 0), dtype=np.int64)
        self._proven: Counts = np.zeros((len(budgets), 0), dtype=np.int64)
        self._refused: dict[tuple[bytes, float], bool] = {}

    def extend(self, events: Sequence[Event]) -> None:
        """Take in further events; they become the next columns of the counts."""
        if not events:
            return
        self._events += events
        silent = np.array([event.noise_multiplier == 0 for event in events])
        if np.isfinite(self._budgets).any():
            known = [
                (np.zeros(len(ORDERS)), 0.0) if mute else self._accountant.log_moments(event)
                for event, mute in zip(events, silent)
            ]
            self._moments = np.concatenate([self._moments, np.array([moments for moments, _ in known])])
            self._infinite = np.append(self._infinite, [chance for _, chance in known])
        self._noiseless = np.append(self._noiseless, silent)
        more = np.zeros((len(self._budgets), len(events)), dtype=np.int64)
        self._planned = np.concatenate([self._planned, more], axis=1)
        self._proven = np.concatenate([self._proven, more], axis=1)

    def admits(self, clients: Counts, accounts: Counts, growth: Counts) -> Flags:
        """Whether each client's account stays within its budget.

        Args:
            clients: distinct clients, shape [C].
            accounts: their counts after the charge, shape [C, E].
            growth: what the charge adds, shape [C, E]; it says where to look for the next proof.
        """
        budgets = self._budgets[clients]
        good = np.isinf(budgets)
        doomed = (accounts[:, self._noiseless] > 0).any(axis=1)
        for proof in (self._planned, self._proven):
            good |= ~doomed & (accounts <= proof[clients]).all(axis=1)
        open_ = np.flatnonzero(~good & ~doomed)
        if len(open_):
            good[open_] = self._quickly(accounts[open_], budgets[open_])
            open_ = open_[~good[open_]]
        groups: dict[tuple[bytes, float, bytes], list[int]] = {}
        for k in open_:
            key = (accounts[k].tobytes(), float(budgets[k]), growth[k].tobytes())
            groups.setdefault(key, []).append(int(k))
        for (_, budget, _), members in groups.items():
            if self._fits(accounts[members[0]], budget):
                good[members] = True
                # Looking no farther than the history is long keeps every composition as cheap as the account itself.
                limit = max(_SHORTEST_STRETCH, int(accounts[members[0]].sum()))
                self._proven[clients[members]] = self._stretch(accounts[members[0]], growth[members[0]], budget, limit)
        return good

    def certify(self, accounts: Counts) -> Flags:
        """Prove the planned accounts, shape [N, E], of all clients at once; False where a plan passes the budget."""
        good = np.isinf(self._budgets)
        verdicts: dict[tuple[bytes, float], bool] = {}
        for client in np.flatnonzero(~good):
            key = (accounts[client].tobytes(), float(self._budgets[client]))
            if key not in verdicts:
                verdicts[key] = self._fits(accounts[client], key[1])
            if verdicts[key]:
                good[client] = True
                self._planned[client] = accounts[client]
        return good

    def releases_left(self, client: int, account: Counts, growth: Counts) -> float:
        """How often ``growth``, shape [E], can still be added to the account, shape [E].

        ``inf`` without a budget; no more than 2²⁰ are looked for.
        """
        budget = float(self._budgets[client])
        if math.isinf(budget):
            return math.inf
        if not self._fits(account + growth, budget):
            return 0
        reach = self._stretch(account, growth, budget, _LONGEST_STRETCH)
        return int(((reach - account)[growth > 0] // growth[growth > 0]).min())

    def _quickly(self, accounts: Counts, budgets: Floats) -> Flags:
        """Where Chernoff's bound, linear in the counts, is proof enough; [C, E] and [C] to [C].

        Events of both units count together here, as they do for one record.
        """
        return within(accounts @ self._moments, budgets, self._delta * (1 - 1e-6) - accounts @ self._infinite)

    def _fits(self, account: Counts, budget: float) -> bool:
        used = np.flatnonzero(account)
        if self._noiseless[used].any():
            return False
        key = (np.stack([used, account[used]]).tobytes(), budget)
        if key in self._refused:
            return False
        if self._quickly(account[None], np.array([budget]))[0]:
            return True
        counts = {self._events[e]: int(account[e]) for e in used}
        limit = budget * (1 + _ROUNDING)
        if all(self._accountant.bound(part, self._delta) <= limit for part in by_unit(counts).values()):
            return True
        self._refused[key] = True
        return False

    def _stretch(self, account: Counts, growth: Counts, budget: float, limit: int) -> Counts:
        """The farthest account + g·growth that fits with g ≤ limit, given that ``account`` does."""
        fits, fails = 0, 1
        while fails <= limit and self._fits(account + fails * growth, budget):
            fits, fails = fails, 2 * fails
        fails = min(fails, limit + 1)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if self._fits(account + middle * growth, budget):
                fits = middle
            else:
                fails = middle
        return account + fits * growth
