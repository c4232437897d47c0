"""The durable record of every charge: an append-only SQLite file whose transactions form a hash chain.

A transaction is on disk (WAL, synchronous=FULL) before the call that wrote it returns. Rows are never changed: a void
is a row that names a charge. Each transaction's digest covers the one before it and all of its own rows, and the head
is kept beside them, so that an edited, shortened or reordered file is noticed when it is opened. While a process writes,
the file says so; without a write-ahead log beside it, the newest charges were lost with the log, and that is noticed too.
The chain guards against accidents; who can rewrite the whole file can also recompute it.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from .events import Event, event_from_json
from .journal_entries import JournalDamaged as JournalDamaged
from .journal_entries import JournalUnwritable as JournalUnwritable
from .journal_entries import Kind, Replay, Rows, chain, genesis
from .journal_entries import Transaction as Transaction
from .journal_log import log_size

T = TypeVar("T")

SCHEMA_VERSION = 1
_BUSY_S = 10.0
_BEING_WRITTEN = 1
"""The database's ``user_version`` from the first write of a process to its orderly end."""
_REGISTERED = '{"events":'
_TABLES = """
CREATE TABLE schema (version INTEGER NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE head (seq INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE events (id INTEGER PRIMARY KEY, digest TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE transactions (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, round INTEGER NOT NULL, wall REAL NOT NULL,
                           text TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE charges (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, client INTEGER NOT NULL, number INTEGER NOT NULL,
                      event INTEGER NOT NULL);
CREATE INDEX charges_by_transaction ON charges (seq);
CREATE TABLE voids (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, client INTEGER NOT NULL, number INTEGER NOT NULL,
                    event INTEGER NOT NULL);
"""
_TABLE_OF: dict[str, str] = {"reserve": "charges", "void": "voids"}


def _end(connection: sqlite3.Connection, readonly: bool) -> None:
    with contextlib.suppress(sqlite3.Error):  # the disk is full: then the log stays beside the file
        if not readonly:
            connection.execute("PRAGMA user_version = 0")
    connection.close()


