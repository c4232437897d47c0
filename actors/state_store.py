"""The clients' states of one host: two versions a client, so that a round that does not count can be taken back.

Rows that were never written read as the common public start. The rows of a client that never took part cost no memory:
the arrays are sparse, in a file or not. With a file the state outlives its process: a host that is killed is rebuilt from
what it last wrote (SPEC section 5, rule 4).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .state_file import StateLayout, Versions, opened

_NEVER = 0


class StateStore:
    """States ``{name: [n, d]}`` of ``n`` clients, each row stamped with the round that wrote it (from 1; 0 is never).

    Args:
        start: the state ``{name: [d]}`` that every client begins with.
        n: clients of this host.
        path: a file to keep the rows in, readable by the owner alone; ``None`` keeps them in memory.
        device: where ``read`` puts rows; they are kept in main memory, from which a lost process is rebuilt.
    """

    def __init__(
        self, start: dict[str, Tensor], n: int, path: Path | None = None, device: torch.device | None = None
    ) -> None:
        self.names = list(start)
        self._device = device or torch.device("cpu")
        self._start, self._n = {name: row.cpu() for name, row in start.items()}, n
        self.dtype = next(iter(start.values())).dtype
        self._d = {name: row.numel() for name, row in start.items()}
        self.layout = StateLayout(n, self._d, str(self.dtype).removeprefix("torch."))
        self._spaced = self.layout.spaced
        self._buffer = opened(path, self.layout.size)
        # Without a file, a version that everyone wrote at once is kept as it came, and copied only if parts are asked for.
        self._adopts, self._adopted = path is None, dict[int, dict[str, Tensor]]()
        self.stamps = np.frombuffer(self._buffer, dtype=np.int64, count=2 * n).reshape(2, n)
        self._rows: dict[str, Tensor] = {}
        for name, offset in self.layout.offsets.items():
            count = 2 * self._spaced * self._d[name]
            flat = torch.frombuffer(self._buffer, dtype=self.dtype, count=count, offset=offset)
            self._rows[name] = flat.view(2 * self._spaced, self._d[name])

    @property
    def touched(self) -> np.ndarray:
        """The slots, in order, of clients that were ever written."""
        return np.flatnonzero(self.stamps.max(axis=0) > _NEVER)

    @property
    def last_round(self) -> np.ndarray:
        """``[n]`` the round that wrote each client's current row, 0 where none did."""
        return np.asarray(self.stamps.max(axis=0))

    def read(self, slots: np.ndarray) -> dict[str, Tensor]:
        """The current rows ``{name: [k, d]}`` of ``slots``. They may be views: not to be written to."""
        version = self.stamps[:, slots].argmax(axis=0)
        fresh = self.stamps[version, slots] == _NEVER
        if fresh.all():
            return {name: self._start[name].to(self._device).expand(len(slots), -1) for name in self.names}
        if len(slots) == self._n and (version == version[0]).all() and not fresh.any():
            if (whole := self._adopted.get(int(version[0]))) is not None:
                return {name: rows.to(self._device) for name, rows in whole.items()}
            first = int(version[0]) * self._spaced  # everyone, in the same version: no copy
            return {name: rows[first : first + self._n].to(self._device) for name, rows in self._rows.items()}
        self._settle()
        index = torch.from_numpy(version * self._spaced + slots)
        found = {name: rows.index_select(0, index) for name, rows in self._rows.items()}
        if fresh.any():
            where = torch.from_numpy(np.flatnonzero(fresh))
            for name, rows in found.items():
                rows[where] = self._start[name]
        return {name: rows.to(self._device) for name, rows in found.items()}

    def write(self, slots: np.ndarray, round: int, state: dict[str, Tensor]) -> None:
        """Put new rows beside the current ones; the stamp, set last, makes them current."""
        version = self.stamps[:, slots].argmin(axis=0)
        self.stamps[version, slots] = _NEVER
        index = torch.from_numpy(version * self._spaced + slots)
        everyone = len(slots) == self._n and (version == version[0]).all()
        if everyone and self._adopts:
            self._adopted[int(version[0])] = {name: rows.to("cpu", self.dtype) for name, rows in state.items()}
            self.stamps[version, slots] = round
            return
        self._settle()
        for name, rows in self._rows.items():
            if everyone:
                first = int(version[0]) * self._spaced
                rows[first : first + self._n] = state[name]
            else:
                rows.index_copy_(0, index, state[name].to("cpu", self.dtype))
        self.stamps[version, slots] = round

    def _settle(self) -> None:
        for version, state in self._adopted.items():
            first = version * self._spaced
            for name, rows in self._rows.items():
                rows[first : first + self._n] = state[name]
        self._adopted.clear()

    def take_back(self, first_void_round: int) -> np.ndarray:
        """Forget what was written in ``first_void_round`` or later; the slots that this concerned."""
        void = self.stamps >= first_void_round
        self.stamps[void] = _NEVER
        return np.flatnonzero(void.any(axis=0))

    def export(self) -> tuple[np.ndarray, np.ndarray, dict[str, Tensor]]:
        """(slots, their rounds, rows) of every client that was ever written, for a checkpoint."""
        slots = self.touched
        return slots, self.last_round[slots], {name: rows.cpu().clone() for name, rows in self.read(slots).items()}

    def restore(self, slots: np.ndarray, rounds: np.ndarray, state: dict[str, Tensor]) -> None:
        """Replace everything by the rows of a checkpoint."""
        self.stamps[:] = _NEVER
        for round in np.unique(rounds):
            here = np.flatnonzero(rounds == round)
            self.write(slots[here], int(round), {name: rows[torch.from_numpy(here)] for name, rows in state.items()})

    def changed(self, since: np.ndarray) -> list[Versions]:
        """What differs from a copy whose stamps ``[2, n]`` are ``since``: everything that the copy needs to be the same."""
        found = []
        for version in (0, 1):
            slots = np.flatnonzero(self.stamps[version] != since[version])
            if len(slots):
                adopted = self._adopted.get(version)
                held = slots[self.stamps[version, slots] != _NEVER]
                where = torch.from_numpy(held if adopted is not None else version * self._spaced + held)
                rows = {
                    name: (self._rows[name] if adopted is None else adopted[name]).index_select(0, where).numpy()
                    for name in self.names
                }
                found.append(Versions(version, slots, self.stamps[version, slots].copy(), rows))
        return found

    def take_over(self, versions: list[Versions]) -> None:
        """Become the same as the copy that these rows come from."""
        self._adopted.clear()
        self.stamps[:] = _NEVER
        for each in versions:
            where = torch.from_numpy(each.version * self._spaced + each.slots)
            for name, rows in each.rows.items():
                self._rows[name][where] = torch.from_numpy(np.ascontiguousarray(rows)).to(self.dtype)
            self.stamps[each.version, each.slots] = each.stamps
