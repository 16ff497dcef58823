"""What replica.db tells of the past: kept, explained once, and pruned."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab.engines import Engine, Place
from saltext_ha.commands.keys.history import prune_regularly
from saltext_ha.common.errors import HaError, ReplicaError
from saltext_ha.reconciler.keeper import Decision
from saltext_ha.reconciler.own_writes import MINION
from saltext_ha.replica import history_text
from saltext_ha.replica.history import (
    BATCH,
    BEGINNING,
    BEGINNING_OF_ACCOUNTS,
    AccountPlace,
    Line,
)
from saltext_ha.replica.history import Place as Cursor
from saltext_ha.replica.replica import Replica
from saltext_ha.replication.account import BEGAN, ENDED, HOLDS
from saltext_ha.replication.record import (
    ACCEPTED,
    DELETED,
    OBSERVATIONS,
    PENDING,
    REJECTED,
    Dot,
    Record,
    Value,
    decide,
    observe,
)
from tests.functional.keepers import PRINTS, Master, exchange
from tests.keys import public_key
from tests.loop import becomes, in_a_loop

pytestmark = pytest.mark.core

A, B = PRINTS[:2]
DAY = 86400.0


@pytest.fixture
def pair(m1: Master, m2: Master) -> tuple[Master, Master]:
    return m1, m2


def told(master: Master) -> list[str]:
    """What is explained on *master*, oldest first."""
    lines = master.replica.history.lines()
    return [history_text.sentence(line.account) for line in reversed(lines) if line.account]


def kinds(master: Master) -> list[str]:
    lines = master.replica.history.lines()
    return [line.account.kind for line in reversed(lines) if line.account]


# -- who


def test_a_knock_is_the_minions_and_a_decision_whoevers_it_is(pair: tuple[Master, Master]) -> None:
    m1, _ = pair
    m1.knock("web1")
    m1.keeper.observe(["web1"], by="alice")
    m1.move("web1", PENDING, ACCEPTED)
    m1.keeper.observe(["web1"], by="alice")
    m1.remove("web1")
    m1.deletion_told(["web1"], "bob")
    lines = m1.replica.history.lines()
    assert [(line.state, line.by) for line in lines] == [
        (DELETED, "bob"),
        (ACCEPTED, "alice"),
        (PENDING, MINION),
    ]


def test_a_change_that_a_pass_finds_first_has_its_name_too(pair: tuple[Master, Master]) -> None:
    m1, _ = pair
    asked: list[tuple[str, str]] = []

    def who(minion_id: str, state: str) -> str:
        asked.append((minion_id, state))
        return "alice"

    m1.keeper.reconciler.observer.calls.who = who  # type: ignore[method-assign, assignment]
    m1.knock("web1")
    m1.move("web1", PENDING, REJECTED)
    m1.scan()
    m1.remove("web1")
    m1.scan()
    assert asked == [("web1", REJECTED), ("web1", DELETED)]
    assert [line.by for line in m1.replica.history.lines()] == ["alice", "alice"]


def test_a_change_that_nobody_told_of_is_an_operators_if_the_key_was_known(
    pair: tuple[Master, Master],
) -> None:
    m1, _ = pair
    m1.knock("came", state=ACCEPTED)
    m1.knock("knew")
    m1.scan()
    m1.move("knew", PENDING, ACCEPTED)
    m1.scan()
    m1.remove("came")
    m1.scan()
    assert [(line.state, line.by) for line in m1.replica.history.lines("came")] == [
        (DELETED, "operator"),
        (ACCEPTED, ""),
    ]
    assert [(line.state, line.by) for line in m1.replica.history.lines("knew")] == [
        (ACCEPTED, "operator"),
        (PENDING, MINION),
    ]


# -- why


def disagree(m1: Master, m2: Master) -> None:
    """Both know a pending key; m1 accepts it, m2 rejects it, neither knowing of the other."""
    m1.knock("web7")
    exchange(m1, m2)
    m1.move("web7", PENDING, ACCEPTED)
    m1.keeper.observe(["web7"], by="alice")
    m2.move("web7", PENDING, REJECTED)
    m2.keeper.observe(["web7"], by="bob")


def test_both_masters_tell_once_why_one_decision_holds(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    disagree(m1, m2)
    assert told(m1) == told(m2) == []
    exchange(m1, m2)
    expected = [
        "rejected on m2 by bob and accepted on m1 by alice, neither knowing of the other:"
        " rejected holds"
    ]
    assert told(m1) == told(m2) == expected
    for master in pair:
        master.restart()
    exchange(m1, m2)
    m1.knock("web8")
    exchange(m2, m1)
    assert told(m1) == told(m2) == expected
    (line,) = m1.replica.history.lines("web7", limit=1)
    assert line.account
    assert (line.key, line.account.outcome) == (A, REJECTED)


def test_a_decision_made_before_what_arrived_was_applied_is_told_too(
    pair: tuple[Master, Master],
) -> None:
    m1, m2 = pair
    disagree(m1, m2)
    # The rejection is written down, and before it is applied somebody deletes the key.
    m1.hear(m2.records())
    m1.remove("web7")
    m1.deletion_told(["web7"], "carol")
    m1.settle()
    assert told(m1)[-1] == (
        "rejected on m2 by bob and deleted on m1 by carol, neither knowing of the other:"
        " rejected holds"
    )


def conflict(m1: Master, m2: Master) -> None:
    for key, (master, by) in enumerate(((m1, "alice"), (m2, "bob"))):
        master.knock("db2", key, ACCEPTED)
        master.keeper.observe(["db2"], by=by)
    exchange(m1, m2)


def test_a_conflict_its_beginning_and_who_ended_it(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    conflict(m1, m2)
    assert kinds(m1) == kinds(m2) == [BEGAN]
    exchange(m2, m1)
    decision = Decision({A: ACCEPTED, B: DELETED}, m2.replica.get("db2"))
    m2.keeper.decide({"db2": decision}, "root via ha.resolve")
    m2.settle()
    exchange(m1, m2)
    m1.restart()
    exchange(m2, m1)
    for master in pair:
        assert kinds(master) == [BEGAN, ENDED]
        began, ended = told(master)
        assert "accepted on m1 by alice" in began
        assert "accepted on m2 by bob" in began
        assert ended.endswith("deleted on m2 by root via ha.resolve; " + short(A) + " stays")


def test_a_conflict_that_salt_key_ends(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    conflict(m1, m2)
    m1.remove("db2")
    m1.deletion_told(["db2"])
    exchange(m1, m2)
    for master in pair:
        assert kinds(master) == [BEGAN, ENDED]
        assert told(master)[1].count("deleted on m1 by operator") == 2
        assert told(master)[1].endswith("no key is accepted now")


def test_a_transaction_that_is_undone_explains_nothing(
    pair: tuple[Master, Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2 = pair
    disagree(m1, m2)
    records = m2.records()

    def full(*arguments: object) -> None:
        raise ReplicaError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(m1.replica, "set_applied", full)
        with pytest.raises(ReplicaError):
            m1.hear(records)
    assert told(m1) == []
    m1.learn(records)
    assert kinds(m1) == [HOLDS]


def test_what_is_seen_twice_is_told_once(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    conflict(m1, m2)
    (line,) = (line for line in m1.replica.history.lines() if line.account)
    assert line.account
    for at in (1.0, time.time() + DAY):
        with m1.replica.transaction():
            m1.replica.history.explain("db2", line.account, at)
    assert [line.at for line in m1.replica.history.lines() if line.account] == [line.at]
    with m1.replica.transaction():
        m1.replica.history.explain("db3", line.account, 1.0)
    assert kinds(m1) == [BEGAN, BEGAN]


def short(key: bytes) -> str:
    return ":".join(f"{byte:02x}" for byte in key[:4]) + ":…"


# -- looking


def write(
    replica: Replica, minion_id: str, state: str, at: float, by: str = "alice", key: bytes = A
) -> None:
    record = replica.get(minion_id).get(key, Record(minion_id, key, public_key(0)))
    value = Value(replica.next_dot(), state, at, by, "m1")
    act = observe if state in OBSERVATIONS else decide
    with replica.transaction():
        replica.put(act(record, dict(record.context), value))


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    replica = Replica(tmp_path / "replica.db")
    yield replica
    replica.close()


def shown(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line.minion_id, line.state) for line in lines]


def test_lines_are_chosen_by_id_time_and_name(replica: Replica) -> None:
    write(replica, "web1", PENDING, 10.0, "minion")
    write(replica, "web1", ACCEPTED, 20.0, "alice")
    write(replica, "web2", ACCEPTED, 30.0, "alice via ha.restore")
    write(replica, "db1", REJECTED, 40.0, "alicia")
    lines = replica.history.lines
    assert shown(lines()) == [
        ("db1", REJECTED),
        ("web2", ACCEPTED),
        ("web1", ACCEPTED),
        ("web1", PENDING),
    ]
    assert shown(lines("web[!1]")) == [("web2", ACCEPTED)]
    assert shown(lines(limit=1)) == [("db1", REJECTED)]
    assert shown(lines(since=30.0)) == [("db1", REJECTED), ("web2", ACCEPTED)]
    assert shown(lines(by="alice")) == [("web2", ACCEPTED), ("web1", ACCEPTED)]
    assert shown(lines(by="ali*", limit=2)) == [("db1", REJECTED), ("web2", ACCEPTED)]
    assert lines(by="ha.restore") == []


def test_what_met_is_chosen_by_the_same(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    disagree(m1, m2)
    conflict(m1, m2)
    lines = m1.replica.history.lines

    def accounts(*args: object, **how: object) -> list[str]:
        return [line.account.kind for line in lines(*args, **how) if line.account]

    assert sorted(accounts()) == sorted([HOLDS, BEGAN])
    assert accounts("web*") == [HOLDS]
    assert accounts(since=time.time() + 60) == []
    assert sorted(accounts(by="bob")) == sorted([HOLDS, BEGAN])
    assert accounts(by="carol") == []
    assert len(accounts(limit=1)) == 1


# -- pruning


def pruned(replica: Replica, before: float) -> int:
    """Prune all, each transaction by itself; how many there were."""
    place: Cursor | None = BEGINNING
    count = 0
    while place:
        with replica.transaction():
            place = replica.history.prune(before, place)
        count += 1
    told: AccountPlace | None = BEGINNING_OF_ACCOUNTS
    while told:
        with replica.transaction():
            told = replica.history.prune_accounts(before, told)
    return count


def test_old_lines_go_and_the_last_of_each_key_stays(replica: Replica) -> None:
    for at, state in ((1.0, PENDING), (2.0, ACCEPTED), (3.0, REJECTED)):
        write(replica, "old", state, at)
        write(replica, "old", state, at, key=B)
    write(replica, "young", ACCEPTED, 4.0)
    write(replica, "young", REJECTED, 200.0)
    pruned(replica, 100.0)
    left = {(line.minion_id, line.key, line.at) for line in replica.history.lines()}
    assert left == {("young", A, 200.0), ("old", A, 3.0), ("old", B, 3.0)}


def test_a_value_that_still_stands_keeps_its_line(replica: Replica) -> None:
    write(replica, "web1", ACCEPTED, 1.0)
    write(replica, "web1", DELETED, 2.0)
    write(replica, "web1", PENDING, 3.0, "minion")
    write(replica, "web1", PENDING, 4.0, "minion")
    pruned(replica, 100.0)
    # The tombstone stands beside the knock, and says why this key was not let in.
    assert [line.state for line in replica.history.lines()] == [PENDING, DELETED]
    assert [line.at for line in replica.history.lines()] == [4.0, 2.0]


def test_lines_of_a_key_without_a_record_go_altogether(replica: Replica) -> None:
    write(replica, "web1", ACCEPTED, 1.0)
    write(replica, "web2", ACCEPTED, 1.0)
    with replica.transaction():
        replica.drop(replica.get("web1")[A])
    pruned(replica, 100.0)
    assert [line.minion_id for line in replica.history.lines()] == ["web2"]


def test_a_transaction_prunes_a_limited_number(replica: Replica) -> None:
    count = 3 * BATCH
    with replica.transaction():
        replica._db.executemany(
            "INSERT INTO history VALUES (?, ?, 'web1', ?, 'pending', ?, 'minion', 'm1', ?, 0)",
            [
                ("f" * 16, number, A, float(number % 7), float(number % 7))
                for number in range(1, count + 1)
            ],
        )
    write(replica, "web1", ACCEPTED, 50.0)
    with replica.transaction():
        place = replica.history.prune(100.0, BEGINNING)
    assert place
    assert len(replica.history.lines(limit=9999)) == count + 1 - BATCH
    assert pruned(replica, 100.0) == 3
    assert [line.at for line in replica.history.lines()] == [50.0]


def test_what_met_goes_but_for_the_last_of_a_key(pair: tuple[Master, Master]) -> None:
    m1, m2 = pair
    for _ in range(2):
        disagree(m1, m2)
        exchange(m1, m2)
        for master in pair:
            master.remove("web7")
            master.deletion_told(["web7"], "carol")
        exchange(m1, m2)
    assert len(told(m1)) > 1
    last = told(m1)[-1]
    pruned(m1.replica, time.time() + DAY)
    assert told(m1) == [last]
    conflict(m1, m2)
    with m1.replica.transaction():
        for record in m1.replica.get("web7").values():
            m1.replica.drop(record)
    pruned(m1.replica, time.time() + DAY)
    assert kinds(m1) == [BEGAN]


@in_a_loop
async def test_the_engine_prunes_and_answers(tmp_path: Path) -> None:
    async with Engine(Place(tmp_path, "m1", {"keep_history": 2})) as engine:
        core, now = engine.parts.core, time.time()

        def fill() -> None:
            for days in (9.0, 8.0, 3.0, 1.0):
                write(core.replica, "web1", ACCEPTED, now - days * DAY, "root via ha.restore")

        await core.run(fill)
        ask = engine.made.commands["history"]
        assert len((await ask({}))["writes"]) == 4
        pruning = asyncio.ensure_future(
            prune_regularly(core, engine.parts.config.keep_history, interval=0.01)
        )

        async def left() -> int:
            return len((await ask({}))["writes"])

        await becomes(left, 1)
        pruning.cancel()

        await core.run(write, core.replica, "web2", REJECTED, now, "bob")
        answer = await ask({"limit": 1})
        assert answer["more"] is True
        (line,) = answer["writes"]
        assert (line["id"], line["by"], line["what"]) == ("web2", "bob", "rejected")
        answer = await ask({"glob": "web1", "since": "25h", "by_whom": "root"})
        assert answer["more"] is False
        (line,) = answer["writes"]
        assert (line["by"], line["why"], line["on"]) == ("root", "ha.restore", "m1")
        assert line["time"] == time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(now - DAY))
        for payload, said in (
            ({"since": "2x"}, "2h"),
            ({"since": "h"}, "2h"),
            ({"limit": 0}, "whole number"),
            ({"limit": "ten"}, "'ten'"),
        ):
            with pytest.raises(HaError, match=said):
                await ask(payload)


# -- what came from others, and what they say of it


def claimed(minion_id: str, at: float, counter: int = 1) -> Record:
    """An acceptance as another master sends it: it says that alice made it, on m1."""
    value = Value(Dot("e" * 16, counter), ACCEPTED, at, "alice", "m1")
    return decide(Record(minion_id, A, public_key(0)), {}, value)


def test_what_is_dated_back_is_found_by_when_and_from_whom_it_came(m1: Master) -> None:
    began = time.time()
    m1.keeper.learn([claimed("backdoor", began - 365 * DAY)], "m3")
    m1.knock("web1")
    m1.scan()
    own, line = m1.replica.history.lines(since=began - 1)
    assert (line.minion_id, line.sender, line.by, line.on) == ("backdoor", "m3", "alice", "m1")
    assert began <= line.received <= time.time()
    assert (own.minion_id, own.sender, own.received) == ("web1", "", own.at)
    row = history_text.row(line, "m1")
    assert (row["from"], row["at"], row["received"]) == ("m3", line.at, line.received)
    assert history_text.row(own, "m1")["from"] == "m1"
    # It is not first to go, either, nor does one dated ahead stay for ever.
    m1.keeper.learn([claimed("later", began + 999 * DAY, counter=2)], "m3")
    with m1.replica.transaction():
        for minion_id in ("backdoor", "later"):
            m1.replica.drop(m1.replica.get(minion_id)[A])
    pruned(m1.replica, began - DAY)
    assert {line.minion_id for line in m1.replica.history.lines()} == {"backdoor", "later", "web1"}
    pruned(m1.replica, time.time() + DAY)
    assert [line.minion_id for line in m1.replica.history.lines()] == ["web1"]


def test_who_brought_it_first_stays_the_one_who_brought_it(m1: Master) -> None:
    record = claimed("backdoor", 5.0)
    m1.keeper.learn([record], "m3")
    m1.keeper.learn([record], "m2")
    m1.restart()
    m1.keeper.learn([claimed("web2", 5.0, counter=7)], "m2")
    assert {(line.minion_id, line.sender) for line in m1.replica.history.lines()} == {
        ("backdoor", "m3"),
        ("web2", "m2"),
    }


def test_the_last_page_of_what_came_from_a_master_costs_no_more_than_the_first(m1: Master) -> None:
    """Not even where all came at once, as when a master joins."""
    m1.keeper.learn(
        [claimed(f"web{number}", 5.0, counter=number) for number in range(1, 601)], "m3"
    )
    history, steps = m1.replica.history, list[int]()
    after, since = BEGINNING, 0.0
    for _ in range(6):
        steps.append(0)
        history._db.set_progress_handler(lambda: steps.append(steps.pop() + 1), 20)
        page = history.told_by(["m3"], since, after, 100)
        history._db.set_progress_handler(None, 0)
        assert len(page) == 100
        after = (page[-1].received, page[-1].node, page[-1].counter)
    assert history.told_by(["m3"], since, after, 100) == []
    assert history.told_by(["m3"], time.time() + DAY, BEGINNING, 100) == []
    assert max(steps) < 1.5 * steps[0], steps


def test_of_lines_without_a_sender_it_is_unknown(tmp_path: Path) -> None:
    """Files that were upgraded have them."""
    path = tmp_path / "replica.db"
    Replica(path).close()
    line = ("0" * 16, 3, "web1", A, ACCEPTED, 5.0, "operator", "m1", 5.0, None)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", line)
    replica = Replica(path)
    (found,) = replica.history.lines()
    assert (found.at, found.received, found.sender) == (5.0, 5.0, None)
    row = history_text.row(found, "m1")
    assert (row["received"], row["received_time"], row["from"]) == (None, None, None)
    replica.close()
