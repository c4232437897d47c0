"""From a configuration to a job: every check is made here, before anything runs or is charged."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..actors.host import HostSpec
from ..actors.job import Job, LedgerSpec
from ..actors.layout import check_memory, place_clients
from ..actors.loop import RunSettings
from ..actors.messages import HostShard
from ..actors.plan import Plan
from ..actors.planning import Noise, check_participants, draw_participants, make_plan
from ..algorithms.method import ServerMethod
from ..algorithms.problems import make_problem, problem_class
from ..algorithms.problems.base import Problem
from ..algorithms.registry import make_method, method_table
from ..algorithms.regularisers import L1, L2, Ball, Box, ElasticNet, NoRegulariser, Regulariser
from ..errors import InvalidValue
from ..keys import noise_key
from .config import ProblemConfig, RunConfig, parse
from .data import Dataset, load
from .partition import partition
from .recorder import FileRecorder


@dataclass(frozen=True)
class Prepared:
    """A job with what its results will want to say."""

    job: Job
    config: RunConfig
    dataset: Dataset
    problem: Problem
    method: ServerMethod
    sizes: np.ndarray
    host_of: np.ndarray
    data_digest: str


def prepare(
    config: RunConfig,
    folder: Path,
    *,
    dataset: Dataset | None = None,
    problem: Problem | None = None,
    method: ServerMethod | None = None,
    participation: Sequence[Sequence[int]] | None = None,
    injected: np.ndarray | None = None,
    resumed_to: int | None = None,
) -> Prepared:
    """Check everything and lay out a run in ``folder``.

    Args:
        dataset, problem, method: in place of what the configuration names.
        participation: the clients of every round, in place of a draw.
        injected: ``[T, N, d]`` values added in place of noise.
        resumed_to: the round of the checkpoint to continue from.

    Raises:
        InvalidValue: whatever a person got wrong, naming the field.
    """
    method = make_method(config.method) if method is None else method  # type: ignore[assignment]
    if not isinstance(method, ServerMethod):
        raise InvalidValue("method.name", getattr(method, "name", method), "this engine runs methods with a server")
    config = parse({**config.model_dump(), "method": method_table(method)})
    dataset = load(config.data, config.seed) if dataset is None else dataset
    members = partition(dataset.train_labels, config.partition, config.seed)
    problem = build_problem(config.problem, dataset) if problem is None else problem
    _check_records(problem, dataset)
    sizes = np.array([len(rows) for rows in members], dtype=np.int64)
    weights = np.ones(len(sizes))
    if config.problem.weights == "by-size":
        weights = len(sizes) * sizes / sizes.sum()
    method.validate(problem, sizes, weights, config.privacy.mode != "none")
    if participation is None:
        participants = draw_participants(method.rounds, len(sizes), method.participants, config.seed)
    else:
        participants = check_participants(participation, method.rounds, len(sizes))
    _check_injected(injected, config, (method.rounds, len(sizes), problem.dim))
    plan = make_plan(method, problem, sizes, weights, participants, _noise(config))
    hosts = place_clients(len(sizes), config.actors.clients_per_actor, config.actors.cpus or os.cpu_count() or 1)
    job = _job(config, folder, dataset, problem, method, members, sizes, weights, plan, hosts, injected, resumed_to)
    host_of = np.concatenate([np.full(len(block), host) for host, block in enumerate(hosts)])
    return Prepared(job, config, dataset, problem, method, sizes, host_of, _digest(dataset, members))


def build_problem(config: ProblemConfig, dataset: Dataset) -> Problem:
    """The problem that a configuration names, for these data."""
    outputs = problem_class(config.kind).outputs_for(dataset.n_classes)
    norm = dataset.record_norm if config.record_norm is None else config.record_norm
    if norm is None or not np.isfinite(norm):
        raise InvalidValue(
            "problem.record_norm",
            norm,
            'these features have no declared bound; give one that is public, or take data.scale = "unit"',
        )
    return make_problem(
        config.kind, dataset.train_features.shape[1], outputs, norm, build_regulariser(config), config.clip
    )


def build_regulariser(config: ProblemConfig) -> Regulariser:
    """R_i of (P1)."""
    made: dict[str, Regulariser] = {
        "none": NoRegulariser(),
        "l2": L2(config.weight),
        "l1": L1(config.weight),
        "elastic-net": ElasticNet(config.weight, config.weight_l2),
        "box": Box(config.lower, config.upper),
        "ball": Ball(config.radius),
    }
    return made[config.regulariser]


def _noise(config: RunConfig) -> Noise:
    privacy = config.privacy
    return Noise(
        privacy.mode,
        privacy.epsilon,
        privacy.delta,
        privacy.round_delta,
        privacy.calibration,
        privacy.noise_multiplier,
        None if privacy.mode == "none" else privacy.budget,
    )


def _check_records(problem: Problem, dataset: Dataset) -> None:
    for features, labels in (
        (dataset.train_features, dataset.train_labels),
        (dataset.test_features, dataset.test_labels),
    ):
        problem.check(torch.from_numpy(np.ascontiguousarray(features)), torch.from_numpy(np.ascontiguousarray(labels)))


def _check_injected(injected: np.ndarray | None, config: RunConfig, shape: tuple[int, int, int]) -> None:
    if injected is None:
        return
    if config.privacy.mode != "none":
        raise InvalidValue("noise", "an array", 'known noise protects nobody; inject it with privacy.mode = "none"')
    if injected.shape != shape:
        raise InvalidValue("noise", injected.shape, f"give an array of shape {shape}: rounds, clients, parameters")


def _job(
    config: RunConfig,
    folder: Path,
    dataset: Dataset,
    problem: Problem,
    method: ServerMethod,
    members: list[np.ndarray],
    sizes: np.ndarray,
    weights: np.ndarray,
    plan: Plan,
    hosts: list[np.ndarray],
    injected: np.ndarray | None,
    resumed_to: int | None,
) -> Job:
    dtype, ray = np.dtype(config.dtype), config.engine == "ray"
    start = np.zeros(problem.dim)
    key = noise_key(config.seed if config.privacy.noise == "seeded" else None)
    if ray:
        # Two versions of every row; rows that nobody writes stay unallocated, so this is the most.
        state = 2 * len(method.init(torch.zeros(1))) * len(sizes) * problem.dim * dtype.itemsize
        check_memory(len(hosts), dataset.train_features.size * dtype.itemsize, state)
        (folder / "state").mkdir(mode=0o700, exist_ok=True)
    specs = [
        HostSpec(
            host=host,
            clients=block,
            total_clients=len(sizes),
            sizes=sizes[block],
            weights=weights[block],
            problem=problem,
            method=method,
            start=start,
            noise_multipliers=plan.multipliers,
            noise_key=key,
            dtype=config.dtype,
            injected=injected,
            state_path=str((folder / "state" / f"host-{host:05d}").resolve()) if ray else None,
            threads=1 if ray else None,
        )
        for host, block in enumerate(hosts)
    ]
    settings = RunSettings(
        rounds=method.rounds,
        hosts=hosts,
        dim=problem.dim,
        item_bytes=dtype.itemsize,
        evaluate_every=config.evaluate_every,
        checkpoint_every=config.checkpoint_every,
        folder=str(folder.resolve()),
        state_is_released=method.state_is_released,
        record_states=config.record_states,
    )
    meta = {
        "method": method.name,
        "status": method.status,
        "unit": method.unit,
        "noise": config.privacy.noise,
        "mode": config.privacy.mode,
    }
    ledger = LedgerSpec(str((folder / "ledger.sqlite").resolve()), len(sizes), plan, meta)
    shards = [host_shard(dataset, [members[client] for client in block], dtype) for block in hosts]
    test = _shard(dataset.test_features, dataset.test_labels, np.array([0, len(dataset.test_labels)]), dtype)
    return Job(config.name, settings, plan, specs, shards, test, ledger, FileRecorder(folder, resumed_to))


def host_shard(dataset: Dataset, members: list[np.ndarray], dtype: np.dtype) -> HostShard:
    """The records of some clients, one after the other."""
    offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in members])]).astype(np.int64)
    order = np.concatenate(members)
    return _shard(dataset.train_features[order], dataset.train_labels[order], offsets, dtype)


def _shard(features: np.ndarray, labels: np.ndarray, offsets: np.ndarray, dtype: np.dtype) -> HostShard:
    wanted = np.int64 if np.issubdtype(labels.dtype, np.integer) else dtype
    return HostShard(
        np.ascontiguousarray(features, dtype=dtype),
        np.ascontiguousarray(labels, dtype=wanted),
        offsets.astype(np.int64),
    )


def _digest(dataset: Dataset, members: list[np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in (dataset.train_features, dataset.train_labels, dataset.test_features, dataset.test_labels, *members):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def resolved(prepared: Prepared) -> dict[str, Any]:
    """The configuration with every default filled in, as plain values for a file."""
    return prepared.config.model_dump(mode="json", exclude_none=True)


def describe_problem(problem: Problem) -> dict[str, Any]:
    """The constants that the privacy account rests on."""
    return {
        "kind": problem.name,
        "d": problem.dim,
        "G": problem.gradient_bound,
        "L": problem.smoothness,
        "record_norm": problem.record_norm,
        "regulariser": dataclasses.asdict(problem.regulariser) | {"kind": type(problem.regulariser).__name__},  # type: ignore[call-overload]
    }
