"""What ``dualfed ledger`` prints. No claimed ε appears without that word, and every answer says what it is exact as of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..privacy.answers import AccountTable, Outlook, Spent
from ..privacy.grants import Charge
from .statement import account_name, epsilon_text, unit_name

_TROUBLES = 3
_RATE_ROUNDS = 40
_RIGHT = ("client", "releases", "ε", "budget", "δ", "round", "last round", "left", "rounds", "noise", "number")


def as_of(round: int, delta: float | None, claimed: bool) -> Text:
    """What an answer is exact as of."""
    when = "before the first charge" if round < 0 else f"as of the charges for round {round}"
    at = "" if delta is None else f", at δ = {delta:g}"
    remark = " (claimed): no ε here is proven for what the run did" if claimed else ""
    return Text(f"Exact {when}{at}{remark}.", style="dim")


def accounts(table: AccountTable) -> RenderableType:
    """All accounts."""
    view = table_of(f"Privacy loss per client, {_neighbours(table.unit)}", *_ACCOUNT_COLUMNS)
    for k in range(len(table.client)):
        status = str(table.status[k])
        view.add_row(
            str(table.client[k]),
            str(table.participations[k]),
            epsilon_text(float(table.epsilon[k]), status),
            budget_text(float(table.budget[k]), status),
            f"{table.delta:g}",
            account_name(str(table.account[k])),
            status,
        )
    return Group(view, as_of(table.round, table.delta, table.claimed))


_ACCOUNT_COLUMNS = ("client", "releases", "ε", "budget", "δ", "account", "status")


def one_client(spent: Spent) -> RenderableType:
    """One client with every bound that was computed."""
    title = (
        f"Client {spent.client}: {spent.releases} releases, budget {budget_text(spent.budget, spent.status)}, "
        f"{_neighbours([spent.unit])}"
    )
    view = table_of(title, "account", "ε", "δ", "status", "reported")
    every = {spent.account: spent.epsilon, **spent.alternatives}
    for name, epsilon in sorted(every.items(), key=lambda item: item[1]):
        reported = "yes" if name == spent.account else ""
        shown = epsilon_text(epsilon, spent.status, 5)
        view.add_row(account_name(name), shown, f"{spent.delta:g}", spent.status, reported)
    return Group(view, as_of(spent.round, spent.delta, spent.status == "claimed"))


def charges_view(charges: Iterable[Charge], round: int, claimed: bool) -> RenderableType:
    """The history, oldest first."""
    import datetime

    view = table_of("Charges", "when", "round", "client", "number", "event", "noise", "status", "voided")
    for charge in charges:
        event = charge.event
        view.add_row(
            datetime.datetime.fromtimestamp(charge.wall).strftime("%Y-%m-%d %H:%M:%S"),
            str(charge.round),
            str(charge.client),
            str(charge.number),
            event.kind,
            f"{event.noise_multiplier:.4g}",
            event.status,
            "yes" if charge.voided else "",
        )
    return Group(view, as_of(round, None, claimed))


def outlook_view(outlook: Outlook, asked: str) -> RenderableType:
    """What more rounds would come to."""
    view = table_of(f"What if: {asked}", "client", "noise", "rounds", "ε", "budget", "status")
    for k in range(len(outlook.client)):
        status = str(outlook.status[k])
        noise, rounds, epsilon = (float(values[k]) for values in (outlook.noise, outlook.rounds, outlook.epsilon))
        view.add_row(
            str(outlook.client[k]),
            "no release yet" if math.isnan(noise) else "no noise is enough" if math.isinf(noise) else f"{noise:.4g}",
            "–" if math.isnan(rounds) else "∞" if math.isinf(rounds) else f"{rounds:.0f}",
            "–" if math.isnan(epsilon) or math.isinf(rounds) else epsilon_text(epsilon, status),
            budget_text(float(outlook.budget[k]), status),
            status,
        )
    note = Text("Each client is taken to release in every one of these rounds, as it did in its last one.", style="dim")
    return Group(view, note, as_of(outlook.round, outlook.delta, outlook.claimed))


class Pulse:
    """What a run's events said so far."""

    def __init__(self) -> None:
        self.round = 0
        self.seq = 0
        self.scores: dict[str, Any] = {}
        self.refused: set[int] = set()
        self.lost = 0
        self.troubles: list[str] = []
        self._marks: list[tuple[float, int]] = []

    def take(self, event: dict[str, Any]) -> None:
        """Note one event."""
        self.seq = event["seq"] + 1
        t = event["round"]
        match event["kind"]:
            case "round":
                self.round = t
                self._marks = [*self._marks[-_RATE_ROUNDS:], (event["wall"], t)]
            case "resumed":
                self.round, self._marks = t, []
                self.troubles.append(f"resumed after round {t}")
            case "evaluated":
                self.scores = event
            case "refused":
                self.refused.add(event["client"])
                self.troubles.append(f"round {t}: client {event['client']} refused, {event['reason']}")
            case "lost":
                self.lost += 1
                self.troubles.append(f"round {t}: host {event['host']} lost")
            case "rebuilt":
                self.troubles.append(f"round {t}: host {event['host']} is back")
            case "failed":
                self.troubles.append(f"round {t}: host {event['host']} failed")
        self.troubles = self.troubles[-_TROUBLES:]

    @property
    def rate(self) -> float:
        """Rounds a second over the last rounds; NaN before there are two."""
        if len(self._marks) < 2:
            return math.nan
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / max(end - start, 1e-9)


