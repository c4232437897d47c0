"""What one release of one client costs, as an immutable description that never changes its meaning.

An event says nothing of the scale of the data: the noise multiplier is σ divided by the largest sensitivity of the
release.
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
    noise_multiplier: float = 0.0
    unit: Unit = "record"
    status: Status = "guaranteed"
    relation: Literal["replace-one"] = "replace-one"

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier = {self.noise_multiplier!r} of an event must be a finite number ≥ 0")

    def to_json(self) -> str:
        """Canonical JSON: the same event always gives the same text."""
        return json.dumps({"kind": self.kind, **asdict(self)}, sort_keys=True, separators=(",", ":"))

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


def _check_batches(rate: float, steps: int, contraction: float) -> None:
    if not 0 < rate <= 1:
        raise ValueError(f"rate = {rate!r} of an event must lie in (0, 1]")
    if steps < 1:
        raise ValueError(f"steps = {steps!r} of an event must be a whole number ≥ 1")
    if not 0 <= contraction < math.inf:
        raise ValueError(f"contraction = {contraction!r} of an event must be a finite number ≥ 0")


_KINDS: dict[str, type[Event]] = {c.kind: c for c in (GaussianEvent, EpochEvent, IndependentEvent, IidEvent)}


def event_from_json(text: str) -> Event:
    """The event that ``to_json`` wrote. Raises ValueError for a kind or a field that this version does not know."""
    record: dict[str, Any] = json.loads(text)
    kind = record.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of event {kind!r}")
    known = {f.name for f in fields(_KINDS[kind])}
    if unknown := set(record) - known:
        raise ValueError(f"unknown fields {sorted(unknown)} in an event of kind {kind!r}")
    return _KINDS[kind](**record)
