"""The one way out of a client: everything that depends on its data leaves through ``Gate.release``, against a grant.

SPEC section 5, rules 1 and 3. The gate of a round knows the clients that were granted a release, how much noise each grant
demands, and the key of their noise; a method sees nothing of these. A grant is used once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import DualfedError
from ..keys import stream_key, words
from .draws import as_uniform, distinct_records, normal_single

Batches = Literal["epoch", "independent", "iid"]


class GrantMissing(DualfedError):
    """A method tried to release what the ledger did not grant, or to use a grant twice."""


class NotFinite(DualfedError):
    """A client's value is not a number or infinite; it was not released."""

    def __init__(self, client: int, round: int) -> None:
        self.client, self.round = client, round
        super().__init__(
            f"client {client}, round {round}: the value to release is not finite; "
            "take smaller steps, or check the client's data"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.client, self.round)


@dataclass(frozen=True)
class Bound:
    """How far one neighbouring data set can move the value of a release.

    Attributes:
        sensitivity: ``[C]``, per client, in the Euclidean norm of the value, before noise.
        clip: where given, the gate scales each client's value down to this norm first; the sensitivity is then 2·clip.
        parts: how many values a method releases under one grant (the event covers them all).
        noise: ``gaussian``, with σ = z·sensitivity; or ``radial``, of density ∝ exp(−‖b‖/s), which makes the release
            (1/z, 0)-DP: s = sensitivity/(1/z − curvature).
        curvature: ``[C]``, ``radial`` only: the part of 1/z that the noise does not pay for but the shape of an objective
            whose minimiser is released (``release_minimiser``); 0 where left out.
    """

    sensitivity: np.ndarray
    clip: float | None = None
    parts: int = 1
    noise: Literal["gaussian", "radial"] = "gaussian"
    curvature: np.ndarray | None = None

    def radial_scale(self, noise_multipliers: np.ndarray) -> np.ndarray:
        """``[C]`` s of radial noise at these z, inf where the curvature alone costs 1/z or more; 0 for z = 0."""
        wanted = noise_multipliers > 0
        left = np.divide(1.0, noise_multipliers, out=np.ones(len(wanted)), where=wanted)
        left = left - (0.0 if self.curvature is None else self.curvature)
        scale = np.divide(self.sensitivity, left, out=np.full(len(wanted), np.inf), where=left > 0)
        return np.where(wanted, scale, 0.0)


@dataclass(frozen=True)
class Granted:
    """The grants of one host and round, as the gate needs them: all arrays ``[C]``, one entry a client."""

    round: int
    clients: np.ndarray
    numbers: np.ndarray
    noise_multipliers: np.ndarray


