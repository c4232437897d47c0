"""A method's own code, run on both data sets of a pair: the exact shift of every release, and many noisy releases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..algorithms.fedspd_dp import FedSPDDP
from ..algorithms.method import Cohort, GraphMethod, Method, Network, ServerMethod, State
from ..errors import InvalidValue
from ..privacy.audit import mixture_log_ratio
from ..privacy.events import EpochEvent, Event
from ..privacy.gate import Batches, Bound, Granted, NoiseGate
from ..privacy.profiles import Floats
from .audit_pairs import Pairs

# A graph of one client, without edges.
_ALONE = Network(
    clients=1,
    degrees=np.zeros(1, dtype=np.int64),
    lambda_max=0.0,
    check_stability=lambda *_: 0.0,
    curvature_warning=lambda *_: None,
    laplacian=np.zeros((1, 1)),
    metropolis=np.ones((1, 1)),
)


class WatchedGate(NoiseGate):
    """The gate of a run, which keeps copies of what it released and of what that was before noise.

    ``factor`` scales the noise: 1 is the gate as it is, less is a broken one that an audit must catch. ``placed`` r puts
    record 0 into batch r (from 0) of Q and other records elsewhere, in place of the secret draw.
    """

    def __init__(
        self, granted: Granted, bound: Bound, key: bytes, factor: float = 1.0, placed: int | None = None
    ) -> None:
        super().__init__(granted, bound, key)
        self.noise_std = self.noise_std * factor
        self._placed = placed
        self.before = self.seen = torch.empty(0)

    def release(self, value: Tensor, part: int = 0) -> Tensor:
        self.before = value.clone()
        if self._bound.clip is not None:
            self.before.mul_((self._bound.clip / torch.linalg.vector_norm(value, dim=1, keepdim=True)).clamp_(max=1.0))
        released = super().release(value, part)
        self.seen = released.clone()  # methods go on with what they got, in place
        return released

    def batches(self, kind: Batches, sizes: Sequence[int] | np.ndarray, steps: int, batch: int) -> Tensor:
        if self._placed is None:
            return super().batches(kind, sizes, steps, batch)
        # Record 0 in the first place of that batch, record 1, 2, … in all others.
        records = torch.arange(1, steps * batch + 1)
        records[self._placed * batch] = 0
        return records.expand(len(self._granted.clients), -1)


def settled(method: Method, pairs: Pairs) -> Method:
    """The method on a graph of this one client, where it wants a graph, after its own checks."""
    sizes = pairs.shards.sizes.numpy()
    if isinstance(method, GraphMethod):
        method = method.settle(_ALONE, pairs.problem, sizes[:1])[0]
    method.validate(pairs.problem, sizes[:1], np.ones(1), True)
    return method


def account_of(method: Method, pairs: Pairs, noise_multiplier: float) -> Mapping[Event, int]:
    """What the ledger would hold after all rounds."""
    size = int(pairs.shards.sizes[0])
    events = (method.event(pairs.problem, size, 1.0, t) for t in range(1, method.rounds + 1))
    return Counter(replace(event, noise_multiplier=noise_multiplier) for event in events if event is not None)


def exact_mu(method: Method, pairs: Pairs, noise_multiplier: float) -> Floats:
    """The Gaussian-privacy parameter of every pair over all rounds, for a fixed path of x_0, ``[C]``.

    Where the state is released, both data sets start each round from the same state, that of the first data set without
    noise: μ² = Σ_t ‖Δ release‖²/σ_t² with the shift given the released history. Where it is hidden, it is a function of
    the data alone (noise is added to uploads only), so all releases together are one Gaussian vector and the shift is
    that of the two noiseless trajectories.

    Raises InvalidValue for a method that draws records: its releases are then mixtures.
    """
    if samples_records(method):
        raise InvalidValue("method.batches", getattr(method, "batches", None), 'an exact parameter needs "full"')
    sides = [pairs.cohort(0), pairs.cohort(1)]
    states = [_start(method, pairs, len(cohort)) for cohort in sides]
    total = np.zeros(pairs.count)
    for t in range(1, method.rounds + 1):
        seen = []
        for side, cohort in enumerate(sides):
            gate = _gate(method, cohort, t, 0.0, bytes(32))
            states[side] = _round(method, states[side], pairs, cohort, gate, t)
            seen.append(gate.seen)
        std = noise_multiplier * method.bound(pairs.problem, sides[0].sizes, sides[0].weights, t).sensitivity
        total += torch.linalg.vector_norm(seen[0] - seen[1], dim=1).numpy() ** 2 / std**2
        if method.state_is_released:
            states[1] = states[0]
    return np.sqrt(total)


def batch_shifts(method: Method, pairs: Pairs, noise_multiplier: float, t: int) -> tuple[Floats, Tensor]:
    """How far the first data set's release lies from the second's, in standard deviations, with record 0 in batch r:
    ``[Q]``, and the direction ``[d]`` in which it lies. For pairs whose other records are all alike."""
    assert isinstance(method, FedSPDDP)
    found = np.empty(method.local_steps)
    direction = torch.empty(0)
    for position in range(method.local_steps):
        seen = []
        for side in (0, 1):
            cohort = pairs.cohort(side, 1)
            gate = _gate(method, cohort, t, 0.0, bytes(32), placed=position)
            _round(method, _start(method, pairs, 1), pairs, cohort, gate, t)
            seen.append(gate.seen[0].double())
        gap = seen[0] - seen[1]
        if position == 0:
            direction = gap / torch.linalg.vector_norm(gap)
        std = noise_multiplier * method.bound(pairs.problem, cohort.sizes, cohort.weights, t).sensitivity[0]
        found[position] = float(gap @ direction) / std
    return found, direction


def log_ratios(
    method: Method, pairs: Pairs, side: int, trials: int, noise_multiplier: float, key: bytes, factor: float = 1.0
) -> Floats:
    """ln p(releases)/p'(releases) of many runs of all rounds on one data set of the first pair, float64 ``[trials]``.

    Each run is a row of one cohort, with noise and draws of its own. Full batches and clipped increments: the exact ratio
    of two Gaussians, round for round, given what was released before. Epoch batches: a canary, the ratio of the mixtures
    along the direction in which the record pulls. Exact or not, a test by its size is a valid test.

    Raises InvalidValue for a hidden state, given which nobody could compute the ratio.
    """
    if not method.state_is_released:
        raise InvalidValue("method.state", getattr(method, "state", None), "repeated releases need a released state")
    cohorts = [pairs.cohort(each, trials) for each in (0, 1)]
    state, total, here = _start(method, pairs, trials), np.zeros(trials), cohorts[side]
    for t in range(1, method.rounds + 1):
        std = noise_multiplier * method.bound(pairs.problem, here.sizes, here.weights, t).sensitivity[0]
        gate = _gate(method, here, t, noise_multiplier, key, factor)
        new = _round(method, state, pairs, here, gate, t)
        release = gate.seen.double()
        # What either data set would have released without noise, from the same state and with the same draws.
        means = {side: gate.before.double()}
        if side == 0 or not samples_records(method):
            blank = _gate(method, cohorts[1 - side], t, 0.0, key)
            _round(method, state, pairs, cohorts[1 - side], blank, t)
            means[1 - side] = blank.seen.double()
        if samples_records(method):
            shifts, direction = batch_shifts(method, pairs, noise_multiplier, t)
            event = method.event(pairs.problem, int(here.sizes[0]), 1.0, t)
            assert isinstance(event, EpochEvent)
            along = ((release - means[1]) @ direction).numpy() / std
            total += mixture_log_ratio(along, event.rate, shifts)
        else:
            gaps = [(release - means[each]).square().sum(1).numpy() for each in (0, 1)]
            total += (gaps[1] - gaps[0]) / (2 * std * std)
        state = new
    return total


def samples_records(method: Method) -> bool:
    """Whether a release depends on which records a secret draw took, so that it is a mixture."""
    return method.unit == "record" and getattr(method, "batches", "full") != "full"


def _gate(
    method: Method,
    cohort: Cohort,
    t: int,
    noise_multiplier: float,
    key: bytes,
    factor: float = 1.0,
    placed: int | None = None,
) -> WatchedGate:
    rows = len(cohort)
    granted = Granted(t, cohort.clients, np.full(rows, t - 1), np.full(rows, noise_multiplier))
    bound = method.bound(cohort.problem, cohort.sizes, cohort.weights, t)
    return WatchedGate(granted, bound, key, factor, placed)


def _start(method: Method, pairs: Pairs, rows: int) -> State:
    return {name: row.expand(rows, -1) for name, row in method.init(pairs.start).items()}


def _round(method: Method, state: State, pairs: Pairs, cohort: Cohort, gate: NoiseGate, t: int) -> State:
    """One round from ``state`` with x_0 at the start, or on a graph without neighbours; the gate saw the release."""
    if isinstance(method, ServerMethod):
        return method.local_round(state, pairs.start, cohort, gate, t)
    assert isinstance(method, GraphMethod)
    own = float(method.mixing_matrix(_ALONE)[0, 0])  # 0 of a Laplacian, 1 of weights
    pull = own * torch.cat([state[name] for name in method.shared], dim=1)
    found = method.increment(state, pull, cohort, gate, t)
    return method.advance(state, pull, found.released, cohort.clients, t)
