"""A million charges: does the millionth cost what the first did? Usage: python benchmarks/journal.py [--charges 1000000]

Prints the time per charge of the first and the last tenth of the transactions, the journal's size, the time to reopen it
(every row is checked against the hash chain), and the time of ε for 10,000 clients with 50 distinct accounts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from dualfed.privacy.events import EpochEvent
from dualfed.privacy.ledger import Ledger

CLIENTS, ACCOUNTS, BATCH, DELTA = 10_000, 50, 1_000, 1e-5
EVENT = EpochEvent(noise_multiplier=1.0, rate=0.1, steps=5, contraction=0.9)


def charge(path: Path, charges: int) -> np.ndarray:
    """Seconds of each transaction of BATCH charges, with a budget to be kept by every client, shape [charges / BATCH]."""
    ledger = Ledger(path, CLIENTS, delta=DELTA, budgets=np.full(CLIENTS, 50.0))
    ledger.register([EVENT])
    took = np.empty(charges // BATCH)
    for number in range(len(took)):
        clients = (np.arange(BATCH) + number * BATCH) % CLIENTS
        began = time.perf_counter()
        grants, _ = ledger.reserve(number + 1, clients, 0)
        took[number] = time.perf_counter() - began
        assert len(grants) == BATCH
    ledger.close()
    return took


def reopen(path: Path) -> tuple[float, int]:
    """Seconds until a ledger on this journal can grant, and the charges that it found."""
    began = time.perf_counter()
    ledger = Ledger(path, CLIENTS, delta=DELTA, budgets=np.full(CLIENTS, 50.0))
    seconds = time.perf_counter() - began
    found = int(ledger.counts.sum())
    ledger.close()
    return seconds, found


def epsilon_of_many(path: Path) -> float:
    """Seconds of the first ε of 10,000 clients with 50 distinct accounts."""
    ledger = Ledger(path, CLIENTS, delta=DELTA)
    ledger.register([EVENT])
    for level in range(ACCOUNTS):
        clients = np.arange(CLIENTS)[np.arange(CLIENTS) % ACCOUNTS >= level]
        ledger.reserve(level + 1, clients, 0)
    began = time.perf_counter()
    losses = ledger.epsilon()
    seconds = time.perf_counter() - began
    assert len({loss.epsilon for loss in losses}) == ACCOUNTS
    ledger.close()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--charges", type=int, default=1_000_000)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where the journal is made; a temporary folder by default"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="dualfed-journal-") as folder:
        path = Path(folder) / "ledger.sqlite"
        took = charge(path, given.charges)
        tenth = max(1, len(took) // 10)
        # The median: a sync to a shared disk now and then takes long whatever the journal holds.
        first, last = float(np.median(took[:tenth])), float(np.median(took[-tenth:]))
        mean = took[-tenth:].mean() / took[:tenth].mean()
        seconds, found = reopen(path)
        many = epsilon_of_many(Path(folder) / "many.sqlite")
        size = path.stat().st_size
    print(f"charges                   {found:,} in {len(took):,} transactions")
    print(
        f"time per charge           {first / BATCH * 1e6:.2f} µs in the first tenth, {last / BATCH * 1e6:.2f} µs in the last"
    )
    print(f"ratio                     {last / first:.2f} (means: {mean:.2f})")
    print(f"journal                   {size / 2**20:.1f} MiB, {size / found:.1f} bytes a charge")
    print(f"reopened in               {seconds:.2f} s")
    print(f"ε of {CLIENTS:,} clients       {many:.2f} s for {ACCOUNTS} distinct accounts")
    return 0 if last / first <= 1.2 and seconds < 5 and many < 1 and found == given.charges else 1


if __name__ == "__main__":
    sys.exit(main())
