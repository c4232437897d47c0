"""The ``[time]`` and ``[policy]`` tables: what takes how long, what fails, and what that means for a round."""

from __future__ import annotations

import math

from pydantic import Field, model_validator

from ..actors.delays import Clock, Compute
from ..actors.policies import Kind, OnError
from ..errors import InvalidValue
from ..section import Section


class TimeConfig(Section):
    """Delays, links, dropouts and churn, all keyed by the seed. With the defaults nothing takes time.

    ``compute`` is the distribution of the seconds of a client's work in a round, with mean ``mean_s`` for a client of speed 1.
    Times are in seconds, sizes in bytes.
    """

    clock: Clock = "virtual"
    compute: Compute = "none"
    mean_s: float = Field(1.0, gt=0, allow_inf_nan=False)
    sigma: float = Field(1.0, ge=0, le=10)
    shape: float = Field(2.0, gt=1, allow_inf_nan=False)
    slow_fraction: float = Field(0.0, ge=0, le=1)
    slow_factor: float = Field(10.0, gt=0, allow_inf_nan=False)
    speed_spread: float = Field(0.0, ge=0, le=10)
    speeds: list[float] | None = None
    trace: str | None = None
    latency_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    bandwidth: float | None = Field(None, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    online_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    offline_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    churn_trace: str | None = None
    message_drop: float = Field(0.0, ge=0, lt=1)
    target_accuracy: float | None = Field(None, gt=0, le=1)

    @model_validator(mode="after")
    def _speeds(self) -> TimeConfig:
        for speed in self.speeds or []:
            if not (0 < speed < math.inf):
                raise InvalidValue("time.speeds", speed, "give finite numbers > 0, one for each client")
        return self

    @property
    def passes(self) -> bool:
        """Whether anything takes time or fails."""
        return self != TimeConfig(clock=self.clock, target_accuracy=self.target_accuracy)


class PolicyConfig(Section):
    """How a round meets stragglers, and what a client's error means.

    ``kind``: for methods with a server ``wait``, ``over-select`` (K + ``extra`` begin, the first K count), ``deadline``,
    ``async`` (``buffer`` arrivals make an update); over a graph ``barrier`` (the same as ``wait``), ``neighbour``, ``lossy``.
    ``cap`` is the most participations of a client, on which noise is calibrated where arrivals decide how many there are.
    """

    kind: Kind = "wait"
    extra: int = Field(0, ge=0)
    deadline_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    buffer: int = Field(1, ge=1)
    staleness: int = Field(10, ge=0)
    cap: int | None = Field(None, ge=1)
    on_error: OnError = "stop"
    retries: int = Field(2, ge=0, le=100)
