"""The page of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...errors import DualfedError, InvalidValue
from ..folder import existing_folder
from ..plots import plot
from ..results import RunResult, load_result
from ..statement import account_name, epsilon_text, privacy_sentence
from ..summary import sentences, stopped_clients
from .page import Block, Code, Page, Section, Table, Text, facts, picture, table, write_page
from .words import MEANINGS

TWIN = "without-privacy"
_CAPTIONS = {
    "accuracy-rounds": "Test accuracy of the released model, by round.",
    "accuracy-epsilon": "Test accuracy of the released model, by the ε spent.",
    "loss-rounds": "Test loss of the released model, by round.",
    "loss-epsilon": "Test loss of the released model, by the ε spent.",
    "objective-rounds": "Objective, by round. Computed from private data: a diagnostic of the simulation, not a release.",
    "objective-epsilon": "Objective, by ε. Computed from private data: a diagnostic of the simulation, not a release.",
}


def report(folder: Path | str) -> Path:
    """Write the page of a run, ``FOLDER/report.html``.

    Raises:
        InvalidValue: there is no run, or none that is evaluated, or the page cannot be written.
    """
    place = Path(folder)
    result = load_result(existing_folder(place))
    if not len(result.metrics) or not result.summary:
        raise InvalidValue("RUN", str(place), "has not ended yet; go on with `dualfed resume`")
    if not len(result.clients):
        raise InvalidValue("RUN", str(place), "clients.parquet is missing; restore it from a copy")
    twin = load_result(place / TWIN) if (place / TWIN / "summary.json").exists() else None
    return write_page(run_page(result, twin), place / "report.html")


def run_page(result: RunResult, twin: RunResult | None = None) -> Page:
    """All that a reader of one run needs."""
    summary = result.summary
    assert result.folder is not None
    subtitle = (
        f"{summary['method']} on {summary['data']}, {summary['clients']} clients, {summary['rounds_done']} of "
        f"{summary['rounds']} rounds; {_ENDINGS.get(result.ending, result.ending)}"
    )
    sections = [
        Section("Result", _result(result, twin)),
        Section("Privacy", privacy_blocks(result)),
        Section("Figures", _figures(result.folder)),
        Section("Events", _events(result)),
        Section("Diagnostics, not private", _diagnostics(result)),
        Section("Configuration and environment", setting_blocks(result)),
    ]
    return Page(f"Run {summary['name']}", subtitle, sections)


_ENDINGS = {
    "completed": "completed",
    "exhausted": "ended because nobody could take part any more",
    "stopped": "stopped before its end",
}


def _result(result: RunResult, twin: RunResult | None) -> list[Block]:
    rows = []
    for name, one in (("this run", result), *((("the same without privacy", twin),) if twin is not None else ())):
        summary = one.summary
        rows.append(
            {
                "": name,
                "test accuracy (%)": f"{100 * summary['accuracy']:.1f}" if "accuracy" in summary else "–",
                "test loss": f"{summary['loss']:.4f}",
                "largest ε": epsilon_text(summary["epsilon_max"], summary["status"])
                + ("" if summary["status"] == "claimed" or summary["mode"] == "none" else " (guaranteed)"),
                "rounds": str(summary["rounds_done"]),
                "bytes up": f"{summary['bytes_up']:,}",
                "bytes down": f"{summary['bytes_down']:,}",
                "seconds": f"{summary['seconds']:.1f}",
            }
        )
    blocks: list[Block] = [table(pd.DataFrame(rows))]
    last = result.metrics.iloc[-1]
    told = {MEANINGS[name]: f"{last[name]:.6g}" for name in result.metrics.columns if name in MEANINGS}
    if told:
        blocks.append(facts(told, ("at the end", "value")))
    return blocks


def privacy_blocks(result: RunResult) -> list[Block]:
    """What the run's ε says, for whom it was spent, and what it rests on."""
    summary = result.summary
    sentence, *others = sentences(result)
    tone: Any = "warning" if summary["status"] == "claimed" or summary["mode"] == "none" else "statement"
    blocks: list[Block] = [Text(_first_upper(sentence.removeprefix("Privacy: ")), tone)]
    if summary["status"] == "claimed":
        blocks.append(Text(f"Claimed, because: {why_claimed(result)}", "warning"))
    blocks += [Text(each) for each in others]
    if summary["mode"] == "none":
        return blocks
    problem = summary["problem"]
    rests = {
        "neighbouring data sets": f"differ in {'one record' if summary['unit'] == 'record' else 'one whole client'}, replaced",
        "account": account_name(summary["account"]),
        "δ": f"{summary['delta']:g}",
        "budget of a client": "none"
        if summary["budget"] is None
        else epsilon_text(summary["budget"], summary["status"]),
        "noise multipliers": " to ".join(f"{value:.4g}" for value in dict.fromkeys(summary["noise_multipliers"])),
        "bound on a record's gradient": problem.get("G"),
        "bound on a record's norm": problem.get("record_norm"),
        "scaling of features": summary["scaling"],
        "noise": "drawn by a key made from the seed, so that the simulation can be repeated"
        if summary["noise"] == "seeded"
        else "drawn by a secret key that the folder does not hold",
    }
    blocks += [facts(rests, ("it rests on", "value")), _clients(result)]
    return blocks


