"""Kill parts of a run at random moments and look for releases that nobody was charged for.

Usage: python benchmarks/crash.py [--kills 50] [--seed 1] [--targets ledger host coordinator driver]

A witness outside the run keeps every release: the method under test writes (client, round, grant) to a file of its own,
synchronised to disk, when the gate has released the value and before the method gets it. After the kills the journal must
hold every release that was seen; charges without a release may be those of two rounds a kill at most; and no client's ε
may ever have fallen. Only processes that this script started are killed, by their process ids.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from dualfed.algorithms.fedspd_dp import FedSPDDP

TARGETS = {"ledger": "LedgerActor", "host": "_HostActor", "coordinator": "CoordinatorActor", "driver": ""}
PARTICIPANTS = 3
_ROUNDS = 20_000
_PATIENCE_S = 180.0
_TRIES = 8


class WitnessedGate:
    """The gate of a round; what it releases is on record before the method has it."""

    def __init__(self, gate: Any, folder: str) -> None:
        self._gate, self._folder = gate, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, name)

    def release(self, value: Any, part: int = 0) -> Any:
        released = self._gate.release(value, part)
        granted = self._gate._granted
        with open(f"{self._folder}/{os.getpid()}.txt", "a") as file:
            for client, number in zip(granted.clients.tolist(), granted.numbers.tolist()):
                file.write(f"{client} {granted.round} {number}\n")
            file.flush()
            os.fsync(file.fileno())
        return released


@dataclass(frozen=True)
class Witnessed(FedSPDDP):
    """FedSPD-DP whose releases are seen by a witness."""

    name = "witnessed"
    witness: str = ""

    def local_round(self, state: Any, x0: Any, cohort: Any, gate: Any, t: int) -> Any:
        return super().local_round(state, x0, cohort, WitnessedGate(gate, self.witness), t)


def configuration(witness: Path) -> dict[str, Any]:
    return {
        "name": "crash",
        "seed": 11,
        "engine": "ray",
        "evaluate_every": 100,
        "checkpoint_every": 10,
        "data": {"name": "synthetic", "records": 240, "features": 6, "classes": 3},
        "partition": {"scheme": "iid", "clients": 6},
        "method": {
            "name": "witnessed",
            "rounds": _ROUNDS,
            "participants": PARTICIPANTS,
            "local_steps": 2,
            "batch_size": 4,
            "witness": str(witness),
        },
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 20.0},
        "actors": {"clients_per_actor": 3, "cpus": 2},
    }


def work(folder: Path) -> int:
    """What the killed process runs: the run in ``folder``, from its beginning or from where it was."""
    from dualfed import register
    from dualfed.runs.simulate import resume, simulate

    register(Witnessed)

    def hear(event: dict[str, Any]) -> None:
        if event["kind"] == "round":
            print(event["round"], flush=True)

    out = folder / "run"
    if (out / "config.toml").exists():
        resume(out, listen=hear)
    else:
        simulate(configuration(folder / "witness"), out=out, listen=hear)
    return 0


class Worker:
    """A process that runs or resumes the run, with the number of the round it has come to."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._log = (folder / "errors.txt").open("a")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", str(folder)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self.rounds = 0
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rounds += line.strip().isdigit()

    def advanced(self, rounds: int) -> bool:
        """Wait for so many more rounds; False if the process ended before."""
        goal, until = self.rounds + rounds, time.monotonic() + _PATIENCE_S
        while self.rounds < goal:
            if self.process.poll() is not None:
                return False
            if time.monotonic() > until:
                raise TimeoutError(f"no {rounds} rounds in {_PATIENCE_S:g} s")
            time.sleep(0.01)
        return True

    def members(self, title: str) -> list[psutil.Process]:
        """Processes of this run whose title names the class, or the driver itself."""
        own = psutil.Process(self.process.pid)
        if not title:
            return [own]
        found = []
        for child in own.children(recursive=True):
            try:
                named = " ".join(child.cmdline()[:1])
            except psutil.Error:
                continue
            if named.startswith("ray::") and title in named:
                found.append(child)
        return sorted(found, key=lambda process: process.pid)

    def stop(self) -> None:
        """End the run as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()


@dataclass
class Figures:
    """What came of the kills of one kind of process."""

    target: str
    kills: int = 0
    seen: int = 0
    charges: int = 0
    uncharged: int = 0
    repeated: int = 0
    unreleased: int = 0
    falls: int = 0

    @property
    def allowed(self) -> int:
        """Charges without a release: those of two rounds a kill."""
        return 2 * PARTICIPANTS * self.kills

    @property
    def good(self) -> bool:
        return not self.uncharged and not self.repeated and not self.falls and self.unreleased <= self.allowed


@dataclass(frozen=True)
class Seen:
    """What the journal said of each client: its ε and how many of its charges were taken back, shape [clients]."""

    epsilon: np.ndarray
    voids: np.ndarray


def campaign(target: str, kills: int, seed: int, folder: Path) -> Figures:
    """Kill ``target`` so many times in one run below ``folder``; moments are drawn from the seed."""
    (folder / "witness").mkdir(parents=True)
    draws = np.random.default_rng([seed, list(TARGETS).index(target)])
    figures, last = Figures(target), Seen(np.zeros(6), np.zeros(6, np.int64))
    worker, failures = Worker(folder), 0
    try:
        while figures.kills < kills:
            if not worker.advanced(int(draws.integers(2, 12))):
                # A resumed run may meet the writer of the run before, which notices its driver's end by and by.
                failures += 1
                if failures > _TRIES:
                    raise RuntimeError(f"the run does not go on: {(folder / 'errors.txt').read_text()[-2000:]}")
                time.sleep(1.0)
                worker = Worker(folder)
                continue
            time.sleep(float(draws.uniform(0.0, 0.2)))
            members = worker.members(TARGETS[target])
            if not members:
                failures += 1  # being restarted; for good, the title of its class was changed
                if failures > 8 * _TRIES:
                    raise RuntimeError(f"no process of this run is called {TARGETS[target]}")
                continue
            members[int(draws.integers(len(members)))].kill()
            figures.kills += 1
            failures = 0
            if target in ("coordinator", "driver"):
                worker.process.wait(timeout=_PATIENCE_S)
                worker.stop()
                worker = Worker(folder)
            last = _compare(folder, figures, last)
        worker.advanced(3)
    finally:
        worker.stop()
    _compare(folder, figures, last)
    _count(folder, figures)
    return figures


def _compare(folder: Path, figures: Figures, last: Seen) -> Seen:
    """Note where a client's ε is below what it was though nothing of what it was charged has been taken back."""
    from dualfed.privacy.ledger import Ledger

    ledger = Ledger.open_readonly(folder / "run" / "ledger.sqlite")
    now = np.array([loss.epsilon for loss in ledger.epsilon()])
    # A run that is told to stop takes back the reservation that it made ahead and never sent.
    voids = np.bincount([charge.client for charge in ledger.history() if charge.voided], minlength=len(now))
    ledger.close()
    # Two grids of the same account may differ in the fifth digit.
    figures.falls += int(((now < last.epsilon * (1 - 1e-4)) & (voids == last.voids)).sum())
    return Seen(np.where(voids == last.voids, np.maximum(now, last.epsilon), now), voids)


