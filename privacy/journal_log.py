"""The write-ahead log beside a journal: how much is in it, and its end."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path


def log_size(path: Path) -> int:
    """Bytes in the log beside the journal at ``path``; 0 where there is none."""
    log = path.with_name(f"{path.name}-wal")
    return log.stat().st_size if log.exists() else 0


def sweep(path: Path | str) -> None:
    """Take away the empty log and its index that readers leave beside a journal whose writer has ended.

    SQLite removes them only where the last connection to close is one that may write. For callers who keep writers out: were
    one killed between the look at the log and that close, its log would be folded in for it, and the file be refused.
    """
    path = Path(path)
    if path.is_file() and path.with_name(f"{path.name}-wal").exists() and not log_size(path):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=0)) as db:
            db.execute("PRAGMA user_version").fetchone()