def why_claimed(result: RunResult) -> str:
    """Why a method's ε is not a guarantee, in the method's own words where it has some."""
    from ...algorithms.registry import make_method

    try:
        method = make_method(result.config["method"])
    except DualfedError:  # the user's own file is not there any more
        return "the method says so of itself."
    return str(getattr(method, "claimed_because", "")) or (
        "what its clients keep between rounds is not a function of what they released, so the bound on one round's release "
        "does not bound what the round reveals."
    )


def _clients(result: RunResult) -> Table:
    clients = result.clients
    kept = clients.nlargest(50, "epsilon").sort_values("client") if len(clients) > 50 else clients
    status = result.summary["status"]
    rows = pd.DataFrame(
        {
            "client": kept["client"],
            "records": kept["records"],
            "releases": kept["releases"],
            "noise multiplier": [f"{value:.4g}" for value in kept["noise_multiplier"]],
            "ε": [
                epsilon_text(value, status) + ("" if status == "claimed" else " (guaranteed)")
                for value in kept["epsilon"]
            ],
            "budget": ["–" if np.isinf(value) else epsilon_text(value, status) for value in kept["budget"]],
        }
    )
    caption = "Clients" if len(kept) == len(clients) else f"The 50 clients of {len(clients)} that spent most"
    return table(rows, caption)


def _figures(folder: Path) -> list[Block]:
    if not list((folder / "plots").glob("*.svg")):
        plot(folder)
    found = sorted((folder / "plots").glob("*.svg"))
    return [picture(path, _CAPTIONS.get(path.stem, path.stem.replace("-", " "))) for path in found]


def _events(result: RunResult) -> list[Block]:
    events = result.events
    told = events[~events["kind"].isin(["started", "ended", "prepared"])] if len(events) else events
    if not len(told):
        return [Text("No client was refused, lost or failed.")]
    blocks: list[Block] = []
    if stopped := stopped_clients(result):
        shown = ", ".join(str(client) for client in stopped[:30]) + (" …" if len(stopped) > 30 else "")
        blocks.append(Text(f"The ledger refused {len(stopped)} clients, whose budget was spent: {shown}."))
    counts = told.groupby("kind").size().reset_index(name="times")
    blocks.append(table(counts.rename(columns={"kind": "event"})))
    blocks.append(table(told.head(40), "The first 40" if len(told) > 40 else ""))
    return blocks


def _diagnostics(result: RunResult) -> list[Block]:
    if not len(result.diagnostics):
        return [Text("None were recorded.")]
    frame = result.diagnostics
    chosen = np.unique(np.linspace(0, len(frame) - 1, min(len(frame), 12)).round().astype(int))
    said = (
        "Computed from private data for whoever simulates. A real federation would not see these numbers, and no ε accounts "
        "for them."
    )
    return [Text(said, "warning"), table(frame.iloc[chosen])]


def setting_blocks(result: RunResult) -> list[Block]:
    """The resolved configuration, and where it ran."""
    assert result.folder is not None
    environment = json.loads((result.folder / "environment.json").read_text())
    versions = environment.pop("versions", {})
    told = {name: value for name, value in environment.items() if isinstance(value, str | int) and name != "run"}
    return [
        Code(
            (result.folder / "config.toml").read_text(encoding="utf-8"), "Configuration, with every default filled in"
        ),
        facts({**told, **{f"{name}, version": value for name, value in versions.items()}}, ("environment", "")),
    ]


def statement(result: RunResult) -> str:
    """The run's ε in one sentence."""
    summary = result.summary
    words = privacy_sentence(
        summary["epsilon_max"],
        summary["delta"],
        status=summary["status"],
        unit=summary["unit"],
        account=summary["account"],
        noise=summary["noise"],
    )
    return f"{_first_upper(words)}."


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
