"""replica.db as a real file: what survives, and what is refused."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest

from saltext_ha.common.batches import BATCH
from saltext_ha.common.errors import ReplicaDamaged, ReplicaError
from saltext_ha.replica import row_cache, schema
from saltext_ha.replica.history import BEGINNING
from saltext_ha.replica.key_counts import Tally
from saltext_ha.replica.opening import is_damage
from saltext_ha.replica.replica import Replica
from saltext_ha.replica.serializers import NEVER, Applied
from saltext_ha.replication.account import BEGAN, Account
from saltext_ha.replication.digest import bucket_of
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import (
    ACCEPTED,
    DELETED,
    PENDING,
    REJECTED,
    Record,
    Value,
    decide,
)
from saltext_ha.trees import registers
from tests.keys import public_key

pytestmark = pytest.mark.core

TEXT = public_key(0)
A, B = b"a" * 32, b"b" * 32
BUCKET = bucket_of("web1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replica.db"


def write(replica: Replica, minion_id: str, state: str = ACCEPTED, key: bytes = A) -> Record:
    """One more value, and the same in the store; inside a transaction only."""
    record = replica.get(minion_id).get(key, Record(minion_id, key, TEXT))
    value = Value(replica.next_dot(), state, 0.1 + 0.2, "root", "m1")
    record = decide(record, dict(record.context), value)
    replica.put(record)
    stored = NEVER if state == DELETED else Applied(Stored(state, key))
    replica.set_applied(minion_id, stored)
    return record


def roots(replica: Replica) -> tuple[bytes, bytes]:
    return replica.records.root, replica.placements.root


def packed(row: object) -> str:
    """As SQL."""
    return f"x'{msgpack.packb(row).hex()}'"


def test_all_that_was_committed_is_there_after_reopening(path: Path) -> None:
    replica = Replica(path)
    doing = Applied(
        Stored(ACCEPTED, A, frozenset({B})),
        {A: {"f" * 16: 7}},
        frozenset({(REJECTED, A), ("denied", B)}),
    )
    with replica.transaction():
        records = {write(replica, f"web{n}") for n in range(20)}
        write(replica, "gone")
        write(replica, "gone", DELETED)
        replica.set_applied("web1", doing)
        replica.held.add(["web2", "web3"], 12.5)
        replica.held.discard(["web3"])
        replica.meta.revocation_due = True
    before = (replica.node, replica.counter, roots(replica), replica.counts(), replica.nodes.seen())
    replica.close()

    replica = Replica(path)
    after = (replica.node, replica.counter, roots(replica), replica.counts(), replica.nodes.seen())
    assert after == before
    assert {replica.get(f"web{n}")[A] for n in range(20)} == records
    assert replica.get("gone")[A].state == DELETED
    assert replica.applied("gone") == NEVER
    assert replica.applied("web1") == doing
    assert replica.dirty() == ["web1"]
    assert replica.held.all() == {"web2": 12.5}
    assert replica.meta.revocation_due
    assert replica.counts() == {ACCEPTED: 20, "denied": 1}
    assert list(replica.ids()) == sorted([*(f"web{n}" for n in range(20)), "gone"])
    replica.close()


def test_the_digests_kept_along_are_those_of_the_content(path: Path) -> None:
    replica = Replica(path)
    empty = roots(replica)
    for state in (PENDING, ACCEPTED, REJECTED, ACCEPTED):
        with replica.transaction():
            for number in range(30):
                write(replica, f"web{number}", state)
                write(replica, f"web{number}", state)
    kept = roots(replica)
    replica.close()
    replica = Replica(path)
    assert roots(replica) == kept != empty
    with replica.transaction():
        for number in range(30):
            write(replica, f"web{number}", DELETED)
    assert replica.placements.root == empty[1]
    assert replica.records.root != empty[0]
    replica.close()


class Stop(Exception):
    pass


def test_an_exception_undoes_the_whole_transaction(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        write(replica, "web1")
    before = (replica.counter, roots(replica), replica.counts(), replica.nodes.seen())

    def fail() -> None:
        with replica.transaction():
            write(replica, "web1", REJECTED)
            write(replica, "web2")
            replica.held.add(["web1"], 1.0)
            replica.meta.revocation_due = True
            raise Stop

    with pytest.raises(Stop):
        fail()
    assert (replica.counter, roots(replica), replica.counts(), replica.nodes.seen()) == before
    assert replica.get("web1")[A].state == ACCEPTED
    assert replica.get("web2") == {}
    assert replica.held.all() == {}
    assert not replica.meta.revocation_due
    # The next write takes the counter of the one that never was, and stands.
    with replica.transaction():
        record = write(replica, "web2")
    assert record.values[0].dot.counter == before[0] + 1
    replica.close()


CHILD = """
import sys
from pathlib import Path
from saltext_ha.replica.serializers import Applied
from saltext_ha.common.batches import BATCH
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.placement import Stored
from saltext_ha.replication.record import Record, Value, decide

