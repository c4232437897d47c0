"""Rényi divergences of samples without replacement, by dp-accounting (Wang, Balle & Kasiviswanathan 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from . import renyi
from .events import EpochEvent, Event, SubsampledEvent
from .profiles import Floats, gaussian_shift

_ORDERS: Floats = np.array([1.25, 1.5, 1.75, *range(2, 17), 18, 20, 24, 28, 32, 40, 48, 64, 512], dtype=np.float64)


def applies(account: Mapping[Event, int]) -> bool:
    """Whether the account holds releases from samples of a fixed size."""
    return any(_samples(event) for event in account)


def epsilon(account: Mapping[Event, int], delta: float) -> float:
    """ε from Rényi divergences at a few orders (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    bounds = _total(account) + np.log1p(-1 / _ORDERS) - np.log(delta * _ORDERS) / (_ORDERS - 1)
    return max(0.0, float(bounds.min()))


def delta(account: Mapping[Event, int], epsilon: float) -> float:
    """δ by the same formula."""
    bounds = (_ORDERS - 1) * (_total(account) - epsilon + np.log1p(-1 / _ORDERS)) - np.log(_ORDERS)
    return float(np.exp(min(0.0, float(bounds.min()))))


def _samples(event: Event) -> bool:
    if isinstance(event, SubsampledEvent):
        return event.sampling == "without-replacement"
    return isinstance(event, EpochEvent)


def _total(account: Mapping[Event, int]) -> Floats:
    return np.asarray(sum(count * _divergences(event) for event, count in account.items()))


@lru_cache(maxsize=4096)
def _divergences(event: Event) -> Floats:
    """Of one release at the orders above, shape [orders]."""
    if renyi.closed_form(event):
        return renyi.log_moment(event, _ORDERS - 1) / (_ORDERS - 1)
    if not _samples(event) or event.rate == 1:  # type: ignore[attr-defined]
        return _ORDERS * gaussian_shift(event) ** 2 / 2
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    assert isinstance(event, (EpochEvent, SubsampledEvent))
    accountant = RdpAccountant(_ORDERS.tolist(), dp_accounting.NeighboringRelation.REPLACE_ONE)
    # It takes the ratio of the two sizes alone, and z = σ / (replace-one sensitivity) as it is.
    accountant.compose(
        dp_accounting.SampledWithoutReplacementDpEvent(
            source_dataset_size=1, sample_size=event.rate, event=dp_accounting.GaussianDpEvent(event.noise_multiplier)
        )
    )
    steps = event.steps if isinstance(event, SubsampledEvent) else 1
    return steps * np.asarray(accountant.rdp, dtype=np.float64)
