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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..keys import generator, noise_key
from ..privacy.gate import Bound, Granted, NoiseGate
from .method import Cohort, GraphMethod, Method, Network, ServerMethod, State
from .problems import make_problem
from .problems.base import Problem
from .shards import Shards

_SIZES = (12, 17, 30)


class FixedGate(NoiseGate):
    """Releases public values whatever it is given: what still differs between two data sets left a client unprotected."""

    def release(self, value: Tensor, part: int = 0) -> Tensor:
        super().release(value, part)
        rows = [
            generator(b"fixed", "release", int(client), self._granted.round, part) for client in self._granted.clients
        ]
        return torch.stack([torch.from_numpy(row.standard_normal(value.shape[1])) for row in rows]).to(value.dtype)

    def release_rows(self, value: Tensor, counts: Sequence[int] | np.ndarray, part: int = 0) -> Tensor:
        super().release_rows(value, counts, part)
        draw = generator(b"fixed", "rows", round=self._granted.round, grant=part)
        return torch.from_numpy(draw.standard_normal(value.shape)).to(value.dtype)

    def release_minimiser(self, solve: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        return self.release(torch.zeros_like(like))


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
            problem, shards = _world(dtype, problem)
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
    problem, shards = _world(torch.float64, problem)
    together, _ = play(make(), problem, shards, [0, 1, 2], rounds=3)
    apart = [play(make(), problem, shards, [client], rounds=3)[0] for client in range(3)]
    for name, rows in together.items():
        torch.testing.assert_close(rows, torch.cat([state[name] for state in apart]), rtol=1e-9, atol=1e-12)


def check_determinism(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """The same keys give the same bits, and the global generators are neither read nor moved."""
    problem, shards = _world(torch.float64, problem)
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
        problem, shards = _world(torch.float64, problem, seed)
        answers.append(play(method, problem, shards, [0, 1, 2], rounds=3, gate_class=FixedGate))
    (state_a, upload_a), (state_b, upload_b) = answers
    assert torch.equal(upload_a, upload_b), f"{method.name}: an upload depends on data that did not pass the gate"
    if method.state_is_released:
        for name, rows in state_a.items():
            assert torch.equal(rows, state_b[name]), (
                f"{method.name}: state {name!r} depends on data that did not pass the gate"
            )


def check_events(make: Callable[[], Method], problem: Problem | None = None) -> None:
    """Every round's event and bound are known beforehand, in the method's unit and status, for every size."""
    method = make()
    problem, _ = _world(torch.float64, problem)
    charged = 0
    for t in (0, 1, 2, method.rounds) if method.opens else (1, 2, method.rounds):
        events = [method.event(problem, size, 1.0, t) for size in _SIZES]
        assert len({event is None for event in events}) == 1, (
            f"round {t} is charged for some clients and not for others"
        )
        for event in events:
            if event is not None:
                assert event.unit == method.unit
                assert event.status == method.status
                assert event.noise_multiplier == 0
        if events[0] is None:
            continue
        charged += 1
        bound = method.bound(problem, np.array(_SIZES), np.ones(len(_SIZES)), t)
        assert bound.sensitivity.shape == (len(_SIZES),)
        assert bound.parts >= 1
        assert bool((bound.sensitivity > 0).all())
        assert bool(np.isfinite(bound.sensitivity).all()) or not method.private
    assert charged, f"{method.name}: no round has an event"


def check_server(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """The server's own state, if there is one, keeps its shape, stays where nobody uploaded, and starts at the start;
    the broadcast holds a model ``[d]``."""
    method = make()
    problem, _ = _world(torch.float64, problem)
    start = np.linspace(-1, 1, problem.dim)
    server = method.server_start(start)
    rows = {name: row[None] for name, row in method.init(torch.from_numpy(start)).items()}
    total = len(_SIZES) * method.upload(rows)[0].numpy()
    received = method.broadcast(total if server is None else server, len(_SIZES))
    np.testing.assert_allclose(method.model(torch.from_numpy(received)).numpy(), start, atol=1e-12)
    down, up = method.traffic(problem.dim)
    assert down >= problem.dim
    assert up >= 1
    if server is not None:
        assert server.dtype == np.float64
        after = method.serve(server, total, len(_SIZES), len(_SIZES))
        assert after.shape == server.shape
        if method.uploads == "fresh":
            still = method.serve(server, np.zeros_like(total), 0, len(_SIZES))
            np.testing.assert_array_equal(
                still, server, err_msg=f"{method.name}: a round without uploads moved the server"
            )


def check_refuses_privacy(make: Callable[[], ServerMethod], problem: Problem | None = None) -> None:
    """A method that protects nobody refuses a run that asks for it, before anything else."""
    problem, shards = _world(torch.float64, problem)
    sizes, ones = shards.sizes.numpy(), np.ones(len(_SIZES))
    make().validate(problem, sizes, ones, False)
    try:
        make().validate(problem, sizes, ones, True)
    except InvalidValue:
        return
    raise AssertionError(f"{make().name} adds no noise, and accepts a run that asks for privacy")


def check_noise(make: Callable[[], ServerMethod], noise_multiplier: float, problem: Problem | None = None) -> None:
    """Exactly one release a grant, and noise that moves what is uploaded."""
    method = make()
    problem, shards = _world(torch.float64, problem)
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
    paid = [t for t in ((0, 1) if method.opens else (1,)) if method.event(problem, _SIZES[0], 1.0, t) is not None]
    parts = sum(method.bound(problem, np.array(_SIZES), np.ones(3), t).parts for t in paid)
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


def _world(dtype: torch.dtype, problem: Problem | None, seed: int = 0) -> tuple[Problem, Shards]:
    draw = generator(b"world", "records", round=seed)
    total = sum(_SIZES)
    features = draw.standard_normal((total, 5))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = draw.integers(0, 3, total)
    offsets = np.concatenate([[0], np.cumsum(_SIZES)])
    shards = Shards.from_flat(features.astype(str(dtype).removeprefix("torch.")), labels, offsets)
    return problem or make_problem("softmax", 5, 3, 1.0), shards


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
    problem, shards = _world(torch.float64, problem)
    return make().settle(_path(), problem, shards.sizes.numpy())[0]


def check_graph_shapes(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """State rows are ``[C, d]`` in the start's dtype, finite, with the model in ``x``, for one client and for several."""
    for clients in ([0], [0, 1, 2]):
        for dtype in (torch.float64, torch.float32):
            chosen, shards = _world(dtype, problem)
            state = play_graph(make(), chosen, shards, clients, rounds=2)
            assert state["x"].shape == (len(clients), chosen.dim)
            for rows in state.values():
                assert rows.dtype == dtype
                assert rows.shape[0] == len(clients)
                assert bool(torch.isfinite(rows).all())


def check_graph_grouping(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """A client's rows do not depend on the clients that are computed with it."""
    problem, shards = _world(torch.float64, problem)
    together = play_graph(make(), problem, shards, [0, 1, 2], rounds=3)
    apart = [play_graph(make(), problem, shards, [client], rounds=3) for client in range(3)]
    for name, rows in together.items():
        torch.testing.assert_close(rows, torch.cat([state[name] for state in apart]), rtol=1e-9, atol=1e-12)


def check_graph_determinism(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """The same keys give the same bits, and the global generators are neither read nor moved."""
    problem, shards = _world(torch.float64, problem)
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
    worlds = [_world(torch.float64, problem, seed) for seed in (1, 2)]
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
    problem, shards = _world(torch.float64, problem)
    clients = np.arange(len(_SIZES))
    method, _ = make().settle(_path(), problem, shards.sizes.numpy())
    state = play_graph(make(), problem, shards, clients.tolist(), rounds=1)
    before, pull = {name: rows.clone() for name, rows in state.items()}, _pull(state, method, clients, 2)
    silent = method.advance(state, pull, None, clients, 2)
    still = method.advance(state, pull, torch.zeros_like(state["x"]), clients, 2)
    for name, rows in silent.items():
        assert torch.equal(rows, still[name]), name
        assert torch.equal(state[name], before[name]), f"{method.name}: the old rows of {name!r} were written to"


def check_mixing_matrix(make: Callable[[], GraphMethod], problem: Problem | None = None) -> None:
    """The matrix of an exchange joins neighbours only, and what is multiplied by it are rows of the state."""
    network, (problem, _) = _path(), _world(torch.float64, problem)
    method = settled(make, problem)
    matrix = method.mixing_matrix(network)
    assert matrix.shape == (len(_SIZES), len(_SIZES))
    assert matrix[0, 2] == matrix[2, 0] == 0, f"{method.name}: clients 0 and 2 are no neighbours"
    assert set(method.shared) <= set(method.init(torch.from_numpy(problem.start(0)))), method.name


def check_graph_noise(make: Callable[[], GraphMethod], noise_multiplier: float, problem: Problem | None = None) -> None:
    """Exactly one release a grant in every round that is charged, and noise that moves the states."""
    method = make()
    problem, shards = _world(torch.float64, problem)
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
    charged = [t for t in range(1, rounds + 1) if on_path.event(problem, _SIZES[0], 1.0, t) is not None]
    parts = sum(on_path.bound(problem, np.array(_SIZES), np.ones(3), t).parts for t in charged)
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
    on_path, _ = method.settle(_path(), problem, shards.sizes.numpy())
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


def _path() -> Network:
    """Three clients in a row, the largest eigenvalue of whose Laplacian is 3."""
    return Network(
        clients=len(_SIZES),
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
