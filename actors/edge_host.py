"""A host of nodes whose links lose messages: the exchange by edges (Z9), which holds without some of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..algorithms.method import State
from .graph_host import GraphHost
from .host import HostSpec
from .messages import HostShard, Parcel, StepTask


class EdgeHost(GraphHost):
    """Nodes of a method with a form by edges (``per_edge``), (Z2) and (Z9).

    Each client holds z_ij for every neighbour j, the p-th of its neighbours by id in row p of ``z`` ``[n, D, d]``, D the
    largest degree of the graph. A message that is lost leaves z_ij as it is: the receiver goes on with what it has of that
    edge. All of z is a function of released states and of which messages were lost, both public.
    """

    def __init__(self, spec: HostSpec, shard: HostShard, test: HostShard) -> None:
        near = spec.neighbourhood
        assert near is not None
        own, names = len(spec.clients), np.concatenate([spec.clients, near.ghosts])
        rows, columns = near.exchange.nonzero()
        keep = rows != columns
        order = np.lexsort((names[columns[keep]], rows[keep]))
        self._owner, self._other = rows[keep][order], columns[keep][order]
        degrees = np.bincount(self._owner, minlength=own)
        self._place = np.arange(len(self._owner)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        self._degrees = degrees
        inside = self._other < own
        # For each inner edge (i, j) where edge (j, i) stands: sorted by (j, i), edges have the order of their reverses.
        within = np.flatnonzero(inside)
        self._within = within
        self._reverse = within[np.lexsort((self._owner[within], self._other[within]))]
        # What goes to and comes from a neighbouring host, in the order of the receiver's edges.
        self._to: dict[int, np.ndarray] = {}
        self._from: dict[int, np.ndarray] = {}
        for host, ghosts in near.ghosts_of.items():
            crossing = np.flatnonzero(np.isin(self._other - own, ghosts) & ~inside)
            self._from[host] = crossing
            self._to[host] = crossing[np.lexsort((self._owner[crossing], names[self._other[crossing]]))]
        super().__init__(spec, shard, test)

    def _beginning(self, spec: HostSpec) -> State:
        near = spec.neighbourhood
        assert near is not None
        self._rho = float(spec.method.rho)  # type: ignore[attr-defined]
        state = super()._beginning(spec)
        return {**state, "z": (self._rho * state["x"]).repeat(max(1, near.degree))}

    def _pull(self, state: State, task: StepTask, incoming: Mapping[int, Parcel]) -> Tensor:
        """c_i/ρ ``[n, d]`` by (Z2), after (Z9) with the messages that came through; it stands for ℒx + y/ρ."""
        z, x = self._edges(state["z"]).clone(), state["x"]
        if task.step > 1:
            came = torch.empty(len(self._owner), x.shape[1], dtype=x.dtype)
            came[self._within] = self._messages(state)[self._reverse]
            for host, where in self._from.items():
                came[where] = torch.from_numpy(np.array(incoming[host].content))
            heard = np.flatnonzero(task.heard) if task.heard is not None else np.arange(len(self._owner))
            place = self._owner[heard], self._place[heard]
            z[place] = 0.5 * (z[place] + came[heard])
        self._settled = z
        held = torch.zeros_like(x).index_add_(0, torch.from_numpy(self._owner), z[self._owner, self._place])
        degrees = torch.as_tensor(self._degrees, dtype=x.dtype)[:, None]
        return degrees * x - held / self._rho

    def _completed(self, state: State) -> State:
        return {**state, "y": torch.zeros_like(state["y"]), "z": self._settled.reshape(len(self._settled), -1)}

    def _parcels_of(self, state: State) -> dict[int, Parcel]:
        sent = self._messages(state)
        return {host: Parcel(sent[where].numpy()) for host, where in self._to.items()}

    def _messages(self, state: State) -> Tensor:
        """m_ij = 2ρ x_i − z_ij of every edge (i, j) of this host's clients, ``[edges, d]``."""
        z = self._edges(state["z"])[self._owner, self._place]
        return 2 * self._rho * state["x"][self._owner] - z

    def _edges(self, z: Tensor) -> Tensor:
        return z.reshape(len(z), -1, self._start.numel())