class Journal:
    """An open journal. One process writes it; any number may read it meanwhile.

    ``meta`` holds run-level facts as JSON values, fixed when the journal is created.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, readonly: bool) -> None:
        self.path = path
        self.readonly = readonly
        self._db = connection
        self._seq, self._digest = -1, b""
        self._ids: dict[str, int] = {}
        self.meta: dict[str, Any] = {}
        # Also where a program ends without closing: SQLite folds the log in then, so the file must say so too.
        self._end = weakref.finalize(self, _end, connection, readonly)

    @classmethod
    def open(cls, path: Path | str, meta: Mapping[str, Any], replay: Replay | None = None) -> Journal:
        """Create the journal with these facts, or open the one that is there (whose own facts then stand).

        ``replay`` is called with each transaction that the file holds, in order, as the chain is checked.

        Raises:
            JournalDamaged: the file is no journal, has another version, or was changed.
            JournalUnwritable: it cannot be written.
        """
        path = Path(path)
        existed = path.exists()
        try:
            db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise JournalUnwritable(path, str(error)) from None
        journal = cls(path, db, readonly=False)
        try:
            journal._guard(lambda: journal._prepare(meta, existed))
            journal._load(replay)
        except BaseException:
            db.close()
            raise
        return journal

    @classmethod
    def open_readonly(cls, path: Path | str, replay: Replay | None = None) -> Journal:
        """Open an existing journal to read it, also while another process writes. Raises JournalDamaged."""
        path = Path(path)
        if not path.is_file():
            raise JournalDamaged(path, "there is no such file")
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        db = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            # A folder where not even the shared-memory file can be made: then nobody writes there either.
            db.close()
            if log_size(path):
                raise JournalUnwritable(path, f"{error}, and its write-ahead log holds charges") from None
            db = sqlite3.connect(uri + "&immutable=1", uri=True, isolation_level=None, check_same_thread=False)
        except sqlite3.DatabaseError as error:
            db.close()
            raise JournalDamaged(path, str(error)) from None
        journal = cls(path, db, readonly=True)
        try:
            journal._check_log()
            journal._load(replay)
        except BaseException:
            db.close()
            raise
        return journal

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End orderly: the write-ahead log is folded into the file."""
        self._end()

    @property
    def last_seq(self) -> int:
        """The number of the last transaction known here; −1 before the first."""
        return self._seq

    @property
    def position(self) -> dict[str, Any]:
        """The last transaction known here and its chain digest: what a checkpoint remembers of its journal."""
        return {"seq": self._seq, "digest": self._digest.hex()}

    def contains(self, position: Mapping[str, Any]) -> bool:
        """Whether the journal that gave this ``position`` is this one, at that point or later."""
        if position["seq"] < 0:
            return True
        found = list(self._read(f"SELECT digest FROM transactions WHERE seq = {int(position['seq'])}"))
        return len(found) == 1 and bytes(found[0][0]).hex() == position["digest"]

    def events(self) -> list[Event]:
        """The registered events; an event's position is its id. Raises JournalDamaged."""
        found: list[Event] = []
        for id, digest, text in self._read("SELECT id, digest, json FROM events ORDER BY id"):
            try:
                event = event_from_json(text)
            except (ValueError, TypeError) as error:
                raise JournalDamaged(self.path, f"event {id} is unreadable ({error})") from None
            if id != len(found) or event.digest != digest:
                raise JournalDamaged(self.path, f"event {id} was changed")
            found.append(event)
        return found

    def register(self, events: Sequence[Event]) -> list[int]:
        """The ids of the events, writing those that are new as one note. Raises JournalUnwritable."""
        new = [event for event in dict.fromkeys(events) if event.digest not in self._ids]
        if new:
            first = len(self._ids)
            rows = [(first + k, event.digest, event.to_json()) for k, event in enumerate(new)]
            text = _REGISTERED + json.dumps([[id, digest] for id, digest, _ in rows], separators=(",", ":")) + "}"
            self._append("note", -1, text, np.empty((0, 3), np.int64), events=rows)
            self._ids.update((digest, id) for id, digest, _ in rows)
        return [self._ids[event.digest] for event in events]

    def append(self, kind: Kind, round: int, rows: Rows, text: str = "") -> int:
        """Write one transaction, on disk when this returns, and return its number.

        Args:
            kind: ``"reserve"`` charges ``rows``, ``"void"`` takes charges back, ``"note"`` records ``text`` alone.
            round: the round it belongs to.
            rows: (client, grant number, event id), shape [n, 3].

        Raises:
            JournalUnwritable: disk full, read-only, or another process wrote meanwhile; nothing was written.
        """
        if text.startswith(_REGISTERED):
            raise ValueError(f"a note may not begin with {_REGISTERED!r}")
        return self._append(kind, round, text, rows)

    def charges_of(self, seq: int) -> Rows:
        """The (client, grant number, event id) of the charges of one transaction, shape [n, 3]."""
        rows = list(self._read("SELECT client, number, event FROM charges WHERE seq = ? ORDER BY id", (seq,)))
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def last_charges(self) -> list[tuple[int, int, int]]:
        """(client, round, transaction) of each client's last charge that was not voided. Reads the whole table."""
        query = """
            SELECT charges.client, transactions.round, max(charges.seq)
            FROM charges JOIN transactions ON transactions.seq = charges.seq
            LEFT JOIN voids ON voids.client = charges.client AND voids.number = charges.number
            WHERE voids.client IS NULL AND charges.seq <= ? GROUP BY charges.client"""
        return [(int(client), int(round), int(seq)) for client, round, seq in self._read(query, (self._seq,))]

    def charges_since(self, seq: int, client: int | None) -> Iterator[tuple[int, int, int, int, float, bool]]:
        """(round, client, grant number, event id, wall, voided) of the charges after transaction ``seq``, in order."""
        query = """
            SELECT transactions.round, charges.client, charges.number, charges.event, transactions.wall,
                   voids.client IS NOT NULL
            FROM charges JOIN transactions ON transactions.seq = charges.seq
            LEFT JOIN voids ON voids.client = charges.client AND voids.number = charges.number AND voids.seq <= ?2
            WHERE charges.seq > ?1 AND charges.seq <= ?2 AND (?3 IS NULL OR charges.client = ?3) ORDER BY charges.id"""
        for round, who, number, event, wall, voided in self._read(query, (seq, self._seq, client)):
            yield int(round), int(who), int(number), int(event), float(wall), bool(voided)

    def transactions(self) -> Iterator[Transaction]:
        """All transactions in order up to the newest, checked against the chain as they are read.

        A reader sees what another process has added since. Raises JournalDamaged naming the first bad transaction.
        """
        yield from self._scan()

    def fresh(self) -> Iterator[Transaction]:
        """The transactions that another process has added since this journal was read, in order, checked like all.

        Raises JournalDamaged, also where the journal has become shorter.
        """
        if list(self._read("SELECT seq, digest FROM head")) != [(self._seq, self._digest)]:
            yield from self._scan(self._seq, self._digest, adopt=True)

    def after(self, seq: int) -> Iterator[Transaction]:
        """The transactions after number ``seq`` up to the last that is known here, checked against the chain."""
        found = list(self._read("SELECT digest FROM transactions WHERE seq = ?", (seq,))) if seq >= 0 else []
        for entry in self._scan(seq if found else -1, found[0][0] if found else None):
            if seq < entry.seq <= self._seq:
                yield entry

    def _append(self, kind: str, round: int, text: str, rows: Rows, events: Sequence[tuple[int, str, str]] = ()) -> int:
        if self.readonly:
            raise JournalUnwritable(self.path, "it was opened for reading only")
        seq, wall = self._seq + 1, time.time()
        digest = chain(self._digest, seq, kind, round, wall, text, rows)

        def write() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            held = self._db.execute("SELECT seq, digest FROM head").fetchone()
            if held != (self._seq, self._digest):
                raise JournalUnwritable(self.path, "another process has written to it")
            self._db.execute(
                "INSERT INTO transactions VALUES (?, ?, ?, ?, ?, ?)", (seq, kind, round, wall, text, digest)
            )
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?)", events)
            if len(rows):
                self._db.executemany(
                    f"INSERT INTO {_TABLE_OF[kind]} (seq, client, number, event) VALUES (?, ?, ?, ?)",
                    ((seq, *row) for row in rows.tolist()),
                )
            self._db.execute("UPDATE head SET seq = ?, digest = ?", (seq, digest))
            self._db.execute("COMMIT")

        self._guard(write)
        self._seq, self._digest = seq, digest
        return seq

    def _guard(self, write: Callable[[], None]) -> None:
        """Run a write; undo it and say why in one sentence if it fails."""
        try:
            write()
        except BaseException as error:
            if self._db.in_transaction:
                self._db.rollback()
            if isinstance(error, sqlite3.OperationalError):
                raise JournalUnwritable(self.path, str(error)) from None
            if isinstance(error, sqlite3.DatabaseError):
                raise JournalDamaged(self.path, str(error)) from None
            raise

    def _prepare(self, meta: Mapping[str, Any], existed: bool) -> None:
        db = self._db
        if existed and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            # Starting afresh here would forget charges if the content was lost.
            raise JournalDamaged(self.path, "the file exists but is empty")
        self._check_log()
        db.execute("PRAGMA journal_mode=WAL").fetchone()
        db.execute("PRAGMA synchronous=FULL")
        db.execute("BEGIN IMMEDIATE")
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _TABLES.split(";"):
                db.execute(statement)
            texts = {key: json.dumps(value, sort_keys=True) for key, value in meta.items()}
            db.execute("INSERT INTO schema VALUES (?)", (SCHEMA_VERSION,))
            db.executemany("INSERT INTO meta VALUES (?, ?)", texts.items())
            db.execute("INSERT INTO head VALUES (-1, ?)", (genesis(texts),))
        db.execute("COMMIT")
        if ("schema",) in db.execute("SELECT name FROM sqlite_master").fetchall():
            db.execute(f"PRAGMA user_version = {_BEING_WRITTEN}")
            db.execute(
                "PRAGMA wal_checkpoint(PASSIVE)"
            ).fetchone()  # into the file itself, where a lost log cannot take it

    def _check_log(self) -> None:
        """Refuse a file whose writer did not end, and whose write-ahead log is gone."""
        for (version,) in self._read("PRAGMA user_version"):
            if version == _BEING_WRITTEN and not log_size(self.path):
                raise JournalDamaged(self.path, "its write-ahead log is missing, and with it its newest charges")

    def _load(self, replay: Replay | None) -> None:
        """Read the facts and check the whole chain."""
        tables = {name for (name,) in self._read("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "schema" not in tables:
            raise JournalDamaged(self.path, "it is not a journal of this package")
        versions = list(self._read("SELECT version FROM schema"))
        if versions != [(SCHEMA_VERSION,)]:
            found = versions[0][0] if versions else None
            raise JournalDamaged(self.path, f"its version is {found!r}, this program reads {SCHEMA_VERSION}")
        try:
            self.meta = {key: json.loads(value) for key, value in self._read("SELECT key, value FROM meta")}
        except (ValueError, TypeError):
            raise JournalDamaged(self.path, "its facts are unreadable") from None
        for transaction in self._scan(adopt=True):
            if replay is not None:
                replay(transaction)

    def _scan(self, seq: int = -1, digest: bytes | None = None, adopt: bool = False) -> Iterator[Transaction]:
        """The transactions after number ``seq``, whose chain digest is ``digest``; by default all of them.

        ``adopt`` makes the last of them what is known here, once all are read.
        """
        after = seq
        digest = genesis(dict(self._read("SELECT key, value FROM meta"))) if digest is None else digest
        heads = list(self._read("SELECT seq, digest FROM head"))
        if len(heads) != 1:
            raise JournalDamaged(self.path, "it has no head")
        last = heads[0][0]
        groups = {kind: self._grouped(table, after, last) for kind, table in _TABLE_OF.items()}
        pending = {kind: next(found, None) for kind, found in groups.items()}
        registered: dict[str, int] = {}
        query = "SELECT seq, kind, round, wall, text, digest FROM transactions WHERE seq > ? AND seq <= ? ORDER BY seq"
        for found, kind, round, wall, text, expected in self._read(query, (after, last)):
            rows = np.empty((0, 3), np.int64)
            group = pending.get(kind)
            if group is not None and group[0] == found:
                rows, pending[kind] = group[1], next(groups[kind], None)
            if found != seq + 1 or chain(digest, found, kind, round, wall, text, rows) != expected:
                raise JournalDamaged(self.path, "its content does not match its digest", seq + 1)
            seq, digest = found, expected
            if kind == "note" and text.startswith(_REGISTERED):
                registered.update((name, id) for id, name in json.loads(text)["events"])
            yield Transaction(found, kind, round, wall, text, rows)
        if (seq, digest) != heads[0]:
            raise JournalDamaged(self.path, "transactions are missing at its end", seq + 1)
        if stray := [group[0] for group in pending.values() if group is not None]:
            raise JournalDamaged(self.path, "it holds charges of no transaction", min(stray))
        if registered or adopt:
            ids = {event.digest: id for id, event in enumerate(self.events())}
            if registered.items() - ids.items():
                raise JournalDamaged(self.path, "registered events are missing")
            if adopt:
                self._ids = ids
        if adopt:
            self._seq, self._digest = seq, digest

    def _grouped(self, table: str, after: int, last: int) -> Iterator[tuple[int, Rows]]:
        """The rows of a table by transaction, in the order they were written."""
        where = "seq <= ?2" if after < 0 else "seq > ?1 AND seq <= ?2"  # the whole table is read in its own order
        query = f"SELECT seq, client, number, event FROM {table} WHERE {where} ORDER BY id"
        for seq, group in groupby(self._read(query, (after, last)), key=lambda row: row[0]):
            try:
                yield seq, np.array([row[1:] for row in group], dtype=np.int64)
            except (ValueError, TypeError, OverflowError):
                raise JournalDamaged(self.path, f"a row of {table} is no charge", seq) from None

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            # Not ``yield from``: it would close the cursor when the generator goes, maybe after the connection.
            for row in self._db.execute(query, values):  # noqa: UP028
                yield row
        except sqlite3.DatabaseError as error:
            raise JournalDamaged(self.path, str(error)) from None
