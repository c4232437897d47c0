"""The closing summary of a run, and its comparison with the same run without privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .results import RunResult
from .statement import account_name, epsilon_text, privacy_sentence, seconds_text, size_sentence

_FEW_RECORDS = 1000


def show(result: RunResult, twin: RunResult | None, console: Console) -> None:
    """Print the summary of ``result``; ``twin`` is the same run without privacy."""
    parts: list[RenderableType] = [_facts(result)]
    if twin is not None:
        parts += [Text(), _comparison(result, twin)]
    parts += [Text(), *(Text(sentence) for sentence in sentences(result))]
    console.print(
        Panel(Group(*parts), title=f"{result.summary['name']}: {result.ending}", title_align="left", expand=False)
    )


def sentences(result: RunResult) -> list[str]:
    """What a reader of the numbers must know."""
    summary = result.summary
    records = summary["records"]
    private = summary["mode"] != "none"
    said = ["Privacy: " + _privacy(summary) + "."]
    if private and records["least"] < _FEW_RECORDS:
        said.append(size_sentence(records["least"], records["most"], summary["unit"]))
    said += ending_sentences(result)
    return [sentence for sentence in said if sentence]


def ending_sentences(result: RunResult) -> list[str]:
    """Who stopped because its budget is spent, and how a run that was stopped goes on."""
    summary, said = result.summary, []
    if summary["exhausted"]:
        clients = result.clients[result.clients["client"].isin(stopped_clients(result))]
        releases = clients["releases"] if len(clients) else result.clients["releases"]
        least, most = int(releases.min()), int(releases.max())
        after = f"{least}" if least == most else f"{least} to {most}"
        reason = "their participations are used up"
        if result.events["detail"].str.contains("would pass its budget").any():
            reason = f"their budget of ε = {epsilon_text(summary['budget'], summary['status'])} is spent"
        said.append(
            f"{summary['exhausted']} of {summary['clients']} clients stopped because {reason}, after {after} releases each."
        )
    if result.ending == "exhausted":
        said.append(
            f"Nobody could take part after round {summary['rounds_done']} of {summary['rounds']}; the run ended there."
        )
    if result.ending == "stopped":
        said.append(
            f"Stopped after round {summary['rounds_done']} of {summary['rounds']}. "
            f"Go on with: dualfed resume {result.folder}"
        )
    if "epsilon_planned" in summary:
        whole = f"that of the whole plan holds, ε = {epsilon_text(summary['epsilon_planned'], summary['status'])}"
        if np.isinf(summary["epsilon_planned"]):
            whole = "none is known, since clients that drop out begin anew; policy.cap or privacy.budget would bound it"
        said.append(
            f"The ε of the rounds done holds if the stop did not depend on what was released; if it did, {whole}."
        )
    return said


def stopped_clients(result: RunResult) -> list[int]:
    """The clients that the ledger refused, ascending."""
    events = result.events
    if not len(events):
        return []
    refused = events.loc[events["kind"] == "refused", "detail"]
    return sorted({int(detail.split(";")[0].removeprefix("client: ")) for detail in refused})


def _privacy(summary: dict[str, Any]) -> str:
    return privacy_sentence(
        summary["epsilon_max"],
        summary["delta"],
        status=summary["status"],
        unit=summary["unit"],
        account=summary["account"],
        noise=summary["noise"],
    )


def _facts(result: RunResult) -> Table:
    summary = result.summary
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    records = summary["records"]
    table.add_row("method", f"{summary['method']} on {summary['data']}, {summary['problem']['kind']}")
    table.add_row(
        "clients", f"{summary['clients']} with {records['least']} to {records['most']} records, on {_engine(summary)}"
    )
    if "accuracy" in summary:
        table.add_row("test accuracy", f"{100 * summary['accuracy']:.1f} %")
    table.add_row("test loss", f"{summary['loss']:.4f}")
    for name, value in _over_a_graph(result).items():
        table.add_row(name, value)
    table.add_row("ε of budget", _spent(summary))
    if summary["mode"] != "none":
        table.add_row("account", f"{account_name(summary['account'])}, {summary['status']}, per {summary['unit']}")
    if "epsilon_zcdp" in summary and summary["unit"] == "client":
        table.add_row(
            "by zCDP", f"ε = {epsilon_text(summary['epsilon_zcdp'], summary['status'])}, the classic conversion"
        )
    if summary["bytes_down"]:
        table.add_row("sent", f"{_bytes(summary['bytes_up'])} up, {_bytes(summary['bytes_down'])} down")
    else:
        table.add_row("sent", f"{_bytes(summary['bytes_up'])} between neighbours")
    table.add_row("rounds", f"{summary['rounds_done']} of {summary['rounds']} in {summary['seconds']:.1f} s")
    for name, value in _time(summary).items():
        table.add_row(name, value)
    table.add_row("folder", Text(str(result.folder), overflow="fold"))
    return table


def _time(summary: dict[str, Any]) -> dict[str, str]:
    """Simulated time, stragglers and errors, where there were any."""
    said: dict[str, str] = {}
    if "simulated_s" in summary:
        said["simulated time"] = f"{seconds_text(summary['simulated_s'])}, policy {summary['policy']}"
        if any(summary["stragglers"].values()):
            charged = [
                f"{number} {name}" for name, number in summary["stragglers"].items() if number and name != "offline"
            ]
            counts = [f"{', '.join(charged)} (charged all the same)"] if charged else []
            away = summary["stragglers"]["offline"]
            said["stragglers"] = ", ".join(counts + ([f"{away} times offline"] if away else []))
    if (target := summary.get("target")) is not None:
        when = (
            "not reached" if target["seconds"] is None else f"reached after {seconds_text(target['seconds'])} simulated"
        )
        said[f"{100 * target['accuracy']:g} % accuracy"] = when
    if summary.get("errors"):
        said["errors"] = f"{summary['errors']} of clients; their work did not count and was charged"
    return said


def _over_a_graph(result: RunResult) -> dict[str, str]:
    """How the clients' own models do, and what their increments had in common."""
    said: dict[str, str] = {}
    if "accuracy_clients" in result.metrics:
        last = result.metrics.iloc[-1]
        mean, worst, best = (100 * float(last[f"accuracy_{which}"]) for which in ("clients", "worst", "best"))
        said["clients' models"] = f"{mean:.1f} % in the mean, {worst:.1f} % the worst, {best:.1f} % the best"
    if "common_share" in result.diagnostics and len(result.diagnostics) > 1:
        shares = result.diagnostics.iloc[1:]
        clipped = 100 * float(shares["clipped_share"].mean())
        r = float(shares["common_share"].mean())
        said["increments"] = f"{clipped:.0f} % clipped, common share r = {r:.2f} (diagnostics, not private)"
    return said


