"""What asking a run's ledger costs the run: the same job with and without questions, one after the other.

    python benchmarks/ledger_load.py                       # 12 × 5 s of 100 questions a second each to actor, journal, HTTP
    python benchmarks/ledger_load.py --seconds 10 --ways journal
    python benchmarks/ledger_load.py --ways http           # questions by GET, of a `dualfed serve` that it starts

A job of many short rounds runs on Ray. An asker, a process of its own, is quiet and asks in turn, ``--seconds`` each; a
server that answers it is halted meanwhile, so that all its work counts. It asks by the clock, whatever the answers take, so
a slow answer shows and does not thin out the questions. Printed: rounds a second with and without, by the run's own feed,
their ratio, questions, failures, and the slowest answer. Then the rate doubles until an answer fails or the asker falls
behind: the highest rate answered without failures. Run it on a quiet machine; the ratio of one pair is noise.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WAYS = ("actor", "journal", "http")
CLIENTS = 100
PATHS = (
    "/api/summary",
    "/api/clients?sort=share&order=desc&limit=20",
    "/api/overview",
    "/api/events",
    "/api/clients/{client}",
    "/api/metrics",
)
_BEGIN_S = 300.0
_LATE_S = 1.0
_WARM_S = 1.5
_HIGHEST_RATE = 6400
_ROUNDS = 300_000  # more than all stretches take: the run must not end before they do


@dataclass(frozen=True)
class Asked:
    """What an asker saw: questions answered, failures, the slowest answer in seconds, how far it fell behind, and when it
    was quiet and when it asked, ``[pairs, 3]``: Unix times of the quiet stretch's begin, the asked one's begin and its end."""

    answered: int
    failures: int
    slowest_s: float
    late_s: float
    words: str = ""
    stretches: tuple[tuple[float, float, float], ...] = ()


def job(rounds: int) -> dict[str, Any]:
    """Many short rounds of 100 clients, 20 a round, whose accounts all change."""
    return {
        "name": "load",
        "engine": "ray",
        "evaluate_every": 50,
        "checkpoint_every": 500,
        "compare_without_privacy": False,
        "data": {"name": "synthetic", "records": 10_000, "features": 20, "classes": 5},
        "partition": {"clients": CLIENTS, "min_size": 20},
        "method": {
            "name": "fedspd-dp",
            "rounds": rounds,
            "participants": 20,
            "local_steps": 4,
            "batch_size": 10,
        },
        # So that after tens of thousands of rounds ε is still one that somebody would use.
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 100.0},
    }


class Run:
    """The job in a process of its own, measured from its tenth round on."""

    def __init__(self, folder: Path) -> None:
        import tomlkit

        self.folder = folder / "run"
        config = folder / "job.toml"
        config.write_text(tomlkit.dumps(job(_ROUNDS)))
        command = [sys.executable, "-m", "dualfed", "run", str(config), "--out", str(self.folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _BEGIN_S
        while self.rounds() < 10:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise RuntimeError("the job did not begin; try `dualfed run` by hand")
            time.sleep(0.1)

    def rounds(self) -> int:
        """Rounds done so far, from the end of the run's feed."""
        feed = self.folder / "events.jsonl"
        if not feed.exists():
            return 0
        with open(feed, "rb") as file:
            file.seek(max(0, feed.stat().st_size - 16384))
            lines = file.read().split(b"\n")[:-1]
        for line in reversed(lines):
            if b'"kind":"round"' in line:
                return int(json.loads(line)["round"])
        return 0

    def walls(self) -> np.ndarray:
        """When each round ended, Unix times."""
        with open(self.folder / "events.jsonl", "rb") as file:
            return np.array([json.loads(line)["wall"] for line in file if b'"kind":"round"' in line])

    def going(self) -> bool:
        return self._process.poll() is None

    def address(self) -> str:
        return str(json.loads((self.folder / "run.json").read_text())["cluster"]["address"])

    def end(self) -> None:
        """Stop it by its process id: Ctrl-C first, so that its cluster goes with it."""
        if self.going():
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def ask(way: str, target: str, address: str, rate: float, seconds: float, pairs: int, server: int, told: Any) -> None:
    """Be quiet and ask at ``rate`` questions a second, ``seconds`` each and so many times; put an ``Asked`` into ``told``.

    ``server`` is the process of whoever answers and does nothing else, which is halted while it is quiet; 0 for none.
    """
    try:
        question = _question(way, target, address)
        question(0)  # connected, and its first answer computed
    except Exception as error:
        told.put(Asked(0, 1, 0.0, 0.0, f"{type(error).__name__}: {error}"))
        return
    answered = failures = 0
    slowest = late = 0.0
    words, stretches = "", []
    for _ in range(pairs):
        quiet = time.time()
        if server:
            os.kill(server, signal.SIGSTOP)
        time.sleep(seconds)
        if server:
            os.kill(server, signal.SIGCONT)
        # What piled up while nobody asked is worked off first: of 60 s of questions without a break that is no part.
        asking, began = time.time() + _WARM_S, time.perf_counter()
        for k in range(int(rate * (seconds + _WARM_S))):
            due = began + k / rate
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            late = max(late, time.perf_counter() - due)
            sent = time.perf_counter()
            try:
                question(k)
                answered += 1
            except Exception as error:
                failures += 1
                words = words or f"{type(error).__name__}: {error}"
            slowest = max(slowest, time.perf_counter() - sent)
        stretches.append((quiet, asking, time.time()))
    told.put(Asked(answered, failures, slowest, late, words, tuple(stretches)))


