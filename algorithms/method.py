"""The contract of a method: frozen parameters and pure functions over a cohort of clients.

A method is tensor code alone. It never sees Ray, files, a clock or a source of randomness: batches and noise come from
the gate, and the gate is the only way in which a number that depends on data leaves a client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..privacy.events import Event, Status, Unit
from ..privacy.gate import Bound, Gate
from .problems.base import Problem
from .shards import Shards

State = dict[str, Tensor]


@dataclass(frozen=True)
class Cohort:
    """The clients of one host that take part in a round, in the order of the state's rows.

    Attributes:
        problem: model, loss, regulariser and constants (P1).
        shards: the records of all the host's clients.
        slots: ``[C]`` int64, which of the host's shards belong to this cohort.
        clients: ``[C]`` the clients' ids in the whole run.
        sizes: ``[C]`` m_i.
        weights: ``[C]`` public weights w_i of the local objectives.
    """

    problem: Problem
    shards: Shards
    slots: Tensor
    clients: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.clients)


class Method(ABC):
    """What every method says of itself. Subclasses are frozen dataclasses of the paper's parameters."""

    name: ClassVar[str]
    family: ClassVar[Literal["server", "graph"]]
    source: ClassVar[str]
    private: ClassVar[bool] = True
    """Whether it can protect records at all; a reference without noise cannot, and is refused where that is asked for."""
    opens: ClassVar[bool] = False
    """Whether it releases once, in a round 0 before the first, the records that all its rounds then compute from."""

    rounds: int

    @property
    def unit(self) -> Unit:
        """What two neighbouring data sets differ in, by replacement: one record, or a client's whole data set."""
        return "record"

    @property
    def status(self) -> Status:
        """``"guaranteed"`` where everything that a client keeps is a function of what it released, else ``"claimed"``."""
        return "guaranteed"

    @property
    def state_is_released(self) -> bool:
        """Whether a client's whole state may be rebuilt from its releases (SPEC section 5, rule 4)."""
        return self.status == "guaranteed"

    @abstractmethod
    def validate(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, private: bool) -> None:
        """Refuse, before anything runs or is charged, what this method cannot do. ``sizes``, ``weights``: ``[N]``.

        ``private`` says whether a privacy bound is asked for. Raises InvalidValue naming the field.
        """

    @abstractmethod
    def event(self, problem: Problem, size: int, weight: float, t: int) -> Event | None:
        """What round ``t`` costs a client with ``size`` records, known before it runs; noise multiplier 0.

        ``None``, for all clients alike, where a round reveals nothing that was not released before: it is not charged,
        and its gate lets nothing out. Rounds count from 1; round 0 is that of a method which ``opens``.
        """

    @abstractmethod
    def bound(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, t: int) -> Bound:
        """The sensitivity of what round ``t`` releases, for clients with ``sizes`` and ``weights`` ``[C]``; not asked
        for a round without an event."""

    def noise_growth(self, t: int) -> float:
        """Round ``t``'s noise multiplier over that of a round with 1: a schedule of its own; else all are alike."""
        return 1.0

    def compile(self, problem: Problem, dtype: str) -> None:  # noqa: B027 (most methods compile nothing)
        """Compile what the hosts will need, once and to disk, before many processes would do it at the same time."""

    @abstractmethod
    def init(self, start: Tensor) -> State:
        """The public state ``{name: [d]}`` in which every client starts, from the common start ``[d]``."""


@dataclass(frozen=True)
class Network:
    """What a graph method may know of its graph before it runs.

    Attributes:
        clients: N; degrees: ``[N]``.
        lambda_max: the largest eigenvalue of its Laplacian.
        check_stability: (ρ, gains a ``[N]``) → aρλ_max; raises UnstablePenalty outside (0, 8/3).
        curvature_warning: (aρλ_max, τ, α, L) → a sentence where losses may upset that, or None.
        laplacian: ℒ = D − A; metropolis: the Metropolis weights W, doubly stochastic. scipy csr ``[N, N]``.
    """

    clients: int
    degrees: np.ndarray
    lambda_max: float
    check_stability: Callable[[float, np.ndarray], float]
    curvature_warning: Callable[[float, int, float, float], str | None]
    laplacian: Any = None
    metropolis: Any = None


@dataclass(frozen=True)
class Increment:
    """What a cohort's data did in one round of a graph method.

    Attributes:
        released: ``[C, d]``, from the gate, with public terms added.
        counts: numbers to add up over hosts and report; they must not depend on records.
        heading: ``[d]`` sum over clients of their increments at norm 1, before clip and noise; a diagnostic of the
            simulation, not private, never part of a release.
    """

    released: Tensor
    counts: dict[str, int]
    heading: Tensor | None = None


def sum_of_directions(value: Tensor) -> Tensor:
    """``[d]`` float64, Σ_i v_i/‖v_i‖ of the rows of ``value`` ``[C, d]``; a zero row counts as zero."""
    lengths = torch.linalg.vector_norm(value, dim=1)
    lengths[lengths == 0] = 1.0
    total: Tensor = lengths.reciprocal_().to(value.dtype) @ value
    return total.to(torch.float64)


