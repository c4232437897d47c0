"""Checks that every method passes, ours and third parties'. Call them from a test; each raises AssertionError.

    from dualfed.algorithms.conformance import check_graph_method, check_server_method
    check_server_method(lambda: MyMethod(rounds=3, participants=2))
    check_graph_method(lambda: MyGraphMethod(rounds=3))

Layouts, recovery and resuming are properties of these: a host computes for a subset of the clients, and starts again from
stored rows, so a method that does not care how clients are grouped or when its rows were stored cares for neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..keys import generator, noise_key
from ..privacy.gate import Bound, Granted, NoiseGate
from .conformance_graph import check_graph_determinism as check_graph_determinism
from .conformance_graph import check_graph_grouping as check_graph_grouping
from .conformance_graph import check_graph_method as check_graph_method
from .conformance_graph import check_graph_noise as check_graph_noise
from .conformance_graph import check_graph_releases_only as check_graph_releases_only
from .conformance_graph import check_graph_shapes as check_graph_shapes
from .conformance_graph import check_mixing_matrix as check_mixing_matrix
from .conformance_graph import check_silence as check_silence
from .conformance_graph import play_graph as play_graph
from .conformance_graph import settled as settled
from .conformance_world import SIZES, world
from .conformance_world import FixedGate as FixedGate
from .conformance_world import check_events as check_events
from .method import Cohort, ServerMethod, State
from .problems.base import Problem
from .shards import Shards


def check_server_method(
    make: Callable[[], ServerMethod], *, problem: Problem | None = None, noise_multiplier: float = 1.0
) -> None:
    """All checks of this module on the method that ``make`` makes.

    ``problem``, of 5 features and the classes 0 to 2, takes the place of a softmax model.
    """
    for check in (check_shapes, check_grouping, check_determinism, check_releases_only, check_events, check_server):
        check(make, problem)
    if make().private:
        check_noise(make, noise_multiplier, problem)
    else:
        check_refuses_privacy(make, problem)


def check_shapes(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """State rows and uploads keep their width and the start's dtype, and are finite, for one client and for several."""
    for clients in ([0], [0, 1, 2]):
        for dtype in (torch.float64, torch.float32):
            method = make()
            problem, shards = world(dtype, problem)
            state, upload = play(method, problem, shards, clients, rounds=2)
            for rows in (*state.values(), upload):
                assert rows.dtype == dtype
                assert rows.shape[0] == len(clients)
                assert bool(torch.isfinite(rows).all())
            start = method.init(torch.zeros(problem.dim, dtype=dtype))
            assert {name: rows.shape[1] for name, rows in state.items()} == {n: row.numel() for n, row in start.items()}
            assert upload.shape[1:] == method.upload({name: row[None] for name, row in start.items()}).shape[1:]
            assert method.local_models(state).shape == (len(clients), problem.dim)
            torch.testing.assert_close(method.upload_total(state), upload.sum(0), rtol=1e-5, atol=1e-6)


