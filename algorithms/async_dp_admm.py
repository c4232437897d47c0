"""Asynchronous DP-ADMM with partial sharing: late clients, and uploads of a few coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidValue
from ..keys import generator, public_key
from ..privacy.gate import Gate
from .dp_admm import DPADMM
from .local_steps import check_numbers
from .method import Cohort, State


@dataclass(frozen=True)
class AsyncDPADMM(DPADMM):
    """The DP-ADMM of Huang et al. 2020, asynchronous as in Zhang & Kwok 2014, "Asynchronous distributed ADMM for
    consensus optimization", with partial sharing as in Shokri & Shmatikov 2015.

    A client that comes takes the dual and primal steps of DP-ADMM with the x_0 of that moment, and uploads x_i + N(0, σ²I)
    on a set D of ⌈share·d⌉ coordinates, which anyone can draw (its key is public: seed, client, round):
        x̃_i[D] ← (x_i + noise)[D];     x̃_i elsewhere as it was, and what x_i holds there is forgotten
    The server adds up the last x̃_i − λ_i/ρ of all clients, however old. In every round the ``participants`` that are
    quickest come, here drawn uniformly as (S2), and with them everyone whose last upload is ``staleness`` rounds old, which
    is the bounded delay of the asynchronous paper: the server waits for them.

    Privacy: **guaranteed**, for one record. The state is x̃_i and λ_i, functions of what was uploaded. *Sensitivity*: that
    of DP-ADMM, 2 w_i G/(m_i (ρ + 1/η_t)); a replaced record may move x_i along the coordinates of D alone, so that sending
    few of them does not lower it. *Event*: one ``GaussianEvent`` an upload; a client that does not come is not charged.

    Attributes:
        participants: how many come of themselves in a round, ``None`` for all.
        staleness: the most rounds that may pass between two uploads of a client.
        share: the share of coordinates that an upload carries.
        sharing_seed: the seed of the coordinates and of who comes, besides the run's.
        The rest as in DP-ADMM.
    """

    staleness: int = 10
    share: float = 0.5
    sharing_seed: int = 0

    name: ClassVar[str] = "async-dp-admm"
    source: ClassVar[str] = "DP-ADMM (Huang et al. 2020), asynchronous (Zhang & Kwok 2014), with partial sharing"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, staleness=1, sharing_seed=0)
        if not 0 < self.share <= 1:
            raise InvalidValue("method.share", self.share, "give a share of the coordinates above 0 and up to 1")

    def local_round(self, state: State, x0: Tensor, cohort: Cohort, gate: Gate, t: int) -> State:
        x, dual = state["x"], self.dual_step(state, x0)
        released = gate.release(self.primal_step(x, dual, x0, cohort, t))
        if self.share == 1:
            return {"x": released, "dual": dual}
        sent = torch.from_numpy(np.stack([self.coordinates(int(client), t, x.shape[1]) for client in cohort.clients]))
        return {"x": torch.where(sent.to(x.device), released, x), "dual": dual}

    def coordinates(self, client: int, t: int, dim: int) -> np.ndarray:
        """``[d]`` bool: what client ``client`` uploads if it comes in round ``t``; known to everyone."""
        draw = generator(public_key(self.sharing_seed), "async-dp-admm/coordinates", client, t)
        sent = np.zeros(dim, dtype=bool)
        sent[draw.choice(dim, self._sent(dim), replace=False)] = True
        return sent

    def traffic(self, dim: int) -> tuple[int, int]:
        return dim, self._sent(dim)

    def participation(self, rounds: int, clients: int, seed: int) -> list[np.ndarray] | None:
        chosen = clients if self.participants is None else self.participants
        if chosen > clients:
            raise InvalidValue("method.participants", chosen, f"there are {clients} clients; give at most that many")
        last = np.zeros(clients, dtype=np.int64)
        key, listed = public_key(seed), []
        for t in range(1, rounds + 1):
            quick = generator(key, "participants", round=t).choice(clients, chosen, replace=False)
            come = np.union1d(quick, np.flatnonzero(t - last >= self.staleness))
            last[come] = t
            listed.append(come)
        return listed

    def _sent(self, dim: int) -> int:
        return max(1, math.ceil(self.share * dim))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "staleness": self.staleness, "share": self.share}
