"""What a run does with a client whose own code raises: tell it, leave the client out, or let it try again. Light: no torch."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from .messages import ClientError, RoundResult

T = TypeVar("T")


def apart(clients: np.ndarray, work: Callable[[np.ndarray], T]) -> tuple[list[T], list[ClientError]]:
    """``work`` on all of ``clients``, given as places in the array; where it raises, on either half, down to single clients.

    Returns the results of the parts that went well, and the errors of the clients that did not. Nothing leaves the host
    before that, and draws follow clients and grants: a part that is done again is the same release, made once.
    """
    results: list[T] = []
    errors: list[ClientError] = []
    waiting = [np.arange(len(clients))]
    while waiting:
        part = waiting.pop()
        try:
            results.append(work(part))
        except Exception as error:
            if len(part) == 1:
                told = f"{type(error).__name__}: {error}"
                errors.append(ClientError(int(clients[part[0]]), told, traceback.format_exc()))
            else:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
    return results, errors


def joined(parts: Sequence[RoundResult], fresh: bool) -> RoundResult:
    """One answer of a host from those to parts of its work, in order. ``fresh``: sums of uploads are of the part alone."""
    one = parts[0]
    for other in parts[1:]:
        total = one.total + other.total if fresh else other.total
        released, clipped = one.released + other.released, one.clipped + other.clipped
        errors, seconds = (*one.errors, *other.errors), one.seconds + other.seconds
        uploads = one.uploads + other.uploads
        one = replace(
            one, total=total, released=released, clipped=clipped, seconds=seconds, uploads=uploads, errors=errors
        )
    return one


def events_of(t: int, errors: Sequence[ClientError], first: bool) -> list[dict[str, Any]]:
    """One event an error; the first one of a run shows its traceback."""
    told = []
    for error in errors:
        told.append({"kind": "error", "round": t, "client": error.client, "error": error.error})
        if first:
            told[-1]["trace"] = error.trace
            first = False
    return told
