"""Checks of methods over a graph; see ``conformance``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..keys import generator, noise_key
from ..privacy.gate import Granted, NoiseGate
from .conformance_world import SIZES, FixedGate, check_events, world
from .method import Cohort, GraphMethod, Network, State
from .problems.base import Problem
from .shards import Shards


def check_graph_method(
    make: Callable[[], GraphMethod], *, problem: Problem | None = None, noise_multiplier: float = 1.0
) -> None:
    """All checks on the method over a graph that ``make`` makes; ``problem`` as in ``check_server_method``."""
    for check in (check_graph_shapes, check_graph_grouping, check_graph_determinism, check_graph_releases_only):
        check(make, problem)
    check_events(lambda: settled(make, problem), problem)
    check_silence(make, problem)
    check_mixing_matrix(make, problem)
    check_graph_noise(make, noise_multiplier, problem)


def settled(make: Callable[[], GraphMethod], problem: Problem | None = None) -> GraphMethod:
    """The method that ``make`` makes, on a graph of three clients in a row."""
    problem, shards = world(torch.float64, problem)
    return make().settle(path_network(), problem, shards.sizes.numpy())[0]


def check_graph_shapes(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """State rows are ``[C, d]`` in the start's dtype, finite, with the model in ``x``, for one client and for several."""
    for clients in ([0], [0, 1, 2]):
        for dtype in (torch.float64, torch.float32):
            chosen, shards = world(dtype, problem)
            state = play_graph(make(), chosen, shards, clients, rounds=2)
            assert state["x"].shape == (len(clients), chosen.dim)
            for rows in state.values():
                assert rows.dtype == dtype
                assert rows.shape[0] == len(clients)
                assert bool(torch.isfinite(rows).all())


