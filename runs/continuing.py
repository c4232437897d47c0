"""Whether a run's folder is still the one that its journal speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidValue
from ..privacy.journal import Journal


def check_journal(folder: Path, run: str, expected: Mapping[str, Any], position: Mapping[str, Any] | None) -> None:
    """Refuse to go on with a journal that is missing, another run's, or older than the checkpoint.

    Args:
        run: the run's identity, as its folder states it.
        expected: the facts that the journal of the configuration would state.
        position: what the checkpoint remembers of its journal.

    Raises:
        InvalidValue: the journal is not this run's, or the configuration was changed since.
        JournalDamaged: it is missing or was changed.
    """
    path = folder / "ledger.sqlite"
    with Journal.open_readonly(path) as journal:
        if journal.meta.get("run") != run:
            raise InvalidValue("RUN", str(folder), "its ledger.sqlite belongs to another run; bring its own back")
        if position is not None and not journal.contains(position):
            cure = "its ledger.sqlite is older than its checkpoint, so charges are missing; bring the newer one back"
            raise InvalidValue("RUN", str(folder), cure)
        if journal.meta.get("plan") != expected["plan"]:
            cure = "its config.toml was changed since the run began; change it back, or start a new run"
            raise InvalidValue("RUN", str(folder), cure)
