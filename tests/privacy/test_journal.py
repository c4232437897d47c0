import os
import shutil
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from dualfed.errors import DualfedError
from dualfed.privacy.events import EpochEvent, GaussianEvent
from dualfed.privacy.journal import Journal, JournalDamaged, JournalUnwritable
from dualfed.privacy.journal_log import sweep

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
    "charge of another transaction": ("UPDATE charges SET seq = 3 WHERE id = 3", 2),
    "charge with another number": ("UPDATE charges SET number = 7 WHERE id = 5", 3),
    "charge that is no number": ("UPDATE charges SET client = 'none' WHERE id = 3", 2),
    "charges swapped": ("UPDATE charges SET client = 2 - client WHERE seq = 1", 1),
    "order of charges": ("UPDATE charges SET id = CASE id WHEN 1 THEN 102 ELSE 101 END WHERE seq = 1", 1),
    "last charges removed": ("DELETE FROM charges WHERE seq >= 4", 4),
    "void of another client": ("UPDATE voids SET client = 0", 5),
    "void of another number": ("UPDATE voids SET number = 2", 5),
    "void of another event": ("UPDATE voids SET event = 0", 5),
    "void of another transaction": ("UPDATE voids SET seq = 4", 5),
    "void removed": ("DELETE FROM voids", 5),
    "void added": ("INSERT INTO voids (seq, client, number, event) VALUES (5, 0, 3, 0)", 5),
    "transactions swapped": (
        "UPDATE transactions SET seq = CASE seq WHEN 1 THEN 102 ELSE 101 END WHERE seq IN (1, 2)",
        1,
    ),
    "time": ("UPDATE transactions SET wall = wall - 60 WHERE seq = 2", 2),
    "digest of a transaction": ("UPDATE transactions SET digest = x'00' WHERE seq = 2", 2),
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
    "fact removed": ("DELETE FROM meta WHERE key = 'noise'", 0),
    "fact added": ("INSERT INTO meta VALUES ('delta', '0.5')", 0),
    "fact that is no JSON": ("UPDATE meta SET value = 'three' WHERE key = 'n_clients'", None),
    "event's number": ("UPDATE events SET id = 9 WHERE id = 1", None),
    "event's digest": ("UPDATE events SET digest = 'ff' WHERE id = 1", None),
    "head": ("DELETE FROM head", None),
    "head's number": ("UPDATE head SET seq = 5", 6),
    "head's digest": ("UPDATE head SET digest = x'00'", 7),
    "head twice": ("INSERT INTO head SELECT seq, digest FROM head", None),
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


def copied_while_open(path, tmp_path):
    """A journal whose last charges are in its write-ahead log alone, as a killed writer leaves it, and its position."""
    with Journal.open(path, {}) as journal:
        for number in range(5):
            journal.append("reserve", 5, rows((1, number, 0)))
        newest = journal.position
        (tmp_path / "copy").mkdir()
        for part in path.parent.glob("ledger.sqlite*"):
            shutil.copy(part, tmp_path / "copy" / part.name)
    return tmp_path / "copy" / "ledger.sqlite", newest


@pytest.mark.parametrize("left", ["nothing", "an empty log"])
def test_a_removed_write_ahead_log_is_noticed(left, path, tmp_path):
    copy, newest = copied_while_open(path, tmp_path)
    with Journal.open_readonly(copy) as journal:
        assert journal.position == newest
    for part in ("wal", "shm"):
        copy.with_name(f"ledger.sqlite-{part}").unlink(missing_ok=True)
    if left == "an empty log":
        copy.with_name("ledger.sqlite-wal").touch()
    for open_journal in (Journal.open_readonly, lambda path: Journal.open(path, {}), Journal.open_readonly):
        with pytest.raises(JournalDamaged, match="write-ahead log is missing"):
            open_journal(copy)


def test_a_write_ahead_log_that_was_left_is_gone_on_with(path, tmp_path):
    copy, newest = copied_while_open(path, tmp_path)
    with Journal.open(copy, {}) as journal:
        assert journal.position == newest
    # Folded in by the orderly end, so that the file alone is whole again.
    assert not copy.with_name("ledger.sqlite-wal").exists()
    alone = tmp_path / "alone.sqlite"
    shutil.copy(copy, alone)
    for open_journal in (Journal.open_readonly, lambda path: Journal.open(path, {})):
        with open_journal(alone) as journal:
            assert journal.position == newest