def _engine(summary: dict[str, Any]) -> str:
    actors = f"{summary['actors']} actor{'' if summary['actors'] == 1 else 's'}"
    return actors if summary["engine"] == "ray" else "this process (engine = inline)"


def _spent(summary: dict[str, Any]) -> str:
    status, delta = summary["status"], summary["delta"]
    if summary["mode"] == "none":
        return epsilon_text(summary["epsilon_max"], status)
    budget = "no budget" if summary["budget"] is None else f"of {epsilon_text(summary['budget'], status)}"
    most, median = epsilon_text(summary["epsilon_max"], status), epsilon_text(summary["epsilon_median"], status)
    return f"{most} {budget} at δ = {delta:g} (largest of all clients; median {median})"


def _comparison(result: RunResult, twin: RunResult) -> Table:
    table = Table(title="The same run with and without privacy", title_justify="left", title_style="bold")
    table.add_column("run")
    table.add_column("test accuracy", justify="right")
    table.add_column("test loss", justify="right")
    table.add_column("ε", justify="right")
    for label, one in ((str(result.summary["name"]), result), ("without privacy", twin)):
        accuracy = f"{100 * one.summary['accuracy']:.1f} %" if "accuracy" in one.summary else "–"
        spent = epsilon_text(one.summary["epsilon_max"], one.summary["status"])
        table.add_row(label, accuracy, f"{one.summary['loss']:.4f}", spent)
    return table


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{count} B"
