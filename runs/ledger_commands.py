"""The commands below ``dualfed ledger`` that print; what they print is in ``ledger_views``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from ..actors.ledger_desk import LedgerGone
from ..actors.run_file import read_run_file, state_of
from ..errors import InvalidValue
from ..privacy.accountants import check_delta
from ..privacy.answers import AccountTable
from .ledger_client import OVER, Ledger
from .ledger_views import Pulse, accounts, charges_view, one_client, outlook_view, watch_sentence, watch_view

_OVER = "over"
"""The state of a run whose ledger has ended, where nobody here knows how."""


def open_ledger(run: str, address: str | None, client: int | None, delta: float | None) -> Ledger:
    """The ledger of ``run``, with what was asked about checked. Raises InvalidValue, JournalDamaged."""
    if delta is not None:
        check_delta(delta, "--delta")
    ledger = Ledger.connect(run, address)
    clients = ledger.about()["clients"]
    if client is not None and not 0 <= client < clients:
        ledger.close()
        raise InvalidValue("--client", client, f"clients are numbered 0 to {clients - 1}")
    return ledger


def show(run: str, address: str | None, client: int | None, delta: float | None) -> None:
    """Print what the clients of a run have spent, or all accounts of one of them."""
    with open_ledger(run, address, client, delta) as ledger:
        if client is None:
            Console().print(accounts(ledger.table(delta)))
        else:
            Console().print(one_client(ledger.epsilon(client, delta, every=True)))


def history(run: str, address: str | None, client: int | None, last: int) -> None:
    """Print the charges of a run, or of one client."""
    if last < 0:
        raise InvalidValue("--last", last, "give a number of charges, 0 for all")
    with open_ledger(run, address, client, None) as ledger:
        round, charges = ledger.round, ledger.history(client)
    claimed = any(charge.event.status == "claimed" for charge in charges)
    Console().print(charges_view(charges[-last:] if last else charges, round, claimed))


def what_if(
    run: str,
    address: str | None,
    client: int | None,
    delta: float | None,
    rounds: int | None,
    noise: float | None,
    budget: float | None,
) -> None:
    """Print what more rounds would come to."""
    at = "the present noise" if noise is None else f"noise multiplier {noise:g}"
    if rounds is not None and budget is not None:
        asked = f"the noise for {rounds} more rounds within ε = {budget:g}"
    elif rounds is not None:
        asked = f"{rounds} more rounds at {at}"
    else:
        asked = f"how many more rounds fit into {'the budget' if budget is None else f'ε = {budget:g}'} at {at}"
    with open_ledger(run, address, client, delta) as ledger:
        outlook = ledger.what_if(rounds, noise, budget, client, delta)
    claimed = " (claimed)" if outlook.claimed and budget is not None else ""
    Console().print(outlook_view(outlook, asked + claimed))


def watch(
    run: str, address: str | None, client: int | None, delta: float | None, once: bool, interval: float, top: int
) -> None:
    """Show a run until it ends, redrawn on a terminal, a line at a time anywhere else."""
    if not 0.05 <= interval <= 3600:
        raise InvalidValue("--interval", interval, "give seconds from 0.05 to 3600")
    if top < 1:
        raise InvalidValue("--top", top, "give a number of clients, at least 1")
    console = Console()
    with open_ledger(run, address, client, delta) as ledger:
        view = _Watch(ledger, client, delta, top)
        view.look()
        if once or view.over:
            console.print(watch_view(view.about, view.table, view.pulse, top))
            return
        if console.is_terminal:
            _redraw(view, console, interval)
        else:
            _lines(view, console, interval)


class _Watch:
    """A run as it was at the last look."""

    def __init__(self, ledger: Ledger, client: int | None, delta: float | None, top: int) -> None:
        self._ledger, self._client, self._delta, self.top = ledger, client, delta, top
        self.pulse = Pulse()
        self.about = ledger.about()
        self.table = self._accounts()

    @property
    def over(self) -> bool:
        return self.about["state"] in (*OVER, _OVER)

    def look(self) -> None:
        """Look again; a ledger that has ended with its run leaves what was seen last, and its folder may say how."""
        try:
            about = self._ledger.about()
            for event in self._ledger.events(self.pulse.seq):
                self.pulse.take(event)
            table = self._accounts()
        except LedgerGone:
            self.about = {**self.about, "state": _ending(self.about)}
            return
        self.about, self.table = about, table

    def _accounts(self) -> AccountTable:
        table = self._ledger.table(self._delta)
        return table if self._client is None else table.of(self._client)


def _ending(about: dict[str, Any]) -> str:
    """How a run ended whose ledger has gone, if its folder can be read from here."""
    content = read_run_file(Path(about.get("folder", "")))
    state = state_of(content) if content.get("run") == about.get("run") else "unknown"
    return state if state in OVER else _OVER


def _redraw(view: _Watch, console: Console, interval: float) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not view.over:
            live.update(watch_view(view.about, view.table, view.pulse, view.top), refresh=True)
            time.sleep(interval)
            view.look()
    console.print(watch_view(view.about, view.table, view.pulse, view.top))


def _lines(view: _Watch, console: Console, interval: float) -> None:
    told = -1
    while not view.over:
        if view.pulse.seq != told:
            told = view.pulse.seq
            console.print(watch_sentence(view.about, view.table, view.pulse), highlight=False, soft_wrap=True)
        time.sleep(interval)
        view.look()
    console.print(watch_view(view.about, view.table, view.pulse, view.top))
