"""From what was released to ε: every valid account of the same releases, and the smallest of them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ..errors import InvalidValue
from . import pld
from .events import EpochEvent, Event, GaussianEvent, Status, Unit
from .profiles import Floats, gaussian_delta, gaussian_epsilon, profile

UNAMPLIFIED = "unamplified"
RDP = "rdp-without-replacement"
PLD = "pld-by-position"
ZCDP = "zcdp"

_RDP_ORDERS: tuple[float, ...] = (1.25, 1.5, 1.75, *range(2, 17), 18, 20, 24, 28, 32, 40, 48, 64, 512)
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


class Accountant:
    """Computes ε and δ of accounts, and remembers what it knows of each event so that the next account is quick.

    An account is a mapping from events to numbers of releases. Three bounds are computed (SPEC section 2); each holds
    against an adaptive sequence of releases, so the smallest is reported:

    * ``"unamplified"``: all releases as Gaussians with shift 1/z, √(Σ 1/z²) in one exact formula (Balle & Wang 2018);
    * ``"rdp-without-replacement"``, where an epoch event occurs and ``rdp`` is set: dp-accounting's accountant
      (Wang, Balle & Kasiviswanathan 2019); other events enter it without amplification;
    * ``"pld-by-position"``, where sampling occurs: privacy loss distributions of the profiles of SPEC (D4);
    * ``"zcdp"``, where every event is Gaussian: ρ + 2√(ρ ln(1/δ)) (Bun & Steinke 2016), for comparison.

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
        found = {UNAMPLIFIED: gaussian_epsilon(delta, total_shift(counts))}
        if counts and math.isfinite(found[UNAMPLIFIED]):
            if self.rdp and any(isinstance(event, EpochEvent) for event in counts):
                found[RDP] = _rdp_epsilon(_total_rdp(counts), delta)
            if any(not isinstance(event, GaussianEvent) for event in counts):
                found[PLD] = self._composed(counts, delta=delta).epsilon(delta)
            else:
                rho = total_shift(counts) ** 2 / 2
                found[ZCDP] = rho + 2 * math.sqrt(-rho * math.log(delta))
        name = min(found, key=lambda known: found[known])
        return Epsilon(found[name], name, self._status(counts), self._unit(counts), found)

    def bound(self, account: Mapping[Event, int], delta: float, tolerance: float | None = None) -> float:
        """ε as ``epsilon`` reports it, but without the RDP account and, with a larger ``tolerance``, on a coarser grid.

        An upper bound all the same: what planning and budgets are checked with. Raises as ``epsilon`` does.
        """
        check_delta(delta)
        counts = self._checked(account)
        smallest = gaussian_epsilon(delta, total_shift(counts))
        if math.isfinite(smallest) and any(not isinstance(event, GaussianEvent) for event in counts):
            smallest = min(smallest, self._composed(counts, delta=delta, tolerance=tolerance).epsilon(delta))
        return smallest

    def delta(self, account: Mapping[Event, int], epsilon: float) -> float:
        """The smallest δ proven for ``account`` at ``epsilon`` ≥ 0, by the same bounds; 1 where an event has no noise.

        Raises InvalidValue for ε < 0 and ValueError as ``epsilon`` does.
        """
        if not epsilon >= 0:
            raise InvalidValue("epsilon", epsilon, "give a number ≥ 0")
        counts = self._checked(account)
        shift = total_shift(counts)
        found = [float(gaussian_delta(min(epsilon, 1e300), shift))]
        if counts and math.isfinite(shift) and math.isfinite(epsilon):
            if self.rdp and any(isinstance(event, EpochEvent) for event in counts):
                found.append(_rdp_delta(_total_rdp(counts), epsilon))
            if any(not isinstance(event, GaussianEvent) for event in counts):
                found.append(self._composed(counts, epsilon=epsilon).delta(epsilon))
        return min(found)

    def log_moments(self, event: Event) -> tuple[Floats, float]:
        """Upper bounds on ln E e^{tL} of one release at the common orders, shape [37], and its chance of infinite loss.

        Both add up over releases, and ``pld.within`` turns sums into a quick proof that some ε holds. The event must
        have noise.
        """
        loss = self._loss(event)
        return loss.sketch.up, loss.infinite

    def _composed(
        self,
        counts: Mapping[Event, int],
        delta: float | None = None,
        epsilon: float | None = None,
        tolerance: float | None = None,
    ) -> pld.ComposedLoss:
        self.compositions += 1
        losses = [self._loss(event) for event in counts]
        return pld.compose(
            losses,
            list(counts.values()),
            self._spectra,
            delta=delta,
            epsilon=epsilon,
            tolerance=tolerance or self.tolerance,
        )

    def _loss(self, event: Event) -> pld.EventLoss:
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
    """√(Σ count/z²): the Gaussian-DP parameter of the account if no sampling hid anything."""
    total = 0.0
    for event, count in account.items():
        if count:
            # Squares of tiny multipliers underflow; their shift is infinite for all purposes.
            total += count / event.noise_multiplier**2 if event.noise_multiplier > 1e-150 else math.inf
    return math.sqrt(total)


def _total_rdp(account: Mapping[Event, int]) -> Floats:
    return np.asarray(sum(count * _event_rdp(event) for event, count in account.items()))


@lru_cache(maxsize=4096)
def _event_rdp(event: Event) -> Floats:
    """Rényi divergences of one release at the orders above, shape [orders]."""
    if not isinstance(event, EpochEvent) or event.rate == 1:
        return np.array(_RDP_ORDERS) / (2 * event.noise_multiplier**2)
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(_RDP_ORDERS, dp_accounting.NeighboringRelation.REPLACE_ONE)
    # It takes the ratio of the two sizes alone, and z = σ / (replace-one sensitivity) as it is.
    accountant.compose(
        dp_accounting.SampledWithoutReplacementDpEvent(
            source_dataset_size=1, sample_size=event.rate, event=dp_accounting.GaussianDpEvent(event.noise_multiplier)
        )
    )
    return np.asarray(accountant.rdp, dtype=np.float64)


def _rdp_epsilon(rdp: Floats, delta: float) -> float:
    """ε from Rényi divergences (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    orders = np.array(_RDP_ORDERS)
    bounds = rdp + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    return max(0.0, float(bounds.min()))


def _rdp_delta(rdp: Floats, epsilon: float) -> float:
    orders = np.array(_RDP_ORDERS)
    bounds = (orders - 1) * (rdp - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return float(math.exp(min(0.0, float(bounds.min()))))
