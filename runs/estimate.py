"""What a run will take, before it starts: actors, memory, time, messages and ε."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..actors.hosts import make_host
from ..actors.layout import ACTOR_MEMORY
from ..actors.messages import Parcel, RoundTask, StepTask
from ..actors.settings import RunSettings
from ..algorithms.method import GraphMethod
from ..privacy.accountants import Accountant
from .config import RunConfig
from .prepare import Given, Prepared, prepare, shared_length


@dataclass(frozen=True)
class Estimate:
    """What a layout takes.

    Attributes:
        actors: hosts; processes besides them are the coordinator, the ledger and Ray's own.
        memory_bytes: of all processes together, data in the object store counted once more.
        state_bytes: of it, the states of the clients that are planned to take part.
        round_s: seconds of the first host's work in one round, measured here on one core; hosts work in parallel.
        messages, message_bytes: vectors a round on the simulated network, and the bytes of each.
        epsilon: the largest ε of a client after all its planned participations.
    """

    engine: str
    clients: int
    actors: int
    cpus: int
    rounds: int
    memory_bytes: int
    state_bytes: int
    round_s: float
    total_s: float
    messages: int
    message_bytes: int
    epsilon: float
    delta: float
    status: str
    unit: str
    warnings: list[str]


def estimate(config: RunConfig, given: Given | None = None) -> Estimate:
    """Lay out a run and measure one round of its first host; nothing is released, charged or kept.

    Raises:
        DualfedError: what ``simulate`` would refuse, a layout that does not fit included.
    """
    with tempfile.TemporaryDirectory(prefix=f"dualfed-{os.getpid()}-dry-") as folder:
        prepared = prepare(config, Path(folder), given or Given())
        settings, plan = prepared.job.settings, prepared.job.plan
        cpus = config.actors.cpus or os.cpu_count() or 1
        taking_part = int((plan.planned.sum(axis=1) > 0).sum())
        rows = prepared.method.init(torch.zeros(prepared.problem.dim))
        state = 2 * taking_part * sum(row.numel() for row in rows.values()) * settings.item_bytes
        data = sum(shard.features.nbytes for shard in prepared.job.shards) + prepared.job.test.features.nbytes
        ray = config.engine == "ray"
        seconds = _one_round(prepared)
        waves = max(1.0, len(settings.hosts) / cpus) if ray else float(len(settings.hosts))
        per_round = float(np.mean([len(chosen) for chosen in plan.participants]))
        return Estimate(
            engine=config.engine,
            clients=settings.clients,
            actors=len(settings.hosts) if ray else 0,
            cpus=cpus,
            rounds=settings.rounds,
            memory_bytes=(len(settings.hosts) + 3) * ACTOR_MEMORY + 2 * data + state
            if ray
            else ACTOR_MEMORY + 2 * data + state,
            state_bytes=state,
            round_s=seconds,
            total_s=seconds * waves * settings.rounds,
            messages=settings.messages * (settings.mixing_rounds + 1) if settings.messages else round(2 * per_round),
            message_bytes=_message_bytes(settings),
            epsilon=_planned_epsilon(prepared),
            delta=plan.delta,
            status=prepared.method.status,
            unit=prepared.method.unit,
            warnings=prepared.warnings,
        )


def _message_bytes(settings: RunSettings) -> int:
    """Of one message over an edge; of a server's clients, the mean of what goes down and up."""
    if settings.message_length:
        return settings.message_length * settings.item_bytes
    down = settings.dim if settings.numbers_down is None else settings.numbers_down
    up = settings.dim if settings.numbers_up is None else settings.numbers_up
    return (down + up) * settings.item_bytes // 2


def _planned_epsilon(prepared: Prepared) -> float:
    """The largest ε of a client after all its planned participations; ``inf`` where one of them has no noise."""
    plan = prepared.job.plan
    if not (plan.noise_multipliers[plan.planned.sum(axis=1) > 0] > 0).all():
        return float("inf")
    distinct = np.unique(plan.planned, axis=0)
    accountant = Accountant(rdp=False)
    accounts = ({plan.events[e]: int(row[e]) for e in np.flatnonzero(row)} for row in distinct)
    return max((accountant.bound(account, plan.delta) for account in accounts if account), default=0.0)


def _one_round(prepared: Prepared) -> float:
    """Seconds of the first host's share of an average round, the second of two."""
    job = prepared.job
    spec, plan = job.specs[0], job.plan
    host = make_host(spec, job.shards[0], job.test)
    share = max(1, round(np.mean([np.isin(chosen, spec.clients).sum() for chosen in plan.participants])))
    clients = spec.clients[:share]
    events = plan.events_of(1, clients)
    if plan.opening is not None:
        released = plan.opening[np.isin(plan.opening, clients)]
        opening = RoundTask(0, np.empty(0), released, np.zeros(len(released), np.int64), plan.events_of(0, released))
        host.open(opening)  # type: ignore[attr-defined]
        clients, events = released, plan.events_of(1, released)
    took = 0.0
    for attempt in (1, 2):
        began = time.perf_counter()
        numbers = np.zeros(len(clients), dtype=np.int64)
        if isinstance(prepared.method, GraphMethod):
            near = spec.neighbourhood
            assert near is not None
            length = shared_length(prepared.method, prepared.problem)
            ghosts = {h: Parcel(np.zeros((len(rows), length))) for h, rows in near.ghosts_of.items()}
            host.step(StepTask(attempt, 1, clients, numbers, events), ghosts)  # type: ignore[attr-defined]
        else:
            kept = host.enter() if job.settings.server is None else job.settings.server  # type: ignore[attr-defined]
            host.round(RoundTask(1, kept, clients, numbers, events))  # type: ignore[attr-defined]
        took = time.perf_counter() - began
    return took