def check_graph_grouping(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """A client's rows do not depend on the clients that are computed with it."""
    problem, shards = world(torch.float64, problem)
    together = play_graph(make(), problem, shards, [0, 1, 2], rounds=3)
    apart = [play_graph(make(), problem, shards, [client], rounds=3) for client in range(3)]
    for name, rows in together.items():
        torch.testing.assert_close(rows, torch.cat([state[name] for state in apart]), rtol=1e-9, atol=1e-12)


def check_graph_determinism(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """The same keys give the same bits, and the global generators are neither read nor moved."""
    problem, shards = world(torch.float64, problem)
    torch_state = torch.random.get_rng_state()
    first, second = (play_graph(make(), problem, shards, [0, 1, 2], rounds=2) for _ in range(2))
    for name, rows in first.items():
        assert torch.equal(rows, second[name]), name
    assert torch.equal(torch_state, torch.random.get_rng_state())


def check_graph_releases_only(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """With the gate's answers fixed, neither the states nor the counts depend on the data.

    A method that says of itself that its state is not a function of its releases (``claimed``) is not asked.
    """
    method = make()
    if not method.state_is_released:
        return
    worlds = [world(torch.float64, problem, seed) for seed in (1, 2)]
    counted: list[list[dict[str, int]]] = [[], []]
    a, b = (
        play_graph(method, *world, [0, 1, 2], rounds=3, gate_class=FixedGate, counts=counts)
        for world, counts in zip(worlds, counted)
    )
    for name, rows in a.items():
        assert torch.equal(rows, b[name]), f"{method.name}: state {name!r} depends on data that did not pass the gate"
    assert counted[0] == counted[1], f"{method.name}: a count depends on data that did not pass the gate"


def check_silence(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """A client that releases nothing moves as one whose increment is 0 (Z8), and the old rows stay as they were."""
    problem, shards = world(torch.float64, problem)
    clients = np.arange(len(SIZES))
    method, _ = make().settle(path_network(), problem, shards.sizes.numpy())
    state = play_graph(make(), problem, shards, clients.tolist(), rounds=1)
    before, pull = {name: rows.clone() for name, rows in state.items()}, _pull(state, method, clients, 2)
    silent = method.advance(state, pull, None, clients, 2)
    still = method.advance(state, pull, torch.zeros_like(state["x"]), clients, 2)
    for name, rows in silent.items():
        assert torch.equal(rows, still[name]), name
        assert torch.equal(state[name], before[name]), f"{method.name}: the old rows of {name!r} were written to"


def check_mixing_matrix(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """The matrix of an exchange joins neighbours only, and what is multiplied by it are rows of the state."""
    network, (problem, _) = path_network(), world(torch.float64, problem)
    method = settled(make, problem)
    matrix = method.mixing_matrix(network)
    assert matrix.shape == (len(SIZES), len(SIZES))
    assert matrix[0, 2] == matrix[2, 0] == 0, f"{method.name}: clients 0 and 2 are no neighbours"
    assert set(method.shared) <= set(method.init(torch.from_numpy(problem.start(0)))), method.name


def check_graph_noise(make: Callable[[], GraphMethod], noise_multiplier: float, problem: Problem | None = None) -> None:
    """Exactly one release a grant in every round that is charged, and noise that moves the states."""
    method = make()
    problem, shards = world(torch.float64, problem)
    counted: list[int] = []

    class Counting(NoiseGate):
        def release(self, value: Tensor, part: int = 0) -> Tensor:
            counted.append(value.shape[0])
            return super().release(value, part)

        def release_minimiser(self, solve: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
            counted.append(like.shape[0])
            return super().release_minimiser(solve, like)

    rounds = 3
    multiplier = noise_multiplier if method.private else 0.0
    noise: dict[str, Any] = {"gate_class": Counting, "noise_multiplier": multiplier}
    noisy = play_graph(method, problem, shards, [0, 1, 2], rounds=rounds, **noise)
    on_path = settled(make, problem)
    charged = [t for t in range(1, rounds + 1) if on_path.event(problem, SIZES[0], 1.0, t) is not None]
    parts = sum(on_path.bound(problem, np.array(SIZES), np.ones(3), t).parts for t in charged)
    assert sum(counted) == 3 * parts, f"{method.name}: {sum(counted)} releases for {3 * parts} granted"
    if method.private:
        exact = play_graph(method, problem, shards, [0, 1, 2], rounds=rounds)
        assert not torch.allclose(noisy["x"], exact["x"])


def play_graph(
    method: GraphMethod,
    problem: Problem,
    shards: Shards,
    clients: Sequence[int],
    rounds: int,
    *,
    gate_class: type[NoiseGate] = NoiseGate,
    noise_multiplier: float = 0.0,
    counts: list[dict[str, int]] | None = None,
) -> State:
    """Some rounds of some clients against pulls that do not depend on them; their state rows."""
    ids = np.array(clients)
    on_path, _ = method.settle(path_network(), problem, shards.sizes.numpy())
    sizes, weights = shards.sizes.numpy()[ids], np.ones(len(ids))
    cohort = Cohort(problem, shards, torch.from_numpy(ids), ids, sizes, weights)
    start = torch.from_numpy(problem.start(0)).to(shards.features.dtype)
    state = {name: row.expand(len(ids), -1) for name, row in on_path.init(start).items()}
    for t in range(1, rounds + 1):
        pull = _pull(state, on_path, ids, t)
        if on_path.event(problem, int(sizes[0]), 1.0, t) is None:
            state = on_path.advance(state, pull, None, ids, t)
            continue
        granted = Granted(t, ids, np.full(len(ids), t - 1), np.full(len(ids), noise_multiplier))
        gate = gate_class(granted, on_path.bound_at(problem, sizes, weights, ids, t), noise_key(0))
        found = on_path.increment(state, pull, cohort, gate, t)
        if counts is not None:
            counts.append(found.counts)
        state = on_path.advance(state, pull, found.released, ids, t)
    return state


def path_network() -> Network:
    """Three clients in a row, the largest eigenvalue of whose Laplacian is 3."""
    return Network(
        clients=len(SIZES),
        degrees=np.array([1, 2, 1]),
        lambda_max=3.0,
        check_stability=lambda rho, gains: 3.0 * rho * float(np.max(gains)),
        curvature_warning=lambda *_: None,
        laplacian=np.array([[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]]),
        metropolis=np.array([[2.0, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3,
    )


def _pull(state: State, method: GraphMethod, clients: np.ndarray, t: int) -> Tensor:
    length = sum(state[name].shape[1] for name in method.shared)
    rows = [generator(b"public", "pull", int(client), t).standard_normal(length) for client in clients]
    return torch.from_numpy(0.1 * np.stack(rows)).to(state["x"].dtype)
