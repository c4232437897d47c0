"""Errors that a person can cause or cure. The command line prints them as one sentence and exits with 2."""

from __future__ import annotations

from typing import Any


class DualfedError(Exception):
    """Base of every error of this package that is not a defect of the package itself."""


class InvalidValue(DualfedError, ValueError):
    """A value that a person gave is wrong.

    Args:
        field: the dotted name under which the value was given, such as ``"privacy.delta"``.
        value: the value as given.
        cure: what to give instead, as the end of a sentence.
    """

    def __init__(self, field: str, value: Any, cure: str) -> None:
        self.field, self.value, self.cure = field, value, cure
        # None is what a person left out: no file and no option can say it.
        super().__init__(f"{field} is not given: {cure}" if value is None else f"{field} = {value!r}: {cure}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.cure)


class RunBroken(DualfedError):
    """A run that could not go on for a reason outside it. What was done so far stands and can be resumed."""