class GraphMethod(Method):
    """A method over a neighbour graph: each round a client sees its neighbours' released states, and releases its own.

    Hosts compute ``pull``, a matrix times the vectors that clients share, for their own clients; that product is all that
    a client learns of its neighbours. The matrix is the Laplacian (``pull`` = ℒx) or what ``mixing_matrix`` gives, and
    the vectors are the state rows named in ``shared``, side by side: ``[n, d·k]`` for k rows of length d. What is shared
    must be a function of what the gate let out and of public values.
    """

    family: ClassVar[Literal["server", "graph"]] = "graph"
    per_edge: ClassVar[bool] = False
    """Whether its state is x, y with a penalty ρ, equal to (Z2, Z9) by edges, so that messages may be lost."""
    shared: ClassVar[tuple[str, ...]] = ("x",)
    mixing_rounds: int = 0
    final_mixing: int = 0

    def mixing_matrix(self, network: Network) -> Any:
        """The sparse matrix ``[N, N]`` of an exchange, with entries on the graph's edges and the diagonal alone."""
        return network.laplacian

    def bound_at(self, problem: Problem, sizes: np.ndarray, weights: np.ndarray, clients: np.ndarray, t: int) -> Bound:
        """``bound`` of the clients with these ids ``[C]``, for a method whose bound depends on where in the graph they are."""
        return self.bound(problem, sizes, weights, t)

    @abstractmethod
    def settle(self, network: Network, problem: Problem, sizes: np.ndarray) -> tuple[GraphMethod, list[str]]:
        """The method with what depends on the graph and the data's sizes filled in, and warnings for the user.

        Raises UnstablePenalty or InvalidValue for parameters that cannot work on this graph.
        """

    @abstractmethod
    def increment(self, state: State, pull: Tensor, cohort: Cohort, gate: Gate, t: int) -> Increment:
        """All that depends on the cohort's data in round ``t``, released."""

    @abstractmethod
    def advance(self, state: State, pull: Tensor, increment: Tensor | None, clients: np.ndarray, t: int) -> State:
        """The next state of all a host's clients from public values alone; in a round without an event all there is.

        ``increment`` ``[n, d]`` is 0 for the silent, and None where nobody releases.
        ``state`` rows ``[n, d]``; ``pull`` ``[n, d·k]``, the matrix times the shared rows; ``clients`` ``[n]`` their ids;
        ``t`` is 0 in an exchange between rounds (``mixing_rounds``).
        """


class ServerMethod(Method):
    """A method with a server: it adds up what the clients upload and sends something back.

    An upload is one row of U numbers, several vectors side by side where a method sends several. What the server knows
    between rounds is either the sum of uploads alone, from which ``aggregate`` makes the broadcast, or a state of its
    own (``server_start``, ``serve``, ``broadcast``), such as a model that increments are added to, a control variate or
    a momentum.
    """

    family: ClassVar[Literal["server", "graph"]] = "server"
    uploads: ClassVar[Literal["kept", "fresh"]] = "kept"
    """``kept``: the server adds up the last upload of every client, whenever it was made. ``fresh``: those of the round."""

    participants: int | None

    @abstractmethod
    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        """One round of the cohort: new state rows ``{name: [C, …]}`` from the old ones and the broadcast ``[B]``.

        The old rows may be views of stored memory and must not be written to.
        """

    @abstractmethod
    def upload(self, state: State) -> Tensor:
        """``[C, U]``: what the server adds up, a function of the state rows."""

    def upload_total(self, state: State) -> Tensor:
        """``[U]``: the sum of ``upload`` over the clients, for methods that can do without the uploads themselves."""
        return self.upload(state).sum(dim=0)

    def aggregate(self, total: np.ndarray, clients: int) -> np.ndarray:
        """The next broadcast ``[B]`` from the sum of uploads ``[U]``, for a server without a state of its own."""
        return np.asarray(total / clients)

    def server_start(self, start: np.ndarray) -> np.ndarray | None:
        """The server's own state ``[S]``, float64, from the common start ``[d]``; ``None`` where it keeps none."""
        return None

    def serve(self, server: np.ndarray, total: np.ndarray, uploads: int, clients: int) -> np.ndarray:
        """The server's own state ``[S]`` after a round, from that before it.

        Args:
            total: ``[U]`` the sum of the uploads, as ``uploads`` of the class says which.
            uploads: how many clients uploaded in this round, 0 included.
            clients: N.
        """
        return server

    def broadcast(self, kept: np.ndarray, clients: int) -> np.ndarray:
        """``[B]``: what clients receive, from what the server keeps: its own state, or else the sum of uploads."""
        return self.aggregate(kept, clients)

    def model(self, received: Tensor) -> Tensor:
        """The model ``[d]`` in a broadcast ``[B]``."""
        return received

    def local_models(self, state: State) -> Tensor:
        """``[C, d]``: the model that each client holds; for diagnostics of the simulation."""
        return state["x"]

    def traffic(self, dim: int) -> tuple[int, int]:
        """How many numbers a client receives and uploads in a round."""
        return dim, dim

    def participation(self, rounds: int, clients: int, seed: int) -> list[np.ndarray] | None:
        """The participants of every round, ascending, where the method itself rules who comes; ``None``: S_t of (S2)."""
        return None

    def open(self, cohort: Cohort, gate: Gate) -> tuple[Tensor, Tensor]:
        """Round 0 of a method that ``opens``: the cohort's records as ``gate.release_rows`` let them out.

        Returns features ``[M, p]`` and labels ``[M]`` of the cohort's clients, one after the other; rounds see them in
        place of the records.
        """
        raise NotImplementedError(f"{self.name} opens no records")

    def describe(self) -> dict[str, Any]:
        """What to print in the closing summary."""
        return {}
