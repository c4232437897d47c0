"""The batches and the query noise of the compiled stage as arrays, for the stage of arbitrary models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled import FINGERPRINT, entry
from .words import draw_component, normal_pair


def _make(fingerprint: int) -> Any:
    @entry
    def fill(key: NDArray[np.uint64], count: int, out: NDArray[np.int64]) -> None:
        if fingerprint < 0:  # never: names it, so that it is part of the cache's key
            return
        order = np.arange(count).astype(np.int32)
        for t in range(out.shape[0]):
            for place in range(out.shape[1]):
                out[t, place] = draw_component(key, order, place, t)

    @entry
    def fill_noise(
        keys: NDArray[np.uint64], components: NDArray[np.int64], visits: NDArray[np.int64], out: NDArray[np.float64]
    ) -> None:
        if fingerprint < 0:
            return
        for i in range(len(out)):
            out[i, 0], out[i, 1] = normal_pair(keys[i], components[i], visits[i])

    return fill, fill_noise


_fill, _fill_noise = _make(FINGERPRINT)


def batches(key: NDArray[np.uint64], components: int, steps: int, batch: int) -> NDArray[np.int64]:
    """The components that one client asks at each local step (Z4), ``[steps, batch]``, distinct along a row.

    Args:
        key: uint64 ``[2]``, low half first.
        components: H_i.
        steps: τ_i.
        batch: b_i ≤ H_i.
    """
    out = np.empty((steps, batch), np.int64)
    _fill(np.ascontiguousarray(key), components, out)
    return out


def noises(keys: NDArray[np.uint64], components: NDArray[np.int64], visits: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard normal numbers for the noise ζ of queries ``[q, 2]``: of a query and, for two-point, of its second half.

    Args:
        keys: uint64 ``[q, 2]``.
        components: ``[q]``.
        visits: ``[q]``.
    """
    out = np.empty((len(keys), 2), np.float64)
    _fill_noise(np.ascontiguousarray(keys), components, visits, out)
    return out
