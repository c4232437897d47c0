"""Accounts and charges of a run for other programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from ..actors.feed import plain
from ..errors import InvalidValue
from .ledger_client import Ledger
from .ledger_commands import open_ledger
from .recorder import write_frame


def export(
    run: str,
    address: str | None,
    client: int | None,
    delta: float | None,
    format: str,
    out: Path | None,
    charges: bool,
) -> None:
    """Write the accounts of a run, or its charges, to ``out`` or the screen, each row with the round and δ it holds for.

    Raises InvalidValue: parquet without a file, or a file that cannot be written.
    """
    if format == "parquet" and out is None:
        raise InvalidValue("--out", None, "parquet is no text; name a file to write it to")
    with open_ledger(run, address, client, delta) as ledger:
        frame = charge_frame(ledger, client) if charges else account_frame(ledger, client, delta)
    try:
        if format == "parquet":
            assert out is not None
            write_frame(frame, out, {str(name): str(value) for name, value in frame.attrs.items()})
            return
        text = frame.to_csv(index=False) if format == "csv" else _json(frame, "charges" if charges else "accounts")
        if out is None:
            sys.stdout.write(text)
        else:
            out.write_text(text)
    except OSError as error:
        raise InvalidValue("--out", str(out), f"cannot be written: {error.strerror}") from None


def account_frame(ledger: Ledger, client: int | None, delta: float | None) -> pd.DataFrame:
    """One row an account, as ``Ledger.frame``, with the columns round and delta."""
    frame = ledger.frame(delta)
    rows = frame if client is None else frame[frame["client"] == client]
    return rows.assign(round=frame.attrs["round"], delta=frame.attrs["delta"])


def charge_frame(ledger: Ledger, client: int | None) -> pd.DataFrame:
    """One row a charge; ``event`` is its description as JSON."""
    round = ledger.round
    rows = [
        {
            "round": charge.round,
            "client": charge.client,
            "number": charge.number,
            "wall": charge.wall,
            "voided": charge.voided,
            "kind": charge.event.kind,
            "noise_multiplier": charge.event.noise_multiplier,
            "unit": charge.event.unit,
            "status": charge.event.status,
            "event": charge.event.to_json(),
        }
        for charge in ledger.history(client)
    ]
    frame = pd.DataFrame(rows)
    frame.attrs["round"] = round
    return frame


def _json(frame: pd.DataFrame, what: str) -> str:
    content: dict[str, Any] = {
        **{str(name): value for name, value in frame.attrs.items()},
        what: frame.to_dict("records"),
    }
    return json.dumps(plain(content), indent=2, allow_nan=False) + "\n"