def check_grouping(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """A client's rows do not depend on the clients that are computed with it."""
    problem, shards = world(torch.float64, problem)
    together, _ = play(make(), problem, shards, [0, 1, 2], rounds=3)
    apart = [play(make(), problem, shards, [client], rounds=3)[0] for client in range(3)]
    for name, rows in together.items():
        torch.testing.assert_close(rows, torch.cat([state[name] for state in apart]), rtol=1e-9, atol=1e-12)


def check_determinism(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """The same keys give the same bits, and the global generators are neither read nor moved."""
    problem, shards = world(torch.float64, problem)
    torch_state = torch.random.get_rng_state()
    first, _ = play(make(), problem, shards, [0, 1, 2], rounds=2)
    second, _ = play(make(), problem, shards, [0, 1, 2], rounds=2)
    for name, rows in first.items():
        assert torch.equal(rows, second[name]), name
    assert torch.equal(torch_state, torch.random.get_rng_state())


def check_releases_only(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """With the gate's answers fixed, uploads do not depend on the data; nor does the state, where it claims so."""
    method = make()
    answers = []
    for seed in (1, 2):
        problem, shards = world(torch.float64, problem, seed)
        answers.append(play(method, problem, shards, [0, 1, 2], rounds=3, gate_class=FixedGate))
    (state_a, upload_a), (state_b, upload_b) = answers
    assert torch.equal(upload_a, upload_b), f"{method.name}: an upload depends on data that did not pass the gate"
    if method.state_is_released:
        for name, rows in state_a.items():
            assert torch.equal(rows, state_b[name]), (
                f"{method.name}: state {name!r} depends on data that did not pass the gate"
            )


def check_server(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """The server's own state, if there is one, keeps its shape, stays where nobody uploaded, and starts at the start;
    the broadcast holds a model ``[d]``."""
    method = make()
    problem, _ = world(torch.float64, problem)
    start = np.linspace(-1, 1, problem.dim)
    server = method.server_start(start)
    rows = {name: row[None] for name, row in method.init(torch.from_numpy(start)).items()}
    total = len(SIZES) * method.upload(rows)[0].numpy()
    received = method.broadcast(total if server is None else server, len(SIZES))
    np.testing.assert_allclose(method.model(torch.from_numpy(received)).numpy(), start, atol=1e-12)
    down, up = method.traffic(problem.dim)
    assert down >= problem.dim
    assert up >= 1
    if server is not None:
        assert server.dtype == np.float64
        after = method.serve(server, total, len(SIZES), len(SIZES))
        assert after.shape == server.shape
        if method.uploads == "fresh":
            still = method.serve(server, np.zeros_like(total), 0, len(SIZES))
            np.testing.assert_array_equal(
                still, server, err_msg=f"{method.name}: a round without uploads moved the server"
            )


def check_refuses_privacy(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """A method that protects nobody refuses a run that asks for it, before anything else."""
    problem, shards = world(torch.float64, problem)
    sizes, ones = shards.sizes.numpy(), np.ones(len(SIZES))
    make().validate(problem, sizes, ones, False)
    try:
        make().validate(problem, sizes, ones, True)
    except InvalidValue:
        return
    raise AssertionError(f"{make().name} adds no noise, and accepts a run that asks for privacy")


def check_noise(make: Callable[[], ServerMethod], noise_multiplier: float, problem: Problem | None = None) -> None:
    """Exactly one release a grant, and noise that moves what is uploaded."""
    method = make()
    problem, shards = world(torch.float64, problem)
    counted: list[int] = []

    class Counting(NoiseGate):
        def release(self, value: Tensor, part: int = 0) -> Tensor:
            counted.append(value.shape[0])
            return super().release(value, part)

        def release_rows(self, value: Tensor, counts: Sequence[int] | np.ndarray, part: int = 0) -> Tensor:
            counted.append(len(counts))
            return super().release_rows(value, counts, part)

    _, noisy = play(
        method, problem, shards, [0, 1, 2], rounds=1, gate_class=Counting, noise_multiplier=noise_multiplier
    )
    paid = [t for t in ((0, 1) if method.opens else (1,)) if method.event(problem, SIZES[0], 1.0, t) is not None]
    parts = sum(method.bound(problem, np.array(SIZES), np.ones(3), t).parts for t in paid)
    assert sum(counted) == 3 * parts, f"{method.name}: {sum(counted)} releases for {3 * parts} granted"
    _, exact = play(method, problem, shards, [0, 1, 2], rounds=1)
    assert not torch.allclose(noisy, exact)


def play(
    method: ServerMethod,
    problem: Problem,
    shards: Shards,
    clients: Sequence[int],
    rounds: int,
    *,
    gate_class: type[NoiseGate] = NoiseGate,
    noise_multiplier: float = 0.0,
) -> tuple[State, Tensor]:
    """Some rounds of some clients against a broadcast that does not depend on them; (state rows, uploads)."""
    ids = np.array(clients)
    sizes = shards.sizes.numpy()[ids]
    cohort = Cohort(problem, shards, torch.from_numpy(ids), ids, sizes, np.ones(len(ids)))
    start = torch.from_numpy(problem.start(0)).to(shards.features.dtype)
    state = {name: row.expand(len(ids), -1) for name, row in method.init(start).items()}
    width = _broadcast_width(method, start)
    if method.opens:
        opened = method.open(cohort, _gate(method, cohort, 0, gate_class, noise_multiplier))
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        released = Shards.from_flat(opened[0].numpy(), opened[1].numpy(), offsets)
        cohort = replace(cohort, shards=released, slots=torch.arange(len(ids)))
    for t in range(1, rounds + 1):
        x0 = torch.from_numpy(0.1 * generator(b"public", "x0", round=t).standard_normal(width)).to(start.dtype)
        gate = _gate(method, cohort, t, gate_class, noise_multiplier)
        state = method.local_round(state, x0, cohort, gate, t)
    return state, method.upload(state)


def _gate(
    method: ServerMethod, cohort: Cohort, t: int, gate_class: type[NoiseGate], noise_multiplier: float
) -> NoiseGate:
    """The gate of round ``t``; one that lets nothing out where the round has no event."""
    ids, ones = cohort.clients, np.ones(len(cohort))
    if method.event(cohort.problem, int(cohort.sizes[0]), 1.0, t) is None:
        return gate_class(Granted(t, ids, np.full(len(ids), -1), 0 * ones), Bound(0 * ones, parts=0), noise_key(0))
    granted = Granted(t, ids, np.full(len(ids), t), noise_multiplier * ones)
    return gate_class(granted, method.bound(cohort.problem, cohort.sizes, cohort.weights, t), noise_key(0))


def _broadcast_width(method: ServerMethod, start: Tensor) -> int:
    kept = method.server_start(start.double().numpy())
    if kept is None:
        kept = method.upload({name: row[None] for name, row in method.init(start).items()})[0].double().numpy()
    return int(method.broadcast(kept, 1).size)