def _count(folder: Path, figures: Figures) -> None:
    from dualfed.privacy.ledger import Ledger

    seen: Counter[tuple[int, int]] = Counter()
    for path in (folder / "witness").iterdir():
        # A last line without an end was not on disk when the process was killed, so its value was not handed over.
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                client, _, number = map(int, line.split())
                seen[client, number] += 1
    ledger = Ledger.open_readonly(folder / "run" / "ledger.sqlite")
    charged = {(charge.client, charge.number) for charge in ledger.history() if not charge.voided}
    ledger.close()
    figures.seen, figures.charges = len(seen), len(charged)
    figures.uncharged = len(seen.keys() - charged)
    figures.repeated = sum(times > 1 for times in seen.values())
    figures.unreleased = len(charged - seen.keys())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        return work(given.work)
    good = True
    header = (
        "killed",
        "kills",
        "releases seen",
        "charges",
        "uncharged",
        "grants used twice",
        "without release",
        "ε fell",
    )
    print("  ".join(f"{name:>17}" for name in header))
    for target in given.targets:
        with tempfile.TemporaryDirectory(prefix=f"dualfed-{os.getpid()}-crash-") as folder:
            f = campaign(target, given.kills, given.seed, Path(folder) / target)
        row = (f.target, f.kills, f.seen, f.charges, f.uncharged, f.repeated, f"{f.unreleased} of {f.allowed}", f.falls)
        print("  ".join(f"{value!s:>17}" for value in row), flush=True)
        good &= f.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