class Gate(Protocol):
    """What a method may do with data-dependent values."""

    def release(self, value: Tensor, part: int = 0) -> Tensor:
        """Clip or trust the declared bound, add noise, in place. ``value``: ``[C, d]``."""
        ...

    def release_rows(self, value: Tensor, counts: Sequence[int] | np.ndarray, part: int = 0) -> Tensor:
        """The same for a different number of rows of each client, one after the other: ``value`` ``[M, w]``,
        ``counts`` ``[C]`` with sum M. The sensitivity is that of all of a client's rows together."""

    def release_minimiser(self, solve: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """``solve(b)`` ``[C, d]``: the minimisers of objectives with ⟨b, x⟩ added, b ``[C, d]`` float64 drawn here and
        shown to nobody else. ``like`` has the shape and type of the answer."""
        ...

    def batches(self, kind: Batches, sizes: Sequence[int] | np.ndarray, steps: int, batch: int) -> Tensor:
        """Secret record draws, ``[C, steps·batch]`` int64 positions in each client's shard, batch after batch."""
        ...

    def stream_keys(self, purpose: str) -> list[int]:
        """A 128-bit key for each client, for draws of the method's own; secret, and new with every grant."""
        ...

    @property
    def noise_std(self) -> np.ndarray:
        """``[C]`` standard deviation per coordinate of the Gaussian noise that ``release`` adds: public, known before the
        round; 0 where it adds noise of another kind."""
        ...


class NoiseGate:
    """The gate that a host makes for one round from its grants.

    Args:
        granted: the grants; a client without one has no row here and can release nothing.
        bound: what the method declares for this round, in the same order of clients.
        key: the noise key (``dualfed.keys.noise_key``), which stays in the host.
        injected: ``[C, d]`` values to add in place of noise; for tests only, and only where no privacy is claimed.
    """

    def __init__(self, granted: Granted, bound: Bound, key: bytes, injected: Tensor | None = None) -> None:
        if len(bound.sensitivity) != len(granted.clients):
            raise GrantMissing(f"{len(granted.clients)} grants for {len(bound.sensitivity)} clients")
        if injected is not None and np.any(granted.noise_multipliers > 0):
            raise GrantMissing("injected noise is for runs with privacy.mode = 'none'")
        self._granted, self._bound, self._key, self._injected = granted, bound, key, injected
        self._released = [False] * bound.parts
        # No noise is none, also for a value without a bound, where 0·∞ would not be a number.
        wanted = granted.noise_multipliers > 0
        self._radial = bound.noise == "radial"
        self.noise_std = np.multiply(
            granted.noise_multipliers, bound.sensitivity, out=np.zeros(len(wanted)), where=wanted & (not self._radial)
        )
        self._scale = bound.radial_scale(granted.noise_multipliers) if self._radial else np.zeros(len(wanted))
        if np.isinf(self._scale).any():
            raise GrantMissing(f"round {granted.round}: the noise granted is less than the objective's curvature costs")
        self.clipped = np.zeros(len(granted.clients), dtype=bool)

    def release(self, value: Tensor, part: int = 0) -> Tensor:
        """Clip (where the bound says so), perturb and return ``value`` ``[C, d]``, changed in place.

        Raises:
            GrantMissing: this part was released before, or the rows do not match the grants.
            NotFinite: a row holds NaN or infinity. Nothing is released then.
        """
        granted = self._granted
        self._check(value, part, len(granted.clients), lambda row: row)
        self._released[part] = True
        if self._bound.clip is not None:
            norms = torch.linalg.vector_norm(value, dim=1, keepdim=True)
            # A zero row divides by zero: the quotient is infinite there and the clamp makes it 1.
            value.mul_((self._bound.clip / norms).clamp_(max=1.0))
            self.clipped |= (norms[:, 0] > self._bound.clip).cpu().numpy()
        if self._injected is not None:
            return value.add_(self._injected)
        if self._scale.any():
            return value.add_(self._radial_noise(part, value.shape[1]).to(value))
        if self.noise_std.any():
            noise = self._noise(part, value.shape[1], value.dtype)
            std = torch.as_tensor(self.noise_std, dtype=value.dtype, device=value.device)
            value.addcmul_(noise.to(value.device), std[:, None])
        return value

    def release_rows(self, value: Tensor, counts: Sequence[int] | np.ndarray, part: int = 0) -> Tensor:
        """Perturb and return ``value`` ``[M, w]``, of which client i holds ``counts[i]`` rows, changed in place.

        Raises:
            GrantMissing: as ``release``, or the bound has a clip, which is one of whole clients.
            NotFinite: a row holds NaN or infinity. Nothing is released then.
        """
        if self._bound.clip is not None or self._injected is not None or self._radial:
            raise GrantMissing(
                f"round {self._granted.round}: rows of records take Gaussian noise alone, without a clip"
            )
        ends = np.cumsum(counts)
        self._check(value, part, int(ends[-1]), lambda row: int(np.searchsorted(ends, row, side="right")))
        self._released[part] = True
        if self.noise_std.any():
            width, purpose = value.shape[1], "noise" if part == 0 else f"noise/{part}"
            streams = zip(self._streams(purpose), ends - counts, ends, self.noise_std)
            for stream, first, last, std in streams:  # once in a run, and no two clients have equally many rows
                noise = _normal([stream], int(last - first) * width, value.dtype).view(-1, width)
                value[first:last].add_(noise.to(value.device), alpha=float(std))
        return value

    def _check(self, value: Tensor, part: int, rows: int, owner: Callable[[int], int]) -> None:
        """Refuse a release that was not granted, or that is not finite; ``owner`` gives a row's client by position."""
        granted = self._granted
        if not 0 <= part < len(self._released) or self._released[part]:
            raise GrantMissing(f"round {granted.round}: part {part} of the release was not granted, or is used already")
        if value.shape[0] != rows:
            raise GrantMissing(f"round {granted.round}: {value.shape[0]} rows for {rows} granted")
        self._check_finite(value, owner)

    def _check_finite(self, value: Tensor, owner: Callable[[int], int] = lambda row: row) -> None:
        finite = torch.isfinite(value.sum(dim=1))
        if not bool(finite.all()):
            row = owner(int(torch.nonzero(~finite)[0, 0]))
            raise NotFinite(int(self._granted.clients[row]), self._granted.round)

    def release_minimiser(self, solve: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """Objective perturbation (Chaudhuri et al. 2011): draw b of radial noise, and let ``solve(b)`` out.

        The grant is used up before ``solve`` sees b: an error inside releases nothing and leaves the charge standing.

        Raises:
            GrantMissing: the method's bound is not for this, or the grant is used already.
            NotFinite: a row of the answer holds NaN or infinity.
        """
        if not self._radial or self._bound.clip is not None or len(self._released) != 1:
            raise GrantMissing(f"round {self._granted.round}: this bound does not cover a perturbed objective")
        self._check(like, 0, len(self._granted.clients), lambda row: row)
        self._released[0] = True
        b = torch.zeros(like.shape, dtype=torch.float64)
        if self._injected is not None:
            b += self._injected
        elif self._scale.any():
            b = self._radial_noise(0, like.shape[1])
        found = solve(b)
        self._check_finite(found)
        return found.to(like)

    def batches(self, kind: Batches, sizes: Sequence[int] | np.ndarray, steps: int, batch: int) -> Tensor:
        """Record draws for every granted client: SPEC (D1)–(D2).

        ``epoch``: steps·batch distinct records, so that the batches are disjoint. ``independent``: each batch is ``batch``
        distinct records. ``iid``: every record is drawn anew, with replacement.
        """
        streams, limits = self._streams("records"), np.asarray(sizes, dtype=np.int64)
        if kind == "epoch":
            return torch.from_numpy(distinct_records(streams, limits, steps * batch))
        if kind == "iid":
            uniform = as_uniform(words(streams, steps * batch))
            return torch.from_numpy((uniform * limits[:, None]).astype(np.int64))
        every = [stream_key(self._key, f"batch/{step}/{stream:x}") for stream in streams for step in range(steps)]
        drawn = distinct_records(every, np.repeat(limits, steps), batch)
        return torch.from_numpy(drawn.reshape(len(streams), steps * batch))

    def stream_keys(self, purpose: str) -> list[int]:
        """One key a granted client, from the noise key, the client, the round and the grant's number."""
        return self._streams(f"method/{purpose}")  # never the gate's own noise or records, whatever a method asks for

    def _streams(self, purpose: str) -> list[int]:
        granted = self._granted
        return [
            stream_key(self._key, purpose, client, granted.round, number)
            for client, number in zip(granted.clients.tolist(), granted.numbers.tolist())
        ]

    def _radial_noise(self, part: int, d: int) -> Tensor:
        """``[C, d]`` float64 of density ∝ exp(−‖b‖/s): a uniform direction, and a norm that is Gamma(d, s)."""
        noise = np.empty((len(self._scale), d))
        for row, stream in enumerate(self._streams("noise" if part == 0 else f"noise/{part}")):
            drawn = np.random.Generator(np.random.Philox(key=stream))
            drawn.standard_normal(out=noise[row])
            noise[row] *= self._scale[row] * drawn.standard_gamma(d) / np.linalg.norm(noise[row])
        return torch.from_numpy(noise)

    def _noise(self, part: int, d: int, dtype: torch.dtype) -> Tensor:
        return _normal(self._streams("noise" if part == 0 else f"noise/{part}"), d, dtype)


def _normal(streams: list[int], d: int, dtype: torch.dtype) -> Tensor:
    """``d`` standard normal numbers of each stream, ``[len(streams), d]``."""
    if dtype == torch.float32:
        return normal_single(streams, d)
    noise = np.empty((len(streams), d))
    for row, stream in enumerate(streams):
        np.random.Generator(np.random.Philox(key=stream)).standard_normal(out=noise[row])
    return torch.from_numpy(noise)