def test_a_write_ahead_log_that_was_changed_takes_its_charges_along_and_that_is_noticed(path, tmp_path):
    copy, newest = copied_while_open(path, tmp_path)
    wal = copy.with_name("ledger.sqlite-wal")
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 0xFF
    wal.write_bytes(bytes(content))
    try:
        with Journal.open_readonly(copy) as journal:
            assert not journal.contains(newest)
    except JournalDamaged:
        pass


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


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 1 MiB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("mounting needs privileges that this process has not")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_stops_the_charges_and_not_the_journal(small_disk):
    place = small_disk / "ledger.sqlite"
    with Journal.open(place, {"n_clients": 500}) as journal:
        journal.register(EVENTS)

        def charge(number):
            journal.append("reserve", number, rows(*((client, number, 0) for client in range(500))))

        def fill():
            for number in range(10_000):
                charge(number)

        with pytest.raises(JournalUnwritable, match=r"ledger\.sqlite cannot be written .*free the disk"):
            fill()
        written = journal.last_seq
        assert written > 5
        with pytest.raises(JournalUnwritable):
            charge(written)
        assert journal.last_seq == written
    with Journal.open_readonly(place) as journal:
        assert journal.last_seq == written


def test_a_log_that_cannot_be_read_in_a_readonly_folder_is_not_left_out(small_disk, path, tmp_path):
    copy, _ = copied_while_open(path, tmp_path)
    for part in ("ledger.sqlite", "ledger.sqlite-wal"):
        shutil.copy(copy.with_name(part), small_disk / part)
    whole = small_disk / "whole.sqlite"
    shutil.copy(path, whole)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(JournalUnwritable, match="write-ahead log holds charges"):
        Journal.open_readonly(small_disk / "ledger.sqlite")
    for at in (small_disk / "ledger.sqlite", whole, small_disk / "new.sqlite"):
        with pytest.raises(JournalUnwritable, match="cannot be written"):
            Journal.open(at, {})
    with Journal.open_readonly(whole) as journal:
        assert journal.last_seq == 11


def test_what_readers_leave_is_swept_and_a_log_that_holds_charges_is_not(path, tmp_path):
    beside = [path.with_name(f"{path.name}-{part}") for part in ("wal", "shm")]
    with Journal.open_readonly(path):
        pass
    assert all(file.exists() for file in beside)
    sweep(path)
    assert not any(file.exists() for file in beside)
    sweep(path)
    sweep(tmp_path / "none.sqlite")
    copy, _ = copied_while_open(path, tmp_path)
    log = copy.with_name(f"{copy.name}-wal")
    held = log.read_bytes()
    sweep(copy)
    assert log.read_bytes() == held
    with Journal.open_readonly(path) as reader:
        sweep(path)
        assert reader.last_seq == 11
        assert len(list(reader.transactions())) == 12


LIMITED = """
import resource, sys
import numpy as np
from dualfed.errors import DualfedError
from dualfed.privacy.events import GaussianEvent
from dualfed.privacy.ledger import Ledger
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = Ledger(sys.argv[1], 200, delta=1e-5)
ledger.register([GaussianEvent(noise_multiplier=2.0)])
resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, 2**19))
granted = 0
try:
    for round in range(10**5):
        granted += len(ledger.reserve(round, np.arange(200), 0)[0])
except DualfedError as error:
    print(granted, error)
"""


def test_where_files_may_not_grow_a_ledger_grants_no_more(tmp_path):
    place = tmp_path / "ledger.sqlite"
    said = subprocess.run(
        [sys.executable, "-c", LIMITED, str(place)], capture_output=True, text=True, check=True
    ).stdout
    granted, sentence = said.split(" ", 1)
    assert "cannot be written" in sentence
    assert sentence.count("\n") == 1
    with Journal.open_readonly(place) as journal:
        charged = sum(len(entry.rows) for entry in journal.transactions())
    assert charged == int(granted) > 0


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
