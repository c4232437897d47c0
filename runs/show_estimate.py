"""Prints what a run would take."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .estimate import Estimate
from .statement import epsilon_text, unit_name


def show_estimate(found: Estimate, console: Console) -> None:
    """A table of actors, memory, time, messages and ε, and the warnings of the method."""
    table = Table(title="What this run would take", show_header=False, title_justify="left")
    where = (
        f"{found.actors} on {found.cpus} CPUs, and a coordinator and a ledger" if found.actors else "none: one process"
    )
    rows = {
        "clients": f"{found.clients}",
        "actors": where,
        "memory": f"{_bytes(found.memory_bytes)}, of it {_bytes(found.state_bytes)} for the states of clients that take part",
        "time": f"{1e3 * found.round_s:.1f} ms of the first actor a round, measured here; about {found.total_s:.0f} s for "
        f"{found.rounds} rounds and their messages besides",
        "network": f"{found.messages} messages a round of {_bytes(found.message_bytes)}",
        "privacy": f"ε = {epsilon_text(found.epsilon, found.status)} at δ = {found.delta:g} for {unit_name(found.unit)}, "
        "after all planned participations",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    for warning in found.warnings:
        console.print(f"warning: {warning}", style="yellow")


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
