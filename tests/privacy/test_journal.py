import os
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from dualfed.errors import DualfedError
from dualfed.privacy.events import EpochEvent, GaussianEvent
from dualfed.privacy.journal import Journal, JournalDamaged, JournalUnwritable

EVENTS = [GaussianEvent(noise_multiplier=1.0), EpochEvent(noise_multiplier=2.0, rate=0.1, steps=3, contraction=0.9)]


def rows(*triples):
    return np.array(triples, dtype=np.int64).reshape(-1, 3)


@pytest.fixture
def path(tmp_path):
    with Journal.open(tmp_path / "ledger.sqlite", {"n_clients": 3, "noise": "seeded"}) as journal:
        journal.register(EVENTS)
        for round in range(4):
            journal.append("reserve", round, rows((0, round, 0), (2, round, 1)))
        journal.append("void", 3, rows((2, 3, 1)))
        journal.append("note", 4, rows(), "the end")
    return tmp_path / "ledger.sqlite"


def test_what_was_written_is_read_back(path):
    entries = []
    with Journal.open(path, {"n_clients": 99}, entries.append) as journal:
        assert journal.meta == {"n_clients": 3, "noise": "seeded"}
        assert journal.events() == EVENTS
        assert journal.register(EVENTS[::-1]) == [1, 0]
        assert [entry.kind for entry in entries] == ["note", *["reserve"] * 4, "void", "note"]
        assert [entry.seq for entry in entries] == list(range(7))
        assert journal.last_seq == 6
        np.testing.assert_array_equal(entries[2].rows, rows((0, 1, 0), (2, 1, 1)))
        np.testing.assert_array_equal(journal.charges_of(2), entries[2].rows)
        assert entries[-1].text == "the end"
        assert journal.append("reserve", 5, rows((1, 0, 0))) == 7
        assert [entry.round for entry in journal.transactions()][-1] == 5
    with pytest.raises(ValueError, match="may not begin"), Journal.open(path, {}) as journal:
        journal.append("note", 0, rows(), '{"events":[]}')


