"""From what was released to ε: every valid account of the same releases, and the smallest of them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import InvalidValue
from . import pld, renyi, sampled_rdp
from .events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent, PureEvent, Status, Unit, ZcdpEvent
from .profiles import (
    Floats,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_shift,
    profile,
    profile_epsilon,
    repeats,
)
from .pure import Walk

UNAMPLIFIED = "unamplified"
RDP = "rdp-without-replacement"
PLD = "pld-by-position"
ZCDP = "zcdp"
RENYI = "renyi"
BASIC = "basic"
PURE = "pure-walk"
SINGLE = "single-release"

_MOST_EVENTS = 16384


@dataclass(frozen=True)
class Epsilon:
    """The loss of an account at some δ.

    ``epsilon`` is the smallest of ``alternatives``, and ``account`` names it. ``status`` is ``"claimed"`` as soon as
    one event is. ``unit`` is what neighbours differ in. ``inf`` means that something left without noise.
    """

    epsilon: float
    account: str
    status: Status
    unit: Unit
    alternatives: Mapping[str, float] = field(default_factory=dict)


def check_delta(delta: float, name: str = "delta") -> float:
    """``delta`` if it lies strictly between 0 and 1. Raises InvalidValue."""
    if not 0 < delta < 1:
        raise InvalidValue(name, delta, "give a number strictly between 0 and 1, well below 1/(number of records)")
    return delta


def account_for(account: Mapping[Event, int], unit: Unit) -> dict[Event, int]:
    """The releases that count for one unit, as events of that unit.

    Two data sets of a client that differ in one record differ as whole data sets too, so a release that protects the
    whole set protects a record to the same degree, and costs it as much. The other way there is no bound: what releases
    for one record reveal of a whole data set is not in the account for the unit client.
    """
    counts: dict[Event, int] = {}
    for event, count in account.items():
        if count and unit in ("record", event.unit):
            own = event if event.unit == unit else replace(event, unit=unit)
            counts[own] = counts.get(own, 0) + count
    return counts


def by_unit(account: Mapping[Event, int]) -> dict[Unit, dict[Event, int]]:
    """The account of each unit that releases were made for."""
    units = sorted({event.unit for event, count in account.items() if count})
    return {unit: account_for(account, unit) for unit in units}


class Accountant:
    """Computes ε and δ of accounts, and remembers what it knows of each event so that the next account is quick.

    An account is a mapping from events to numbers of releases. These bounds are computed where they apply (SPEC
    section 2); each holds against an adaptive sequence of releases, so the smallest is reported:

    * ``"unamplified"``: every release as a Gaussian, √(Σ μ²) in one exact formula (Balle & Wang 2018); a pure release is
      one of μ = −2Φ⁻¹(1/(1 + e^ε)), a ρ-zCDP release is none;
    * ``"pld-by-position"``: privacy loss distributions of the profiles, where every release has one;
    * ``"single-release"``: the profile itself, exact, where there is one release;
    * ``"pure-walk"``: pure and (ε, δ) releases alone, composed exactly (Kairouz, Oh & Viswanath 2015), and ``"basic"``,
      the sum of their ε;
    * ``"renyi"``: moments of all releases added up, at the best order; the only one where a ρ-zCDP release and sampled
      releases meet;
    * ``"zcdp"``: ρ + 2√(ρ ln(1/δ)) where nothing is sampled (Bun & Steinke 2016; a pure release has ρ = ε²/2), for
      comparison;
    * ``"rdp-without-replacement"``, where samples of a fixed size occur and ``rdp`` is set: dp-accounting's accountant
      (Wang, Balle & Kasiviswanathan 2019); other events enter it by their own Rényi divergences, without amplification.

    The δ of (ε, δ)-DP releases is set aside first: with Δ = 1 − Π(1 − δ_i) the others must prove (δ − Δ)/(1 − Δ).

    Args:
        unit: what neighbours must differ in; ``None`` takes the unit of each account's events.
        rdp: whether to compute the RDP account (20 ms for the first sight of an event, and hardly ever the smallest).
        tolerance: how far the grid may move the PLD's ε, upwards, as a share of it (about).

    Not thread-safe.
    """

    def __init__(self, unit: Unit | None = None, *, rdp: bool = True, tolerance: float = 5e-5) -> None:
        self.unit = unit
        self.rdp = rdp
        self.tolerance = tolerance
        self.compositions = 0
        """How many PLD compositions were made so far: what an answer costs."""
        self._losses: OrderedDict[Event, pld.EventLoss] = OrderedDict()
        self._spectra = pld.SpectrumCache()

    def epsilon(self, account: Mapping[Event, int], delta: float) -> Epsilon:
        """The loss of ``account`` at ``delta``; 0 for an empty account, ``inf`` where an event has no noise.

        Raises:
            InvalidValue: δ outside (0, 1).
            ValueError: a negative count, an unknown kind of event, or units that differ.
        """
        check_delta(delta)
        counts = self._checked(account)
        found = self._epsilons(counts, delta, self.tolerance)
        if self.rdp and _noisy(counts) and sampled_rdp.applies(counts):
            left = _left(counts, delta)
            found[RDP] = sampled_rdp.epsilon(counts, left) if left > 0 else math.inf
        name = min(found, key=lambda known: found[known])
        return Epsilon(found[name], name, self._status(counts), self._unit(counts), found)

    def bound(self, account: Mapping[Event, int], delta: float, tolerance: float | None = None) -> float:
        """ε as ``epsilon`` reports it, but without the RDP account and, with a larger ``tolerance``, on a coarser grid.

        An upper bound all the same: what planning and budgets are checked with. Raises as ``epsilon`` does.
        """
        check_delta(delta)
        return min(self._epsilons(self._checked(account), delta, tolerance or self.tolerance).values())

    def delta(self, account: Mapping[Event, int], epsilon: float) -> float:
        """The smallest δ proven for ``account`` at ``epsilon`` ≥ 0, by the same bounds; 1 where an event has no noise.

        Raises InvalidValue for ε < 0 and ValueError as ``epsilon`` does.
        """
        if not epsilon >= 0:
            raise InvalidValue("epsilon", epsilon, "give a number ≥ 0")
        counts = self._checked(account)
        if not counts:
            return 0.0
        if not _noisy(counts):
            return 1.0
        broken = _broken(counts)
        if math.isinf(epsilon):
            return broken
        found = [1.0]
        if _has_pairs(counts):
            found.append(float(gaussian_delta(epsilon, total_shift(counts))))
        if _pure(counts) and epsilon >= _sum(counts):
            found.append(0.0)
        if (walk := _walk(counts)) is not None:
            found.append(walk.delta(epsilon))
        if not _all(counts, GaussianEvent) and (moments := self._moments(counts)) is not None:
            found.append(renyi.delta(moments[0], epsilon) + moments[1])
        if self.rdp and sampled_rdp.applies(counts):
            found.append(sampled_rdp.delta(counts, epsilon))
        smallest = min(1.0, broken + (1 - broken) * min(found))
        if _has_pairs(counts) and walk is None and not _all(counts, GaussianEvent):
            # Their own infinite losses are in these already.
            if (single := _single(counts)) is not None:
                return min(smallest, float(profile(single).delta(np.array([epsilon]))[0]))
            smallest = min(smallest, self._composed(counts, epsilon=epsilon).delta(epsilon))
        return smallest

    def log_moments(self, event: Event) -> tuple[Floats, float]:
        """Upper bounds on ln E e^{tL} of one release at the common orders, shape [37], and its chance of infinite loss.

        Both add up over releases, and ``pld.within`` turns sums into a quick proof that some ε holds. The event must
        have noise.
        """
        if isinstance(event, ZcdpEvent):
            return renyi.log_moment(event, pld.ORDERS), 0.0
        loss = self.loss(event)
        return repeats(event) * loss.sketch.up, repeats(event) * loss.infinite

    def _epsilons(self, counts: Mapping[Event, int], delta: float, tolerance: float) -> dict[str, float]:
        """Every account that applies, by its name, without the RDP account."""
        if not counts:
            return {UNAMPLIFIED: 0.0}
        if not _noisy(counts):
            return {UNAMPLIFIED: math.inf}
        left, found = _left(counts, delta), {}
        if _has_pairs(counts):
            found[UNAMPLIFIED] = gaussian_epsilon(left, total_shift(counts)) if left > 0 else math.inf
        if (rho := _total_rho(counts)) is not None:
            found[ZCDP] = rho + 2 * math.sqrt(-rho * math.log(delta))
        if _all(counts, GaussianEvent):
            return found
        if _pure(counts):
            found[BASIC] = _sum(counts) if left >= 0 else math.inf
        if (moments := self._moments(counts)) is not None:
            found[RENYI] = renyi.epsilon(moments[0], left - moments[1])
        if (walk := _walk(counts)) is not None:
            found[PURE] = walk.epsilon(left)
        elif (single := _single(counts)) is not None:
            found[SINGLE] = profile_epsilon(profile(single), delta)
        elif _has_pairs(counts):
            found[PLD] = self._composed(counts, delta=delta, tolerance=tolerance).epsilon(delta)
        return found

    def _moments(self, counts: Mapping[Event, int]) -> tuple[renyi.LogMoments, float] | None:
        """ln E e^{tL} of the account and its chance of an infinite loss, where it is wanted: with formulas alone, or
        where a ρ-zCDP release leaves no other way."""
        formulas = {event: count for event, count in counts.items() if renyi.closed_form(event)}
        if len(formulas) < len(counts) and _has_pairs(counts):
            return None
        sampled = [(self.loss(event), n * repeats(event)) for event, n in counts.items() if event not in formulas]

        def total(orders: Floats) -> Floats:
            sums = np.zeros_like(orders)
            for event, count in formulas.items():
                sums = sums + count * renyi.log_moment(event, orders)
            for loss, count in sampled:
                sums = sums + count * loss.log_moment(orders)
            return sums

        return total, sum(count * loss.infinite for loss, count in sampled)

    def _composed(
        self,
        counts: Mapping[Event, int],
        delta: float | None = None,
        epsilon: float | None = None,
        tolerance: float | None = None,
    ) -> pld.ComposedLoss:
        self.compositions += 1
        return pld.compose(
            [self.loss(event) for event in counts],
            [count * repeats(event) for event, count in counts.items()],
            self._spectra,
            delta=delta,
            epsilon=epsilon,
            tolerance=tolerance or self.tolerance,
        )

    def loss(self, event: Event) -> pld.EventLoss:
        """The loss distribution of one release (of each of its ``repeats``), remembered. Raises ValueError."""
        loss = self._losses.get(event)
        if loss is None:
            loss = self._losses[event] = pld.EventLoss(profile(event))
            if len(self._losses) > _MOST_EVENTS:
                self._losses.popitem(last=False)
        return loss

    def _checked(self, account: Mapping[Event, int]) -> dict[Event, int]:
        """The account without zero counts, in an order that does not depend on how it was built."""
        if any(count < 0 for count in account.values()):
            raise ValueError("an account cannot hold a negative number of releases")
        counts = {event: int(count) for event, count in account.items() if count}
        units = {event.unit for event in counts}
        if len(units) > 1 or (self.unit is not None and units - {self.unit}):
            raise ValueError(
                f"an account for the unit {self.unit or 'of its events'!r} cannot hold events for {sorted(units)}: "
                "a loss per record and a loss per client do not add up"
            )
        return dict(sorted(counts.items(), key=lambda item: item[0].digest))

    def _unit(self, counts: Mapping[Event, int]) -> Unit:
        return next((event.unit for event in counts), self.unit or "record")

    @staticmethod
    def _status(counts: Iterable[Event]) -> Status:
        return "claimed" if any(event.status == "claimed" for event in counts) else "guaranteed"


def total_shift(account: Mapping[Event, int]) -> float:
    """√(Σ count·μ²): the Gaussian-DP parameter of the account if no sampling hid anything, infinite losses aside."""
    total = 0.0
    for event, count in account.items():
        if count:
            total += count * gaussian_shift(event) ** 2
    return math.sqrt(total)


def _all(account: Iterable[Event], *kinds: type[Event]) -> bool:
    return all(isinstance(event, kinds) for event in account)


def _noisy(account: Iterable[Event]) -> bool:
    """Whether every release had noise; squares of tiny multipliers underflow, and their loss is infinite for all
    purposes."""
    return all(event.noise_multiplier > 1e-150 for event in account)


def _has_pairs(account: Iterable[Event]) -> bool:
    """Whether every release is dominated by a pair of distributions, so that profiles compose."""
    return not any(isinstance(event, ZcdpEvent) for event in account)


def _pure(account: Iterable[Event]) -> bool:
    return _all(account, PureEvent, LaplaceEvent, ApproximateEvent)


def _sum(account: Mapping[Event, int]) -> float:
    return math.fsum(count / event.noise_multiplier for event, count in account.items())


def _broken(account: Mapping[Event, int]) -> float:
    """1 − Π(1 − δ_i) over the (ε, δ)-DP releases."""
    kept = (count * math.log1p(-event.delta) for event, count in account.items() if isinstance(event, ApproximateEvent))
    return -math.expm1(math.fsum(kept))


def _left(account: Mapping[Event, int], delta: float) -> float:
    """What the finite losses have to prove for ``delta`` to hold."""
    broken = _broken(account)
    return (delta - broken) / (1 - broken) if broken < 1 else -1.0


def _walk(account: Mapping[Event, int]) -> Walk | None:
    counts = list(account.values())
    if not _all(account, PureEvent, ApproximateEvent) or not Walk.feasible(counts):
        return None
    return Walk([1 / event.noise_multiplier for event in account], counts)


def _single(account: Mapping[Event, int]) -> Event | None:
    """The only release of the account, if it has just one and that has a profile."""
    if len(account) != 1:
        return None
    event, count = next(iter(account.items()))
    return event if count * repeats(event) == 1 and _has_pairs(account) else None


def _total_rho(account: Mapping[Event, int]) -> float | None:
    """ρ of the account where every release is known to be zCDP and none is sampled, else None."""
    total = 0.0
    for event, count in account.items():
        if not isinstance(event, (GaussianEvent, ZcdpEvent, PureEvent, LaplaceEvent)):
            return None
        total += count / (2 * event.noise_multiplier**2)
    return total
