"""Step-size schedules, as a number, a shape or a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from ..errors import InvalidValue

_LEAST, _MOST = 1e-9, 1e9


@dataclass(frozen=True)
class Schedule:
    """A positive, non-decreasing sequence over rounds t = 1, 2, …: constant, value·√t, or a table (its last entry stays)."""

    value: float = 1.0
    shape: Literal["constant", "sqrt", "table"] = "constant"
    table: tuple[float, ...] = ()

    def at(self, t: int) -> float:
        """The value in round ``t`` ≥ 1."""
        if self.shape == "table":
            return self.table[min(t, len(self.table)) - 1]
        return self.value * math.sqrt(t) if self.shape == "sqrt" else self.value

    def given(self) -> Any:
        """The plain value from which ``parse`` makes this schedule again."""
        return list(self.table) if self.shape == "table" else {"value": self.value, "shape": self.shape}

    @classmethod
    def parse(cls, field: str, given: Any) -> Schedule:
        """From a number, a list of numbers, or ``{value = …, shape = "constant" | "sqrt"}``.

        Raises InvalidValue where a value is not positive and finite, or a table falls.
        """
        if isinstance(given, Schedule):
            schedule = given
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            schedule = cls(float(given))
        elif isinstance(given, (list, tuple)) and given and all(isinstance(v, (int, float)) for v in given):
            schedule = cls(shape="table", table=tuple(float(v) for v in given))
        elif (
            isinstance(given, dict)
            and isinstance(given.get("value", 1.0), (int, float))
            and set(given) <= {"value", "shape"}
            and given.get("shape") in ("constant", "sqrt", None)
        ):
            schedule = cls(float(given.get("value", 1.0)), given.get("shape", "constant"))
        else:
            raise InvalidValue(field, given, 'give a number, a list of numbers, or {value = 1.0, shape = "sqrt"}')
        values = schedule.table or (schedule.value,)
        if not all(_LEAST <= v <= _MOST for v in values) or any(b < a for a, b in pairwise(values)):
            raise InvalidValue(
                field, given, f"every value must lie between {_LEAST:g} and {_MOST:g}, and a table must not fall"
            )
        return schedule


@dataclass(frozen=True)
class StepSize:
    """A positive, non-increasing sequence over rounds t = 1, 2, …: constant, value/√t, or a table (its last entry stays)."""

    value: float = 1.0
    shape: Literal["constant", "inverse-sqrt", "table"] = "constant"
    table: tuple[float, ...] = ()

    def at(self, t: int) -> float:
        """The value in round ``t`` ≥ 1."""
        if self.shape == "table":
            return self.table[min(t, len(self.table)) - 1]
        return self.value / math.sqrt(t) if self.shape == "inverse-sqrt" else self.value

    def given(self) -> Any:
        """The plain value from which ``parse`` makes this sequence again."""
        return list(self.table) if self.shape == "table" else {"value": self.value, "shape": self.shape}

    @classmethod
    def parse(cls, field: str, given: Any) -> StepSize:
        """From a number, a list of numbers, or ``{value = …, shape = "constant" | "inverse-sqrt"}``.

        Raises InvalidValue where a value is not positive and finite, or a table rises.
        """
        if isinstance(given, StepSize):
            steps = given
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            steps = cls(float(given))
        elif isinstance(given, (list, tuple)) and given and all(isinstance(v, (int, float)) for v in given):
            steps = cls(shape="table", table=tuple(float(v) for v in given))
        elif (
            isinstance(given, dict)
            and isinstance(given.get("value", 1.0), (int, float))
            and set(given) <= {"value", "shape"}
            and given.get("shape") in ("constant", "inverse-sqrt", None)
        ):
            steps = cls(float(given.get("value", 1.0)), given.get("shape", "constant"))
        else:
            raise InvalidValue(
                field, given, 'give a number, a list of numbers, or {value = 1.0, shape = "inverse-sqrt"}'
            )
        values = steps.table or (steps.value,)
        if not all(_LEAST <= v <= _MOST for v in values) or any(b > a for a, b in pairwise(values)):
            raise InvalidValue(
                field, given, f"every value must lie between {_LEAST:g} and {_MOST:g}, and a table must not rise"
            )
        return steps
