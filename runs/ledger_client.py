"""The ledger of a run, for whoever asks: while the run goes on, after its end, and after a crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, overload

from ..actors.ledger_desk import LedgerDesk, LedgerGone
from ..actors.run_file import read_run_file
from ..privacy.answers import AccountTable, Left, Outlook, Spent, Summary
from .folder import find_run

if TYPE_CHECKING:
    import pandas as pd

    from ..privacy.grants import Charge

_STATE_S = 1.0
OVER = ("completed", "stopped", "exhausted", "failed", "lost")
"""The states in which a run does not go on by itself."""


class Source(Protocol):
    """Where answers come from: a folder, or an actor on a cluster."""

    def ask(self, question: str, **arguments: Any) -> Any: ...
    def close(self) -> None: ...


class Ledger:
    """Asks a run's ledger. Made by ``Ledger.connect``; a context manager. Safe to share among threads.

    Every answer states the ``round`` and the ``delta`` that it is exact as of. Asking changes nothing of the run.
    ``aio`` gives the same questions as coroutines.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.aio = AsyncLedger(self)

    @classmethod
    def connect(cls, run: Path | str, address: str | None = None, *, load: float = 0.1) -> Ledger:
        """The ledger of ``run``.

        Args:
            run: the run's folder, or its name (the newest ``dualfed-out/NAME-k``). With ``address``: a folder, the id
                that ``run.json`` states, or the name of a run that goes on there.
            address: None reads the journal in the folder. ``HOST:PORT`` asks the ledger's actor on that cluster, from
                one of its nodes; ``ray://HOST:PORT`` from anywhere; ``"auto"`` on the cluster that runs here.
            load: the share of one core that keeping up may take: after an answer that took long to compute, the next
                ones may be exact as of the same round for a while. 1 always takes in the newest charge.

        Raises:
            InvalidValue: no such run, nothing was charged there, or nobody answers at ``address``.
            JournalDamaged: the journal was changed.
        """
        if address is None:
            return cls(LedgerDesk(find_run(run), load))
        from ..actors.ledger_link import LedgerLink

        content = read_run_file(Path(run))
        auth = (content.get("cluster") or {}).get("auth")
        return cls(LedgerLink(address, str(content.get("run", run)), auth))

    def about(self) -> dict[str, Any]:
        """What ``run.json`` says of the run, with ``state`` (running, completed, stopped, exhausted, failed, lost or
        unknown), ``round`` and ``transaction``."""
        return dict(self._source.ask("about"))

    @property
    def round(self) -> int:
        """The round of the last reservation: what an answer is exact as of now; −1 before the first."""
        return int(self.about()["round"])

    @property
    def state(self) -> str:
        """How the run stands."""
        return str(self.about()["state"])

    @overload
    def epsilon(self, client: int, delta: float | None = None, *, every: bool = False) -> Spent: ...
    @overload
    def epsilon(self, client: None = None, delta: float | None = None, *, every: bool = False) -> Summary: ...
    def epsilon(self, client: int | None = None, delta: float | None = None, *, every: bool = False) -> Spent | Summary:
        """What one client has spent, or the largest loss of all. At ``delta``, by default the run's own.

        ``every`` computes the bounds of one client that are slow and hardly ever the smallest, too.
        Raises InvalidValue for an unknown client or δ out of range.
        """
        if client is None:
            return self.summary(delta)
        spent: Spent = self._source.ask("spent", client=client, delta=delta, every=every)
        return spent

    def summary(self, delta: float | None = None) -> Summary:
        """The loss of the run: the largest ε, whose it is, and the median."""
        summary: Summary = self._source.ask("summary", delta=delta)
        return summary

    def table(self, delta: float | None = None) -> AccountTable:
        """What every client has spent, as arrays."""
        table: AccountTable = self._source.ask("table", delta=delta)
        return table

    def frame(self, delta: float | None = None) -> pd.DataFrame:
        """The same as a pandas frame; ``frame.attrs`` has round, transaction and delta."""
        import pandas as pd

        table = self.table(delta)
        frame = pd.DataFrame(table.columns())
        frame.attrs |= {"round": table.round, "transaction": table.transaction, "delta": table.delta}
        return frame

    def remaining(self, client: int) -> Left:
        """What one client has left of its budget, and how many more rounds like its last one that allows."""
        left: Left = self._source.ask("remaining", client=client)
        return left

    def history(self, client: int | None = None, since: int = -1) -> list[Charge]:
        """Every charge after transaction ``since``, of one client or of all, in order."""
        history: list[Charge] = self._source.ask("history", client=client, since=since)
        return history

    def what_if(
        self,
        rounds: int | None = None,
        noise: float | None = None,
        budget: float | None = None,
        client: int | None = None,
        delta: float | None = None,
    ) -> Outlook:
        """What more rounds would come to, for clients that take part in all of them.

        ``rounds`` gives ε after them, at the present noise or at ``noise``. ``rounds`` and ``budget`` give the noise that
        keeps it. Without ``rounds``: how many fit into ``budget`` or each client's own, at the present noise or at
        ``noise``. Raises InvalidValue for values out of range and for all three together.
        """
        answer: Outlook = self._source.ask(
            "what_if", rounds=rounds, noise=noise, budget=budget, client=client, delta=delta
        )
        return answer

    def events(self, since: int = 0, *, private: bool = False) -> list[dict[str, Any]]:
        """What happened in the run, from event number ``since`` on: ``seq``, ``wall``, ``kind``, ``round`` and more.

        ``private`` adds the diagnostics of the simulation, computed from private data and marked so.
        """
        events: list[dict[str, Any]] = self._source.ask("events", since=since, private=private)
        return events

    def charges(self, since: int = -1) -> list[dict[str, Any]]:
        """The journal's entries after transaction ``since`` as events of the kinds ``charged`` and ``voided``."""
        charges: list[dict[str, Any]] = self._source.ask("charges", since=since)
        return charges

    def subscribe(
        self, since: int | None = None, *, charges: bool = False, private: bool = False, poll_s: float = 0.2
    ) -> Iterator[dict[str, Any]]:
        """Events as they happen, until the run ends, stops or is lost.

        Args:
            since: the first event's number; None begins with what comes next, 0 with the first of the run.
            charges: also what the journal takes in, with ``transaction`` in place of ``seq``.
            private: also the diagnostics of the simulation.
            poll_s: how often to look.
        """
        watch = _Subscription(self, since, charges, private)
        while True:
            over = watch.over()
            fresh = watch.fresh()
            yield from fresh
            if over and not fresh:
                return
            if not fresh:
                time.sleep(poll_s)

    def close(self) -> None:
        """Let go of the journal or the cluster."""
        self._source.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class AsyncLedger:
    """The questions of ``Ledger`` as coroutines, each answered in a thread: ``await ledger.aio.epsilon(17)``."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def about(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._ledger.about)

    @overload
    async def epsilon(self, client: int, delta: float | None = None, *, every: bool = False) -> Spent: ...
    @overload
    async def epsilon(self, client: None = None, delta: float | None = None, *, every: bool = False) -> Summary: ...
    async def epsilon(
        self, client: int | None = None, delta: float | None = None, *, every: bool = False
    ) -> Spent | Summary:
        if client is None:
            return await self.summary(delta)
        return await asyncio.to_thread(self._ledger.epsilon, client, delta, every=every)

    async def summary(self, delta: float | None = None) -> Summary:
        return await asyncio.to_thread(self._ledger.summary, delta)

    async def table(self, delta: float | None = None) -> AccountTable:
        return await asyncio.to_thread(self._ledger.table, delta)

    async def remaining(self, client: int) -> Left:
        return await asyncio.to_thread(self._ledger.remaining, client)

    async def history(self, client: int | None = None, since: int = -1) -> list[Charge]:
        return await asyncio.to_thread(self._ledger.history, client, since)

    async def what_if(
        self,
        rounds: int | None = None,
        noise: float | None = None,
        budget: float | None = None,
        client: int | None = None,
        delta: float | None = None,
    ) -> Outlook:
        return await asyncio.to_thread(self._ledger.what_if, rounds, noise, budget, client, delta)

    async def events(self, since: int = 0, *, private: bool = False) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._ledger.events, since, private=private)

    async def charges(self, since: int = -1) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._ledger.charges, since)

    async def subscribe(
        self, since: int | None = None, *, charges: bool = False, private: bool = False, poll_s: float = 0.2
    ) -> AsyncIterator[dict[str, Any]]:
        """``Ledger.subscribe`` as an asynchronous iterator."""
        watch = await asyncio.to_thread(_Subscription, self._ledger, since, charges, private)
        while True:
            over = await asyncio.to_thread(watch.over)
            fresh = await asyncio.to_thread(watch.fresh)
            for event in fresh:
                yield event
            if over and not fresh:
                return
            if not fresh:
                await asyncio.sleep(poll_s)


class _Subscription:
    """Where one subscriber stands."""

    def __init__(self, ledger: Ledger, since: int | None, charges: bool, private: bool) -> None:
        self._ledger, self._charges, self._private = ledger, charges, private
        about = ledger.about()
        self._next = about["events"] if since is None else since
        self._transaction = about["transaction"] if since is None else -1
        self._asked, self._over = time.monotonic(), about["state"] in OVER

    def over(self) -> bool:
        """Whether the run had ended when it was last looked at, which is about once a second."""
        if not self._over and time.monotonic() - self._asked >= _STATE_S:
            self._asked = time.monotonic()
            try:
                self._over = self._ledger.state in OVER
            except LedgerGone:
                self._over = True
        return self._over

    def fresh(self) -> list[dict[str, Any]]:
        """What has come since the last call, oldest first."""
        try:
            found = self._ledger.events(self._next, private=True)
            entries = self._ledger.charges(self._transaction) if self._charges else []
        except LedgerGone:
            self._over = True
            return []
        if found:
            self._next = found[-1]["seq"] + 1
        if entries:
            self._transaction = entries[-1]["transaction"]
        shown = [event for event in found if self._private or not event.get("private")]
        return sorted(shown + entries, key=lambda event: float(event["wall"]))
