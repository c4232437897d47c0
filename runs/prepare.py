"""From a configuration to a job: every check is made here, before anything runs or is charged."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch

from ..actors.async_coordinator import AsyncCoordinator
from ..actors.coordinator import Coordinator
from ..actors.graph_coordinator import GraphCoordinator
from ..actors.host import HostSpec, Neighbourhood
from ..actors.job import Job, LedgerSpec
from ..actors.layout import check_room, host_count, place_clients
from ..actors.messages import HostShard
from ..actors.plan import Plan
from ..actors.planning import Noise, check_participants, draw_participants, make_plan
from ..actors.settings import RunSettings
from ..algorithms.method import GraphMethod, Method, ServerMethod
from ..algorithms.problems import make_problem, own_fields, problem_class
from ..algorithms.problems.base import Problem
from ..algorithms.registry import make_method, method_table
from ..algorithms.regularisers import make_regulariser
from ..errors import InvalidValue
from ..keys import noise_key
from .config import ProblemConfig, RunConfig, parse
from .data import Dataset, load
from .network import build_web
from .partition import partition
from .prepare_checks import check_account, check_curvature, check_injected, check_mechanism, check_records
from .recorder import FileRecorder
from .time_setup import check_policy, time_settings
from .validation import held_out

# What may change between the start of a run and its end.
_MOST_ROUNDS = 10**7  # the clients of each are drawn before the first begins
_NOT_PLANNED = {"engine", "actors", "evaluate_every", "checkpoint_every", "name", "tune"}


@dataclass(frozen=True)
class Prepared:
    """A job with what its results will want to say."""

    job: Job
    config: RunConfig
    dataset: Dataset
    problem: Problem
    method: Method
    sizes: np.ndarray
    host_of: np.ndarray
    data_digest: str
    graph: nx.Graph | None
    warnings: list[str]


@dataclass(frozen=True)
class Given:
    """Objects in place of what a configuration names, and what only Python can give.

    Attributes:
        participation: the clients of every round, in place of a draw.
        noise: ``[T, N, d]`` values added in place of noise.
    """

    dataset: Dataset | None = None
    problem: Problem | None = None
    method: Method | None = None
    graph: nx.Graph | None = None
    participation: Sequence[Sequence[int]] | None = None
    noise: np.ndarray | None = None

    @property
    def objects(self) -> list[str]:
        """The names of the objects that no file describes."""
        names = ("dataset", "problem", "method", "graph", "noise")
        return [name for name in names if getattr(self, name) is not None]


def prepare(config: RunConfig, folder: Path, given: Given, resumed_to: int | None = None) -> Prepared:
    """Check everything and lay out a run in ``folder``.

    ``resumed_to`` is the round of the checkpoint to continue from.

    Raises:
        InvalidValue: whatever a person got wrong, naming the field.
    """
    method = make_method(config.method) if given.method is None else given.method
    dataset = load(config.data, config.seed) if given.dataset is None else given.dataset
    members = partition(
        dataset.train_labels, config.partition, config.seed, dataset.train_clients, dataset.client_names
    )
    if config.data.validation is not None:
        dataset, members = held_out(dataset, members, config.data.validation, config.seed)
    problem = build_problem(config.problem, dataset) if given.problem is None else given.problem
    check_records(problem, dataset)
    sizes = np.array([len(rows) for rows in members], dtype=np.int64)
    weights = len(sizes) * sizes / sizes.sum() if config.problem.weights == "by-size" else np.ones(len(sizes))
    on_cluster = "ray" in sys.modules and sys.modules["ray"].is_initialized()  # whose other nodes may have one
    if config.actors.device == "cuda" and not on_cluster and not torch.cuda.is_available():
        raise InvalidValue("actors.device", "cuda", 'torch sees no GPU on this machine; take "cpu"')
    check_mechanism(method, config)
    if method.rounds > _MOST_ROUNDS:
        raise InvalidValue("method.rounds", method.rounds, f"give {_MOST_ROUNDS:,} at most")
    method.validate(problem, sizes, weights, config.privacy.mode != "none")
    hosts = _hosts(config, len(sizes))
    graph, near = None, None
    warnings: list[str] = []
    if isinstance(method, GraphMethod):
        if config.actors.device != "cpu":
            raise InvalidValue("actors.device", config.actors.device, f'{method.name} computes on CPUs; take "cpu"')
        web = build_web(config, len(sizes), given.graph)
        method, warnings = method.settle(web.network, problem, sizes)
        graph = web.graph
        blocks, near = web.place(hosts, method.mixing_matrix(web.network))
    else:
        blocks = place_clients(len(sizes), hosts)
    config = parse({**config.model_dump(), "method": method_table(method)})
    check_policy(config.policy, method, len(sizes), config.privacy.mode)
    participants = _participants(config, method, problem, given, len(sizes))
    asynchronous = config.policy.kind == "async"
    plan = make_plan(
        method, problem, sizes, weights, participants, _noise(config), config.policy.cap, arrivals_decide=asynchronous
    )
    check_account(method, problem, sizes, weights, plan)
    check_curvature(config, method, problem, sizes, weights, plan)
    check_injected(given.noise, config, (method.rounds, len(sizes), problem.dim))
    specs = _specs(config, folder, problem, method, sizes, weights, plan, blocks, near, given.noise)
    job = Job(
        name=config.name,
        settings=_settings(config, folder, problem, method, blocks, graph, participants),
        plan=plan,
        specs=specs,
        shards=[host_shard(dataset, [members[client] for client in block], np.dtype(config.dtype)) for block in blocks],
        test=_shard(
            dataset.test_features, dataset.test_labels, np.array([0, len(dataset.test_labels)]), np.dtype(config.dtype)
        ),
        ledger=_ledger(config, folder, method, len(sizes), plan),
        recorder=FileRecorder(folder.resolve(), resumed_to, method.status),
        loop=GraphCoordinator if graph is not None else AsyncCoordinator if asynchronous else Coordinator,
        gpus_per_host=config.actors.gpus_per_actor,
    )
    host_of = np.empty(len(sizes), dtype=np.int64)
    for host, block in enumerate(blocks):
        host_of[block] = host
    return Prepared(job, config, dataset, problem, method, sizes, host_of, _digest(dataset, members), graph, warnings)


def build_problem(config: ProblemConfig, dataset: Dataset) -> Problem:
    """The problem that a configuration names, for these data."""
    chosen = problem_class(config.kind)
    outputs = chosen.outputs_for(dataset.n_classes)
    norm = dataset.record_norm if config.record_norm is None else config.record_norm
    if chosen.needs_record_norm and not np.isfinite(norm):
        raise InvalidValue(
            "problem.record_norm",
            norm,
            'these features have no declared bound; give one that is public, or take data.scale = "unit"',
        )
    regulariser = make_regulariser(
        config.regulariser, config.weight, config.weight_l2, config.lower, config.upper, config.radius
    )
    own = own_fields(chosen)
    options: dict[str, Any] = {
        name: getattr(config, name) for name in ("smoothing", "model", "model_options") if name in own
    }
    options |= config.options
    return make_problem(config.kind, dataset.train_features.shape[1], outputs, norm, regulariser, config.clip, options)


def _noise(config: RunConfig) -> Noise:
    privacy = config.privacy
    return Noise(
        privacy.mode,
        privacy.epsilon,
        privacy.delta,
        privacy.round_delta,
        privacy.calibration,
        privacy.noise_multiplier,
        privacy.rho_z,
        None if privacy.mode == "none" else privacy.budget,
    )


def _hosts(config: RunConfig, clients: int) -> int:
    if config.engine == "inline" and config.actors.clients_per_actor == "auto":
        return 1  # in one process several hosts only divide the work into smaller pieces
    return host_count(clients, config.actors.clients_per_actor, config.actors.cpus or os.cpu_count() or 1)


def _participants(config: RunConfig, method: Method, problem: Problem, given: Given, clients: int) -> list[np.ndarray]:
    kind = config.policy.kind
    ruled = given.participation
    if ruled is not None and kind in ("async", "over-select"):
        raise InvalidValue("participation", "a list", f"policy.kind = {kind!r} draws its own clients")
    if ruled is None and isinstance(method, ServerMethod) and kind != "async":  # there arrivals take its place
        own = method.participation(method.rounds, clients, config.seed)
        ruled = None if own is None else [chosen.tolist() for chosen in own]
        if own is not None and kind == "over-select":
            raise InvalidValue("policy.kind", kind, f'{method.name} chooses its clients itself; take "wait" or "async"')
    if ruled is not None:
        drawn = check_participants(ruled, method.rounds, clients)
    else:
        chosen = method.participants if isinstance(method, ServerMethod) else None
        if chosen is not None and kind == "over-select":
            chosen += config.policy.extra
        drawn = draw_participants(method.rounds, clients, chosen, config.seed)
    if isinstance(
        method, GraphMethod
    ):  # in a round that does not touch the data nobody releases, and nobody is charged
        drawn = [who[:0] if method.event(problem, 1, 1.0, t) is None else who for t, who in enumerate(drawn, 1)]
    return drawn


def _specs(
    config: RunConfig,
    folder: Path,
    problem: Problem,
    method: Method,
    sizes: np.ndarray,
    weights: np.ndarray,
    plan: Plan,
    blocks: list[np.ndarray],
    near: list[Neighbourhood] | None,
    injected: np.ndarray | None,
) -> list[HostSpec]:
    ray = config.engine == "ray"
    if ray:
        # Two versions of every row; rows that nobody writes stay unallocated, so this is the most.
        item = np.dtype(config.dtype).itemsize
        rows = sum(row.numel() for row in method.init(torch.zeros(problem.dim)).values())
        state = 2 * rows * len(sizes) * item
        check_room(len(blocks), config.actors.gpus_per_actor, int(sizes.sum()) * problem.n_features * item, state)
        (folder / "state").mkdir(mode=0o700, exist_ok=True)
    key, start = noise_key(config.seed if config.privacy.noise == "seeded" else None), problem.start(config.seed)
    return [
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
            neighbourhood=None if near is None else near[host],
            threads=config.actors.threads,
            device=config.actors.device,
            per_edge=config.policy.kind == "lossy",
        )
        for host, block in enumerate(blocks)
    ]


def _settings(
    config: RunConfig,
    folder: Path,
    problem: Problem,
    method: Method,
    blocks: list[np.ndarray],
    graph: nx.Graph | None,
    participants: list[np.ndarray],
) -> RunSettings:
    down, up = method.traffic(problem.dim) if isinstance(method, ServerMethod) else (None, None)
    shared = shared_length(method, problem) if isinstance(method, GraphMethod) else 0
    item = np.dtype(config.dtype).itemsize
    return RunSettings(
        rounds=method.rounds,
        hosts=blocks,
        dim=problem.dim,
        item_bytes=np.dtype(config.dtype).itemsize,
        evaluate_every=config.evaluate_every,
        checkpoint_every=config.checkpoint_every,
        folder=str(folder.resolve()),
        state_is_released=method.state_is_released,
        record_states=config.record_states,
        mixing_rounds=method.mixing_rounds if isinstance(method, GraphMethod) else 0,
        final_mixing=method.final_mixing if isinstance(method, GraphMethod) else 0,
        messages=0 if graph is None else 2 * graph.number_of_edges(),
        numbers_down=down,
        numbers_up=up,
        fresh_uploads=isinstance(method, ServerMethod) and method.uploads == "fresh",
        server=method.server_start(problem.start(config.seed)) if isinstance(method, ServerMethod) else None,
        message_length=shared,
        time=time_settings(
            config.time,
            config.policy,
            method,
            config.seed,
            participants,
            sum(len(block) for block in blocks),
            (down or shared) * item,
            (up or shared) * item,
            graph,
        ),
        on_error=config.policy.on_error,
        retries=config.policy.retries,
    )


def shared_length(method: GraphMethod, problem: Problem) -> int:
    """Numbers that a client shares in one exchange: d for every row of its state that neighbours see."""
    rows = method.init(torch.zeros(problem.dim))
    return sum(rows[name].numel() for name in method.shared)


def _ledger(config: RunConfig, folder: Path, method: Method, clients: int, plan: Plan) -> LedgerSpec:
    meta = {
        "method": method.name,
        "status": method.status,
        "unit": method.unit,
        "noise": config.privacy.noise,
        "mode": config.privacy.mode,
        "run": secrets.token_hex(8),
        "plan": plan_digest(config),
    }
    return LedgerSpec(str((folder / "ledger.sqlite").resolve()), clients, plan, meta)


def plan_digest(config: RunConfig) -> str:
    """A digest of all that decides what a run releases and charges; where and how it runs may change."""
    tables = config.model_dump(mode="json", exclude=_NOT_PLANNED)
    return hashlib.blake2b(json.dumps(tables, sort_keys=True).encode(), digest_size=12).hexdigest()


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
        **{name: _plain(getattr(problem, name)) for name in own_fields(type(problem))},
        "regulariser": dataclasses.asdict(problem.regulariser) | {"kind": type(problem.regulariser).__name__},  # type: ignore[call-overload]
    }


def _plain(value: Any) -> Any:
    """A problem's own parameter for a file: plain values stay, a factory is named."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return (
        value if isinstance(value, (int, float, str)) or value is None else getattr(value, "__qualname__", str(value))
    )