def watch_view(about: dict[str, Any], table: AccountTable, pulse: Pulse, top: int) -> RenderableType:
    """A run as it stands, and the clients that have spent most."""
    order = np.argsort(-table.epsilon, kind="stable")[:top]
    columns = ("client", "ε", "budget", "left", "releases", "last round", "status")
    shown = f", the {len(order)} largest of {len(table.client)}" if len(order) < len(table.client) else ""
    view = table_of(f"Privacy loss, {_neighbours(table.unit)}{shown}", *columns)
    for k in order.tolist():
        status = str(table.status[k])
        view.add_row(
            str(table.client[k]),
            epsilon_text(float(table.epsilon[k]), status),
            budget_text(float(table.budget[k]), status),
            budget_text(float(table.remaining[k]), status),
            str(table.participations[k]),
            "–" if table.last_round[k] < 0 else str(table.last_round[k]),
            status,
        )
    troubles = [Text(line, style="yellow") for line in pulse.troubles]
    return Group(
        Text(watch_sentence(about, table, pulse)), *troubles, view, as_of(table.round, table.delta, table.claimed)
    )


def watch_sentence(about: dict[str, Any], table: AccountTable, pulse: Pulse) -> str:
    """The same in one line."""
    worst = int(np.argmax(table.epsilon))
    status = "claimed" if table.claimed else "guaranteed"
    parts = [
        f"{about.get('name', 'run')}: {about['state']}",
        f"round {pulse.round}" + (f"/{about['rounds']}" if "rounds" in about else ""),
        f"ε ≤ {epsilon_text(float(table.epsilon[worst]), status)} at δ = {table.delta:g}",
    ]
    if math.isfinite(table.budget[worst]):
        parts.append(f"budget {budget_text(float(table.budget[worst]), status)}")
    if "accuracy" in pulse.scores and pulse.scores["accuracy"] is not None:
        parts.append(f"accuracy {100 * pulse.scores['accuracy']:.1f} %")
    if about["state"] == "running" and not math.isnan(pulse.rate):
        parts.append(f"{pulse.rate:.1f} rounds/s")
    parts += [f"{len(pulse.refused)} clients refused"] if pulse.refused else []
    parts += [f"{pulse.lost} hosts lost"] if pulse.lost else []
    return " · ".join(parts)


def budget_text(budget: float, status: str) -> str:
    """A budget, or what is left of one; a dash where there is none, or where it was given at another δ."""
    if not math.isfinite(budget):
        return "–"
    return f"{budget:.4g} (claimed)" if status == "claimed" else f"{budget:.4g}"


def _neighbours(units: Iterable[str]) -> str:
    named = " and ".join(f"{unit_name(str(unit))}" for unit in dict.fromkeys(str(unit) for unit in units))
    return f"for {named}, replace-one" if named else "replace-one"


def table_of(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in _RIGHT else "left")
    return table