EDITS = {
    "charge of another client": ("UPDATE charges SET client = 1 WHERE id = 3", 2),
    "charge made cheaper": ("UPDATE charges SET event = 0 WHERE id = 4", 2),
    "charge removed": ("DELETE FROM charges WHERE id = 6", 3),
    "charge added": ("INSERT INTO charges (seq, client, number, event) VALUES (3, 1, 0, 0)", 3),
    "stray charge": ("INSERT INTO charges (seq, client, number, event) VALUES (0, 1, 0, 0)", 0),
    "round": ("UPDATE transactions SET round = 9 WHERE seq = 4", 4),
    "kind": ("UPDATE transactions SET kind = 'void' WHERE seq = 1", 1),
    "time of another type": ("UPDATE transactions SET wall = 'noon' WHERE seq = 1", 1),
    "text": ("UPDATE transactions SET text = 'not the end' WHERE seq = 6", 6),
    "transaction removed": ("DELETE FROM transactions WHERE seq = 3", 3),
    "end removed": ("DELETE FROM transactions WHERE seq >= 5", 5),
    "facts": ("UPDATE meta SET value = '4' WHERE key = 'n_clients'", 0),
    "event": ("UPDATE events SET json = replace(json, '1.0', '9.0') WHERE id = 0", None),
    "event and digest": ("DELETE FROM events WHERE id = 1", None),
    "version": ("UPDATE schema SET version = 2", None),
    "no version": ("DELETE FROM schema", None),
    "head": ("DELETE FROM head", None),
    "no table": ("DROP TABLE charges", None),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("readonly", [False, True])
def test_an_edited_journal_is_refused_with_its_first_bad_transaction(path, edit, readonly):
    statement, seq = EDITS[edit]
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()
    with pytest.raises(JournalDamaged, match=r"ledger\.sqlite") as caught:
        Journal.open_readonly(path) if readonly else Journal.open(path, {})
    assert caught.value.seq == seq
    assert isinstance(caught.value, DualfedError)
    if seq is not None:
        assert f"transaction {seq}" in str(caught.value)


def test_an_event_swapped_with_its_digest_is_noticed(path):
    other = GaussianEvent(noise_multiplier=50.0)
    db = sqlite3.connect(path)
    db.execute("UPDATE events SET json = ?, digest = ? WHERE id = 0", (other.to_json(), other.digest))
    db.commit()
    db.close()
    with pytest.raises(JournalDamaged, match="registered events"):
        Journal.open(path, {})


@pytest.mark.parametrize("length", [0, 10, 100, 4096, 0.5])
def test_a_truncated_file_is_refused(path, length):
    size = path.stat().st_size
    os.truncate(path, int(length * size) if isinstance(length, float) else length)
    with pytest.raises(JournalDamaged):
        Journal.open(path, {})
    with pytest.raises(JournalDamaged):
        Journal.open_readonly(path)


def test_what_is_no_journal_is_refused(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to look at " * 200)
    with pytest.raises(JournalDamaged):
        Journal.open(text, {})
    foreign = tmp_path / "foreign.sqlite"
    db = sqlite3.connect(foreign)
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    with pytest.raises(JournalDamaged, match="not a journal of this package"):
        Journal.open(foreign, {})
    with pytest.raises(JournalDamaged, match="no such file"):
        Journal.open_readonly(tmp_path / "absent.sqlite")


def test_where_nothing_can_be_written_nothing_is(path, tmp_path):
    with pytest.raises(JournalUnwritable, match="cannot be written"):
        Journal.open(tmp_path / "no" / "such" / "folder.sqlite", {})
    with Journal.open_readonly(path) as journal, pytest.raises(JournalUnwritable, match="reading only"):
        journal.append("note", 0, rows(), "x")


def test_a_full_disk_undoes_the_charge(path):
    with Journal.open(path, {}) as journal:
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        many = rows(*((0, 4 + k, 0) for k in range(5000)))
        with pytest.raises(JournalUnwritable, match="full"):
            journal.append("reserve", 4, many)
        journal._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert journal.append("reserve", 4, many) == 7
    with Journal.open_readonly(path) as journal:
        assert journal.last_seq == 7


def test_a_second_writer_is_noticed(path):
    with Journal.open(path, {}) as one, Journal.open(path, {}) as two:
        one.append("note", 0, rows(), "mine")
        with pytest.raises(JournalUnwritable, match="another process"):
            two.append("note", 0, rows(), "mine too")
        one.append("note", 0, rows(), "mine again")


WRITER = """
import sys
import numpy as np
from dualfed.privacy.events import GaussianEvent
from dualfed.privacy.journal import Journal
journal = Journal.open(sys.argv[1], {})
journal.register([GaussianEvent(noise_multiplier=1.0)])
for k in range(10**6):
    journal.append("reserve", k, np.array([[c, k, 0] for c in range(20)]))
    print(k, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill_and_can_be_read_meanwhile(tmp_path):
    path = tmp_path / "ledger.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        for _ in range(15):
            writer.stdout.readline()
        with Journal.open_readonly(path) as reader:
            before = [len(entry.rows) for entry in reader.transactions() if entry.kind == "reserve"]
            assert len(before) >= 15
            assert set(before) == {20}
            for _ in range(15):
                acknowledged = int(writer.stdout.readline())
            assert len(list(reader.transactions())) > len(before)
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().split() if writer.stdout else []
        writer.wait()
    acknowledged = int(rest[-1]) if rest else acknowledged
    with Journal.open(path, {}) as journal:
        charged = [entry for entry in journal.transactions() if entry.kind == "reserve"]
        assert acknowledged + 1 <= len(charged) <= acknowledged + 2
        assert {len(entry.rows) for entry in charged} == {20}
        journal.append("reserve", 0, rows((0, len(charged), 0)))