replica = Replica(Path(sys.argv[1]))

def write(n):
    record = Record(f"web{n}", b"a" * 32, "key")
    replica.put(decide(record, {}, Value(replica.next_dot(), "accepted", 0.0, "", "")))
    replica.set_applied(f"web{n}", Applied(Stored("accepted", b"a" * 32)))

for n in range(50):
    with replica.transaction():
        write(n)
with replica.transaction():
    for n in range(50, 5000):
        write(n)
    print(replica.node, flush=True)
    sys.stdin.read()
"""


def test_more_ids_than_are_kept_at_once_are_all_read_and_written(path: Path) -> None:
    replica = Replica(path)
    ids = [f"web{number}" for number in range(row_cache.MAX_IDS + 2 * BATCH)]
    with replica.transaction():
        records = {minion_id: write(replica, minion_id) for minion_id in ids}
        # However many they are: nothing that was put is forgotten before it is written.
        assert all(replica.get(i) == {A: record} for i, record in records.items())
    replica.close()

    replica = Replica(path)
    for _ in range(2):
        shown = {i: (replica.get(i), replica.applied(i)) for i in replica.brought([*ids, "none"])}
        assert shown.pop("none") == ({}, NEVER)
        assert shown == {
            i: ({A: record}, Applied(Stored(ACCEPTED, A))) for i, record in records.items()
        }
        # One by one, too.
        assert all(replica.get(i) == {A: record} for i, record in records.items())
    assert len(replica._rows._records) <= row_cache.MAX_IDS + BATCH
    replica.close()


def test_ids_of_which_only_a_part_was_read_are_brought(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        record = write(replica, "web1")
    replica.close()
    replica = Replica(path)
    assert replica.applied("web1") == Applied(Stored(ACCEPTED, A))
    assert [replica.get(minion_id) for minion_id in replica.brought(["web1"])] == [{A: record}]
    replica.close()
    replica = Replica(path)
    assert replica.get("web1") == {A: record}
    shown = [replica.applied(minion_id) for minion_id in replica.brought(["web1"])]
    assert shown == [Applied(Stored(ACCEPTED, A))]
    assert list(replica.brought([])) == []
    replica.close()


def test_what_could_not_be_read_is_not_taken_for_nothing(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        record = write(replica, "web1")
    replica.close()
    replica = Replica(path)
    for ask in (replica.get, replica.applied, lambda minion_id: [*replica.brought([minion_id])]):
        replica._db.set_progress_handler(lambda: 1, 1)
        with pytest.raises(sqlite3.OperationalError):
            ask("web1")
        replica._db.set_progress_handler(None, 0)
    assert replica.get("web1") == {A: record}
    assert replica.applied("web1") == Applied(Stored(ACCEPTED, A))
    replica.close()


def test_what_was_dropped_is_gone_inside_the_transaction_and_after_it(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        record = write(replica, "web1")
        write(replica, "web1", key=B)
    with replica.transaction():
        replica.drop(record)
        replica.set_applied("web1", NEVER)
        assert set(replica.get("web1")) == {B}
        assert replica.applied("web1") == NEVER
    assert set(replica.get("web1")) == {B}
    kept = roots(replica)
    replica.close()
    replica = Replica(path)
    assert set(replica.get("web1")) == {B}
    assert replica.applied("web1") == NEVER
    assert roots(replica) == kept
    with replica.transaction():
        replica.drop(replica.get("web1")[B])
        replica.put(record)  # known again
    assert set(replica.get("web1")) == {A}
    replica.close()


def test_kill_in_mid_transaction_keeps_all_before_it_and_nothing_of_it(path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout
        node = child.stdout.readline().decode().strip()
        assert len(node) == 16
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=120)
    replica = Replica(path)
    assert replica.node == node
    assert replica.counter == 50
    assert replica.counts() == {ACCEPTED: 50}
    assert sorted(replica.ids()) == sorted(f"web{n}" for n in range(50))
    replica.close()


@pytest.mark.parametrize(
    "content", [b"no database at all" * 500, b"SQLite format 3\0" + b"x" * 5000]
)
def test_a_file_that_is_no_database_is_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ReplicaError, match=r"replica\.db: cannot be opened"):
        Replica(path)
    assert path.read_bytes() == content


def filled(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        for number in range(2000):
            write(replica, f"web{number}")
    replica.close()


def test_a_file_with_damaged_pages_is_refused(path: Path) -> None:
    filled(path)
    raw = bytearray(path.read_bytes())
    raw[8192 : len(raw) // 2] = os.urandom(len(raw) // 2 - 8192)
    path.write_bytes(raw)
    with pytest.raises(ReplicaError, match=r"replica\.db"):
        Replica(path)


def test_a_file_cut_short_is_refused(path: Path) -> None:
    filled(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ReplicaError, match=r"replica\.db"):
        Replica(path)


INDEXES = {"record_accepted", "history_id"}


def indexes(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
        return INDEXES & {row[0] for row in rows}


def test_what_the_first_filling_does_without_is_made_at_its_end(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        write(replica, "web1")
    before = replica.history.lines("web1")
    replica.index()
    assert before
    assert replica.history.lines("web1") == before
    replica.index()
    replica.close()
    assert indexes(path) == INDEXES


def test_what_a_filling_that_was_ended_left_out_is_made_at_the_next_opening(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        write(replica, "web1")
    replica.close()
    assert not indexes(path)
    Replica(path).close()
    assert indexes(path) == INDEXES


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (99, "written by a newer release (schema 99,"),
        (9, "written before 28 November 2026 (schema 9, this release reads from 10 on); start"),
        (1, "start this master once with commit c4f90a34, which upgrades the file"),
    ],
)
def test_a_schema_that_is_too_new_or_too_old_is_refused_and_left_alone(
    path: Path, version: int, said: str
) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE meta (name TEXT)")
        db.execute(f"PRAGMA user_version = {version}")
    for _ in range(2):
        with pytest.raises(ReplicaError, match=re.escape(said)):
            Replica(path)
    assert version_of(path) == version


def test_a_step_that_fails_leaves_the_file_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Replica(path)) as replica, replica.transaction():
        write(replica, "web1")
        node = replica.node
    monkeypatch.setattr(schema, "MIGRATIONS", ["CREATE TABLE more (id TEXT);", "CREATE TABLE meta"])
    with pytest.raises(ReplicaError, match=r"replica\.db: cannot be opened"):
        Replica(path)
    assert version_of(path) == schema.FIRST
    with closing(sqlite3.connect(path)) as db:
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'more'").fetchone()
    monkeypatch.setattr(schema, "MIGRATIONS", ["CREATE TABLE more (id TEXT);"])
    for _ in range(2):
        with closing(Replica(path)) as replica:
            assert (replica.node, [*replica.ids()]) == (node, ["web1"])
        assert version_of(path) == schema.FIRST + 1


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReplicaError, match=r"nowhere/replica\.db: cannot be opened"):
        Replica(tmp_path / "nowhere" / "replica.db")


def test_two_cannot_write_under_one_name(path: Path) -> None:
    replica = Replica(path)
    other = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from saltext_ha.replica.replica import Replica;"
            "from saltext_ha.common.errors import ReplicaError\n"
            "try: Replica(Path(sys.argv[1]))\n"
            "except ReplicaError as exc: sys.exit(str(exc))",
            str(path),
        ],
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert other.returncode == 1
    assert b"another ha engine uses it" in other.stderr
    with replica.transaction():
        write(replica, "web1")
    replica.close()
    Replica(path).close()


def test_a_tool_that_has_it_open_is_named_as_such(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, timeout=0.0))
    Replica(path).close()
    with contextlib.closing(sqlite3.connect(path)) as tool:
        tool.execute("SELECT 1 FROM meta").fetchall()  # this lasts until the tool is closed
        replica = Replica(path)
        with pytest.raises(ReplicaError, match="or a tool such as sqlite3: close that"):
            replica.take_node()
        replica.close()
    replica = Replica(path)
    replica.take_node()
    replica.close()


def test_a_file_of_another_user_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()  # SQLite cannot open this even for root
    monkeypatch.setattr(os, "access", lambda file, mode: file != path)
    with pytest.raises(ReplicaError, match=r"replica\.db is read-only, or belongs to another user"):
        Replica(path)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("UPDATE record SET body = x'c1'", lambda replica: replica.get("web1")),
        ("UPDATE record SET body = x'01'", lambda replica: list(replica.in_bucket(BUCKET))),
        ("UPDATE stored SET body = x'93a1ff01'", lambda replica: list(replica.placed())),
        ("UPDATE stored SET doing = x'91'", lambda replica: replica.applied("web1")),
        (
            f"UPDATE record SET body = {packed([[[['ab', 1], 'acceptee', 0, '', '']], []])}",
            lambda replica: replica.get("web1"),
        ),
        (
            f"UPDATE stored SET body = {packed(['acceptee', b'1', []])}",
            lambda replica: replica.applied("web1"),
        ),
        ("REPLACE INTO meta VALUES ('epoch', '1;')", lambda replica: replica.dropped.epoch),
        ("UPDATE account SET body = x'90'", lambda replica: replica.history.lines()),
        ("UPDATE record SET body = x'90'", lambda replica: replica.history.prune(1e9, BEGINNING)),
        ("INSERT INTO run VALUES ('backup', x'c1')", lambda replica: replica.runs.all(list)),
        (
            "INSERT INTO tree VALUES ('states', x'90')",
            lambda replica: replica.trees.all(registers.from_rows),
        ),
    ],
)
def test_a_row_that_makes_no_sense_is_damage(
    path: Path, change: str, read: Callable[[Replica], object]
) -> None:
    replica = Replica(path)
    with replica.transaction():
        write(replica, "web1")
        write(replica, "web1")
        replica.history.explain("web1", Account(BEGAN, b"", "", ()), 0.0)
    replica.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    replica = Replica(path)
    with pytest.raises(ReplicaDamaged, match="a row makes no sense"):
        read(replica)
    replica.close()


@pytest.mark.parametrize("name", ["owner", "nonce"])
def test_a_name_that_makes_no_sense_is_damage_as_the_file_is_opened(path: Path, name: str) -> None:
    """Else each start would fail, and nothing would make the file anew."""
    replica = Replica(path)
    replica.take_node(bytes(32))
    replica.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = 'g' || value WHERE name = ?", (name,))
    for _ in range(2):  # the first leaves no lock behind
        with pytest.raises(ReplicaDamaged, match="a row makes no sense"):
            Replica(path)


@pytest.mark.parametrize("column", ["id", "pub"])
def test_a_text_that_is_none_is_damage(path: Path, column: str) -> None:
    """Most of a row is text; SQLite checks none of it."""
    replica = Replica(path)
    with replica.transaction():
        write(replica, "web1")
    replica.close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE record SET {column} = CAST(x'f765' AS TEXT)")
    replica = Replica(path)
    with pytest.raises(sqlite3.Error) as refused:
        list(replica.in_bucket(BUCKET))
    assert is_damage(refused.value)
    replica.close()


def test_a_transaction_that_cannot_be_written_is_an_error_and_undone(path: Path) -> None:
    replica = Replica(path)
    before = roots(replica)
    # As on a full disk: no more pages than there are.
    pages = replica._db.execute("PRAGMA page_count").fetchone()[0]
    replica._db.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        with replica.transaction():
            for number in range(2000):
                write(replica, f"web{number}")

    with pytest.raises(ReplicaError, match=r"cannot be written.*full"):
        fill()
    assert (replica.counter, roots(replica)) == (0, before)
    replica._db.execute("PRAGMA max_page_count = 1000000")
    fill()
    assert replica.counter == 2000
    replica.close()


def test_every_node_counts_from_one(path: Path) -> None:
    replica = Replica(path)
    first = replica.node
    with replica.transaction():
        write(replica, "web1")
        write(replica, "web1")
    replica.take_node()
    second = replica.node
    assert second != first
    assert replica.counter == 0
    with replica.transaction():
        assert write(replica, "web1").values[0].dot == (second, 1)
    assert replica.nodes.seen() == {first: 2, second: 1}
    replica.close()
    replica = Replica(path)
    assert (replica.node, replica.counter) == (second, 1)
    replica.close()


def test_a_node_that_meets_writes_of_its_own_does_not_use_their_names_again(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        record = write(replica, "web1")
    later = record._replace(context=((replica.node, 7),))
    with replica.transaction():
        replica.put(later)
    with replica.transaction():
        assert replica.next_dot() == (replica.node, 8)
    replica.close()


def test_conflicts_are_found_without_a_look_at_the_records(path: Path) -> None:
    """Of 100 000 keys that is half a second."""
    replica = Replica(path)
    replica.index()
    asked: list[str] = []
    replica._db.set_trace_callback(asked.append)
    Tally(replica._db)
    replica._db.set_trace_callback(None)
    (query,) = (text for text in asked if "FROM record" in text)
    (plan,) = replica._db.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
    assert "USING COVERING INDEX record_accepted" in plan[3]
    replica.close()


def test_what_is_counted_along_is_what_is_there(path: Path) -> None:
    replica = Replica(path)
    chance = random.Random(7)
    ids = [f"web{number}" for number in range(12)]
    shown: set[tuple[Any, ...]] = set()
    for _ in range(300):
        undone = chance.random() < 0.2
        with contextlib.suppress(Stop), replica.transaction():
            for minion_id in chance.choices(ids, k=4):
                state = chance.choice((PENDING, ACCEPTED, REJECTED, DELETED))
                key = chance.choice((A, B))
                write(replica, minion_id, state, key)
                denied = frozenset({A}) if chance.random() < 0.3 else frozenset()
                stored = replica.applied(minion_id).stored
                replica.set_applied(minion_id, Applied(stored._replace(denied=denied)))
            if undone:
                raise Stop
        with replica.transaction():
            for record in replica.get(chance.choice(ids)).values():
                replica.drop(record)
        counted = replica.counts(), replica.conflicts()
        there = Tally(replica._db)
        assert counted == (there.counts(), there.conflicts())
        shown.add((*sorted(counted[0]), len(counted[1])))
    assert len(shown) > 10, "something happened"
    replica.close()


def test_conflicts_are_ids_with_two_accepted_keys(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        write(replica, "web1", ACCEPTED, A)
        write(replica, "web1", ACCEPTED, B)
        write(replica, "web2", ACCEPTED, A)
        write(replica, "web2", DELETED, B)
    assert replica.conflicts() == ["web1"]
    with replica.transaction():
        write(replica, "web1", REJECTED, B)
    assert replica.conflicts() == []
    replica.close()


def test_an_id_with_an_accepted_or_a_revoked_key_is_at_stake(path: Path) -> None:
    states = (ACCEPTED, PENDING, REJECTED, DELETED)
    with closing(Replica(path)) as replica:
        with replica.transaction():
            for state in states:
                write(replica, state, state)
            write(replica, "another deleted", PENDING, key=A)
            write(replica, "another deleted", DELETED, key=B)
        ids = [*states, "another deleted", "unknown"]
        assert set(replica.at_stake(ids)) == {ACCEPTED, REJECTED, DELETED, "another deleted"}
        assert set(replica.at_stake([PENDING, "unknown"])) == set()


def test_accepted_ids_come_in_order_and_in_parts(path: Path) -> None:
    replica = Replica(path)
    with replica.transaction():
        for minion_id in ("web3", "db1", "web1", "web2", "Web4"):
            write(replica, minion_id)
        for state in (PENDING, REJECTED, DELETED):
            write(replica, f"web-{state}", state)
    assert replica.accepted() == ["Web4", "db1", "web1", "web2", "web3"]
    assert replica.accepted("web*") == ["web1", "web2", "web3"]
    assert replica.accepted("web*", most=2) == ["web1", "web2"]
    assert replica.accepted("web*", "web2", 2) == ["web3"]
    assert replica.accepted("*", "web3") == []
    assert replica.accepted("web[12]") == ["web1", "web2"]
    replica.close()


def test_what_the_store_really_shows_is_counted_with_held_keys() -> None:
    replica = Replica(None)
    with replica.transaction():
        for number in range(4):
            write(replica, f"web{number}")
        write(replica, "new", PENDING)
        write(replica, "stranger", REJECTED)
        write(replica, "old", DELETED)
    assert replica.shown_counts() == {ACCEPTED: 4, PENDING: 1, REJECTED: 1}
    with replica.transaction():
        replica.held.add(["web0", "web1"], 1.0)  # gone
        replica.held.add(["old"], 1.0)  # back
    assert replica.shown_counts() == {ACCEPTED: 3, PENDING: 1, REJECTED: 1}
    with replica.transaction():
        replica.held.add(["web2", "web3"], 1.0)
    assert replica.shown_counts() == {ACCEPTED: 1, PENDING: 1, REJECTED: 1}
    with replica.transaction():
        replica.held.add(["stranger"], 1.0)  # gone, or back
    assert replica.shown_counts() == {ACCEPTED: None, PENDING: 1, REJECTED: None}


def test_counting_held_keys_takes_twice_as_long_for_twice_as_many() -> None:
    def steps(number: int) -> int:
        replica = Replica(None)
        ids = [f"web{number}" for number in range(number)]
        with replica.transaction():
            for minion_id in ids:
                write(replica, minion_id)
            replica.held.add(ids, 1.0)
        done = 0

        def count() -> None:
            nonlocal done
            done += 1

        replica._db.set_progress_handler(count, 1)
        assert replica.shown_counts() == {}
        return done

    assert 0 < steps(1000) < 3 * steps(500)