def _question(way: str, target: str, address: str) -> Callable[[int], None]:
    """One question of the given way: ε of a client in turn, and every tenth time of all."""
    if way == "http":
        connection = http.client.HTTPConnection(target.removeprefix("http://"), timeout=10)

        def get(k: int) -> None:
            path = PATHS[k % len(PATHS)].format(client=k % CLIENTS)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
            except ConnectionError:  # it was idle for too long, as every client's may be
                connection.close()
                connection.request("GET", path)
                answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"status {answer.status}")

        return get
    from dualfed import Ledger

    ledger = Ledger.connect(target, address if way == "actor" else None)

    def one(k: int) -> None:
        if k % 10:
            ledger.epsilon(k % CLIENTS)
        else:
            ledger.table()

    return one


@contextlib.contextmanager
def served(folder: str) -> Iterator[tuple[str, int]]:
    """The address and the process of a `dualfed serve` of the run, ended by its own process id."""
    command = [sys.executable, "-m", "dualfed", "serve", folder]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().split()[-1].rstrip("/"), server.pid
    finally:
        server.kill()
        server.wait()


def stretches(run: Run, way: str, rate: float, seconds: float, pairs: int) -> Asked:
    """What an asker of its own process saw; a server runs beside it where the way needs one."""
    with served(str(run.folder)) if way == "http" else contextlib.nullcontext((str(run.folder), 0)) as (target, server):
        context = multiprocessing.get_context("spawn")
        told = context.Queue()
        process = context.Process(target=ask, args=(way, target, run.address(), rate, seconds, pairs, server, told))
        process.start()
        seen: Asked = told.get(timeout=2 * seconds * pairs + 120)
        process.join()
    if not run.going():
        raise RuntimeError("the run ended before its stretches did; shorten them")
    return seen


def say(way: str, seen: Asked, rate: float) -> str:
    words = f"; first failure: {seen.words}" if seen.words else ""
    return (
        f"  {way}: {seen.answered} answered at {rate:g} a second, {seen.failures} failures, "
        f"slowest {1000 * seen.slowest_s:.0f} ms, at most {1000 * seen.late_s:.0f} ms behind{words}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=5.0, help="of each stretch")
    options.add_argument("--rate", type=float, default=100.0, help="questions a second of each way")
    options.add_argument("--pairs", type=int, default=12, help="quiet and asked stretches of each way")
    options.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    options.add_argument("--no-highest", action="store_true", help="leave out the search for the highest rate")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="dualfed-load-") as folder:
        run = Run(Path(folder))
        try:
            print(f"{os.cpu_count()} cores, {CLIENTS} clients, {given.pairs} × {given.seconds:g} s asked", flush=True)
            for way in given.ways:
                measure(run, way, given)
        finally:
            run.end()


def measure(run: Run, way: str, given: argparse.Namespace) -> None:
    """One way: pairs of stretches, then the highest rate."""
    seen = stretches(run, way, given.rate, given.seconds, given.pairs)
    print(say(way, seen, given.rate), flush=True)
    walls = run.walls()
    quiet, asked = [], []
    for first, middle, last in seen.stretches:
        quiet.append(((first <= walls) & (walls < middle)).sum() / (middle - first))
        asked.append(((middle <= walls) & (walls < last)).sum() / (last - middle))
    if not quiet:
        return
    ratios = np.array(asked) / np.array(quiet)
    error = ratios.std(ddof=1) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    print(
        f"{way}: {np.mean(quiet):.1f} rounds/s quiet, {np.mean(asked):.1f} asked; ratio {np.mean(asked) / np.mean(quiet):.3f} "
        f"(mean of pairs {ratios.mean():.3f} ± {error:.3f})",
        flush=True,
    )
    rate, best = given.rate, 0.0
    while not given.no_highest and rate <= _HIGHEST_RATE:
        seen = stretches(run, way, rate, min(given.seconds, 5.0), 1)
        print(say(way, seen, rate), flush=True)
        if seen.failures or seen.late_s > _LATE_S:
            break
        best, rate = rate, 2 * rate
    if best:
        print(f"{way}: the highest rate tried that was answered without failures is {best:g} a second", flush=True)


if __name__ == "__main__":
    main()
