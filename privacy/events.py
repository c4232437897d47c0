"""What one release of one client costs, as an immutable description that never changes its meaning.

An event says nothing of the scale of the data: the noise multiplier is σ divided by the largest sensitivity of the
release. Kinds that are known by a loss instead of by their noise carry it in the same field (1/ε, or 1/√(2ρ)), so that
0 is no noise in every kind, more is always more private, and one calibration serves them all.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

Unit = Literal["record", "client"]
Status = Literal["guaranteed", "claimed"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One release. ``noise_multiplier`` z = σ / (largest sensitivity); 0 means no noise, hence no privacy.

    ``unit`` is what two neighbouring data sets differ in (one record, or a client's whole data set), always by
    replacement.
    ``status`` is ``"guaranteed"`` where the bound is proven for the method, else ``"claimed"``.

    Raises ValueError for a field outside its range: z < 0 or not finite, and what the kinds below require.
    """

    kind: ClassVar[str] = "event"
    version: ClassVar[int] = 1
    """Of the kind's fields and their meaning. It is written where it is not 1, and a record without one is version 1."""
    noise_multiplier: float = 0.0
    unit: Unit = "record"
    status: Status = "guaranteed"
    relation: Literal["replace-one"] = "replace-one"

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier = {self.noise_multiplier!r} of an event must be a finite number ≥ 0")

    def to_json(self) -> str:
        """Canonical JSON: the same event always gives the same text."""
        version = {} if self.version == 1 else {"version": self.version}
        return json.dumps({"kind": self.kind, **version, **asdict(self)}, sort_keys=True, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """24 hexadecimal digits that name the event: equal events have equal digests, in any process."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(Event):
    """Gaussian noise on a value to which every neighbouring pair contributes at most one sensitivity; no sampling."""

    kind: ClassVar[str] = "gaussian"


@dataclass(frozen=True, kw_only=True)
class EpochEvent(Event):
    """Q disjoint batches of b of m records, without replacement, in random order: SPEC (D2)–(D4).

    ``rate`` q = Q·b/m; ``steps`` Q; ``contraction`` κ of one local step. The shift with the record in batch r is
    s_r ∝ Σ_{k=0..Q−r} κ^k, and the noise multiplier refers to s_1, the largest of them whatever κ ≥ 0 is.
    """

    kind: ClassVar[str] = "epoch"
    rate: float
    steps: int
    contraction: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batches(self.rate, self.steps, self.contraction)


@dataclass(frozen=True, kw_only=True)
class IndependentEvent(Event):
    """Q independent batches of b distinct records of m: SPEC (D1). ``rate`` p = b/m; ``steps`` Q; ``contraction`` κ.

    The noise multiplier refers to the shift with the record in all Q batches.
    """

    kind: ClassVar[str] = "independent"
    rate: float
    steps: int
    contraction: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batches(self.rate, self.steps, self.contraction)


@dataclass(frozen=True, kw_only=True)
class IidEvent(Event):
    """Q batches of b records drawn one by one with replacement from m: a record may fill a batch.

    ``rate`` is the chance 1−(1−1/m)^{bQ} that the record is drawn at all; the noise multiplier refers to the shift with
    the record filling every batch (c = 2G/(γ+ρ), not divided by b).
    """

    kind: ClassVar[str] = "iid"
    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batches(self.rate, 1, 1.0)


@dataclass(frozen=True, kw_only=True)
class SubsampledEvent(Event):
    """``steps`` releases in a row, each a Gaussian on its own sample of the records: the Q noised steps of DP-SGD.

    ``sampling`` is ``"without-replacement"`` (b distinct of m records, ``rate`` b/m) or ``"poisson"`` (every record by
    itself with chance ``rate``, and sums divided by a constant). The noise multiplier is that of one step: σ over the
    largest change that replacing one record makes where it is drawn (2C/b for records clipped at C).

    One event, hence one grant, covers all the steps of a round. An ``IndependentEvent`` is the other thing: one noise,
    added to what came of Q batches.
    """

    kind: ClassVar[str] = "subsampled"
    rate: float
    steps: int = 1
    sampling: Literal["without-replacement", "poisson"] = "without-replacement"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_batches(self.rate, self.steps, 1.0)
        if self.sampling not in ("without-replacement", "poisson"):
            raise ValueError(f"sampling = {self.sampling!r} of an event must be 'without-replacement' or 'poisson'")


@dataclass(frozen=True, kw_only=True)
class PureEvent(Event):
    """A release that is (ε, 0)-differentially private, with ``noise_multiplier`` 1/ε: objective or output perturbation
    with noise of density ∝ exp(−ζ‖·‖), or Laplace noise on a vector with bounded ℓ1 sensitivity."""

    kind: ClassVar[str] = "pure"

    @classmethod
    def of(cls, epsilon: float, **fields: Any) -> PureEvent:
        """The event of this ε > 0; ``unit`` and ``status`` as usual. Raises ValueError."""
        return cls(noise_multiplier=_inverse(epsilon, "epsilon"), **fields)

    @property
    def epsilon(self) -> float:
        return _inverted(self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(Event):
    """Laplace noise on one number, or on a vector of which neighbours differ in one coordinate: ``noise_multiplier`` is
    the scale b over the sensitivity Δ, and the release is (Δ/b, 0)-DP. Other vectors are a ``PureEvent``."""

    kind: ClassVar[str] = "laplace"

    @classmethod
    def of(cls, scale: float, sensitivity: float, **fields: Any) -> LaplaceEvent:
        """The event of noise of this scale on a value of this sensitivity. Raises ValueError."""
        if not (0 < scale < math.inf and 0 < sensitivity < math.inf):
            raise ValueError(f"scale = {scale!r} and sensitivity = {sensitivity!r} must be finite numbers > 0")
        return cls(noise_multiplier=_inverse(sensitivity / scale, "sensitivity / scale"), **fields)

    @property
    def epsilon(self) -> float:
        return _inverted(self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class ZcdpEvent(Event):
    """A release of which ρ-zCDP alone is known (Bun & Steinke 2016), with ``noise_multiplier`` 1/√(2ρ).

    A Gaussian release is a ``GaussianEvent``, whose account is smaller.
    """

    kind: ClassVar[str] = "zcdp"

    @classmethod
    def of(cls, rho: float, **fields: Any) -> ZcdpEvent:
        """The event of this ρ > 0. Raises ValueError."""
        if not 0 < rho < math.inf:
            raise ValueError(f"rho = {rho!r} of an event must be a finite number > 0")
        z = 1 / math.sqrt(2 * rho)
        while 1 / (2 * z * z) < rho:
            z = math.nextafter(z, 0.0)
        return cls(noise_multiplier=z, **fields)

    @property
    def rho(self) -> float:
        return _inverted(self.noise_multiplier) ** 2 / 2 if self.noise_multiplier > 1e-150 else math.inf


@dataclass(frozen=True, kw_only=True)
class ApproximateEvent(Event):
    """A release of which (ε, δ)-DP alone is known: ``noise_multiplier`` is 1/ε, ``delta`` the δ."""

    kind: ClassVar[str] = "approximate"
    delta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta = {self.delta!r} of an event must lie in [0, 1)")

    @classmethod
    def of(cls, epsilon: float, delta: float, **fields: Any) -> ApproximateEvent:
        """The event of this ε > 0 and δ in [0, 1). Raises ValueError."""
        return cls(noise_multiplier=_inverse(epsilon, "epsilon"), delta=delta, **fields)

    @property
    def epsilon(self) -> float:
        return _inverted(self.noise_multiplier)


def _inverse(loss: float, name: str) -> float:
    """The noise multiplier of a loss, rounded so that its inverse is never below the loss."""
    if not 1e-150 < loss < math.inf:
        raise ValueError(f"{name} = {loss!r} of an event must be a finite number > 0")
    z = 1 / loss
    while 1 / z < loss:
        z = math.nextafter(z, 0.0)
    return z


def _inverted(noise_multiplier: float) -> float:
    return 1 / noise_multiplier if noise_multiplier > 1e-300 else math.inf


def _check_batches(rate: float, steps: int, contraction: float) -> None:
    if not 0 < rate <= 1:
        raise ValueError(f"rate = {rate!r} of an event must lie in (0, 1]")
    if steps < 1:
        raise ValueError(f"steps = {steps!r} of an event must be a whole number ≥ 1")
    if not 0 <= contraction < math.inf:
        raise ValueError(f"contraction = {contraction!r} of an event must be a finite number ≥ 0")


_KINDS: dict[str, type[Event]] = {
    known.kind: known
    for known in (
        GaussianEvent,
        EpochEvent,
        IndependentEvent,
        IidEvent,
        SubsampledEvent,
        PureEvent,
        LaplaceEvent,
        ZcdpEvent,
        ApproximateEvent,
    )
}


def event_from_json(text: str) -> Event:
    """The event that ``to_json`` wrote. Raises ValueError for a kind, a version or a field that is not known here."""
    record: dict[str, Any] = json.loads(text)
    kind = record.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of event {kind!r}")
    if (version := record.pop("version", 1)) != _KINDS[kind].version:
        raise ValueError(f"version {version!r} of an event of kind {kind!r}; this program reads {_KINDS[kind].version}")
    known = {f.name for f in fields(_KINDS[kind])}
    if unknown := set(record) - known:
        raise ValueError(f"unknown fields {sorted(unknown)} in an event of kind {kind!r}")
    return _KINDS[kind](**record)
