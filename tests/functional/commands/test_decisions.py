"""``ha.resolve`` and ``ha.restore``: what they decide, and who writes it."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine
from lab.key_folders import PENDING
from saltext_ha.commands.arguments import span
from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, UncleanCaches
from saltext_ha.keystore import minion_key
from saltext_ha.keystore.minion_key import fingerprint
from saltext_ha.reconciler.keeper import Decision
from saltext_ha.replication.record import DELETED, Dot, Record, Value, decide
from tests.engines import (
    accepted,
    decisions,
    delete,
    level,
    met,
    places,
    put,
    records,
    run,
    sharing,
    there,
)
from tests.keys import public_keys
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

KEYS = public_keys(2)


@in_a_loop
async def test_masters_that_observe_write_nothing_and_say_so(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    right = minion_key.show(fingerprint(KEYS[0]), short=False)
    put(one, "web1", 0)
    put(two, "web1", 1)
    async with sharing(["web2"], one, two) as (m1, m2):
        await until(lambda: len(records(m1)) == len(records(m2)) == 2, "a conflict")
        for engine in (m1, m2):
            engine.parts.core.mode.shared = "its key store is shared"
        left = [f"{n}: not changed: its mode is observe" for n in ("m1", "m2")]
        done = await run(one, "resolve", "web1", right)
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        (one.pki_dir / "minions" / "web2").unlink()
        await until(lambda: m1.parts.core.replica.held.count == 1, "held")
        refused = await run(one, "refill")
        assert "m1 does not write its key store: its key store is shared" in refused["error"]
        assert m1.parts.core.replica.held.count == 1
        done = await run(one, "release", deletes=1)
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)


@in_a_loop
async def test_a_decision_that_was_written_is_not_said_to_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though something else is wrong on this master, which its status tells."""
    one, two = places(tmp_path, "m1", "m2")
    right = minion_key.show(fingerprint(KEYS[1]), short=False)
    put(one, "web1", 0)
    put(two, "web1", 1)

    def fail(gone: Any, rotate: bool) -> None:
        raise UncleanCaches("the caches could not be cleaned")

    async with sharing(["web2"], one, two) as (m1, m2):
        await until(lambda: len(records(m1)) == len(records(m2)) == 2, "a conflict")
        monkeypatch.setattr(m1.parts.core.keeper.reconciler.revocations, "_revoke", fail)
        await delete(m2, "web2")
        await until(lambda: "caches" in m1.parts.core.problem, "they cannot be cleaned")
        done = await run(one, "resolve", "web1", right)
        assert "caches" in m1.parts.core.problem
        assert (one.pki_dir / "minions" / "web1").read_text() == KEYS[1]
        assert (done["written"], done["retcode"], done["notes"]) == (True, 0, [])


@in_a_loop
async def test_a_decision_says_who_writes_it_now_and_not_who_did_when_they_met(
    tmp_path: Path,
) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(("web1", "web2"), one, two) as (m1, _):
        await delete(m1, "web1", "web2")
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        assert (await run(one, "pause", all=True))["retcode"] == 0
        left = [f"{name}: not changed: its mode is paused" for name in ("m1", "m2")]
        done = await run(one, "restore", "web1")
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        made = await run(one, "sync")
        assert made["notes"] == [note.replace("not", "1 not") for note in left]
        await run(two, "resume")
        done = await run(one, "restore", "web2")
        assert (done["written"], done["retcode"], done["notes"]) == (True, 0, left[:1])


@in_a_loop
async def test_a_decision_that_no_master_writes_is_no_success(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    left = [f"{n}: not changed: its mode is observe" for n in ("m1", "m2")]
    ids = [f"web{number}" for number in range(6)]
    async with sharing(ids, one, two) as (m1, m2):
        await delete(m1, *ids)
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        for engine in (m1, m2):
            engine.parts.core.mode.shared = "its key store is shared"
        many: dict[str, Any] = {"since": "1h"}
        assert (await run(one, "restore", "web0", test=True))["retcode"] == 0
        assert (await run(one, "restore", "web[0]", **many, test=True))["retcode"] == 0
        for done in (
            await run(one, "restore", "web0"), await run(one, "restore", "web[12]", **many)
        ):  # fmt: skip
            assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        # One that writes is enough: the other follows when it may.
        m2.parts.core.mode.shared = ""
        for done in (
            await run(one, "restore", "web3"), await run(one, "restore", "web[45]", **many)
        ):  # fmt: skip
            assert (done["written"], done["retcode"], done["notes"]) == (True, 0, left[:1])
        none = await run(one, "restore", "nobody*", **many)
        assert (none["changes"], none["retcode"]) == ([], 1)
        assert none["notes"][0].startswith(
            "no key of an id that matches 'nobody*' was deleted or rejected within 1h"
        )


@in_a_loop
async def test_what_was_deleted_by_mistake_is_restored_by_a_glob(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 100})
    async with sharing(("web1", "web2", "db1", "twice"), one, two) as (m1, m2):
        put(one, "twice", 1)
        await m1.hint("twice")
        await delete(m1, "web1", "web2", "db1", "twice")
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        await level(m1, m2)  # m2 knows of the second key, too
        for payload, message in (
            ({"minion": "*"}, "say since when"),
            ({"minion": "*", "since": "soon"}, "no span of time"),
            ({"minion": "*", "since": "1h", "fingerprint": "aa"}, "belongs to one minion"),
            ({"minion": "web1", "since": "1h"}, "since= is for a glob"),
        ):
            with pytest.raises(HaError, match=message):
                await decisions(m2).restore(payload)
        plan = await decisions(m2).restore({"minion": "*", "since": "1h", "test": True})
        assert [c["id"] for c in plan["changes"]] == ["db1", "web1", "web2"]
        assert plan["notes"] == [n for n in plan["notes"] if "several keys of twice" in n]
        assert accepted(two) == [set()]
        done = await decisions(m2).restore({"minion": "web*", "since": "1h"})
        assert [c["id"] for c in done["changes"]] == ["web1", "web2"]
        await until(lambda: accepted(one, two) == [{"web1", "web2"}] * 2, "restored")


@in_a_loop
async def test_minions_that_knocked_since_they_were_deleted_are_restored_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As minions that run do, within seconds."""
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(("web1", "web2"), one, two) as (m1, m2):
        writer = m1.parts.core.keeper._writer
        with monkeypatch.context() as an_hour_ago:
            an_hour_ago.setattr(writer, "clock", lambda: time.time() - 3600)
            await delete(m1, "web1")
            await until(lambda: records(m1)[fingerprint(KEYS[0])].state == DELETED, "recorded")
        await delete(m1, "web2")
        for minion_id in ("web1", "web2"):
            put(one, minion_id, folder=PENDING)
            await m1.hint(minion_id)
        await until(lambda: there(two, "minions_pre") == {"web1", "web2"}, "both knocked")
        # When they knocked does not matter.
        done = await decisions(m2).restore({"minion": "*", "since": "30m"})
        assert [row["id"] for row in done["changes"]] == ["web2"]
        assert (done["notes"], done["retcode"]) == ([], 0)
        done = await decisions(m2).restore({"minion": "*", "since": "2h"})
        assert [row["id"] for row in done["changes"]] == ["web1"]
        await until(lambda: accepted(one, two) == [{"web1", "web2"}] * 2, "restored")


@in_a_loop
async def test_a_glob_restores_no_key_that_was_never_accepted(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    put(one, "web1")
    async with met(one, two) as (m1, m2):
        for minion_id, key in (("web1", 1), ("web2", 0), ("web3", 0)):
            put(one, minion_id, key, "minions_denied" if key else PENDING)
            await m1.hint(minion_id)
        await until(lambda: there(two, "minions_pre") == {"web2", "web3"}, "they knocked")
        await level(m1, m2)
        (one.pki_dir / "minions_denied" / "web1").unlink()
        (one.pki_dir / "minions_pre" / "web2").unlink()
        (one.pki_dir / "minions_rejected").mkdir(exist_ok=True)
        (one.pki_dir / "minions_pre" / "web3").rename(one.pki_dir / "minions_rejected" / "web3")
        await delete(m1, "web1")
        for minion_id in ("web2", "web3"):
            await m1.hint(minion_id, gone=minion_id == "web2")
        await until(lambda: there(two, "minions_rejected") == {"web3"}, "rejected")
        await level(m1, m2)
        for engine in (m1, m2):
            plan = await decisions(engine).restore({"minion": "*", "since": "1h", "test": True})
            assert [row["id"] for row in plan["changes"]] == ["web1"]
            assert plan["retcode"] == 1
            assert plan["notes"] == [
                f"3 keys left alone, never accepted as far as {engine.place.name} knows (web1, "
                "web2, web3). If some are yours: run this on the master where they were deleted, "
                "or ha.restore ID for each"
            ]
        # By its name it can be.
        done = await decisions(m2).restore({"minion": "web3"})
        assert [row["id"] for row in done["changes"]] == ["web3"]


@in_a_loop
async def test_a_glob_restores_no_key_of_which_only_the_end_is_known(tmp_path: Path) -> None:
    """A master that was down does not know whether the key was a stranger's."""
    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        await m2.stop()
        put(one, "web1", folder=PENDING)
        await m1.hint("web1")
        await until(lambda: records(m1), "it knocked")
        (one.pki_dir / "minions_pre" / "web1").unlink()
        await m1.hint("web1", gone=True)
        async with Engine(two) as m2:
            await m2.meets(m1)
            await level(m1, m2)
            plan = await decisions(m2).restore({"minion": "*", "since": "1h", "test": True})
        assert (plan["changes"], plan["retcode"]) == ([], 1)
        assert "1 key left alone, never accepted as far as m2 knows" in plan["notes"][0]


@in_a_loop
async def test_many_are_restored_in_batches_and_what_is_left_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saltext_ha.commands.keys.decisions.BATCH", 2)
    monkeypatch.setattr("saltext_ha.commands.keys.decisions.batches", partial(batches, size=2))
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 100})
    ids = [f"web{number}" for number in range(5)]
    since = {"minion": "*", "since": "1h"}

    async with sharing(ids, one, two) as (m1, _):
        await delete(m1, *ids)
        await until(lambda: accepted(one, two) == [set(), set()], "deleted")
        order, orders = m1.parts.core.order, []

        async def once(*arguments: Any) -> list[Record]:
            orders.append(arguments)
            if len(orders) == 2:
                raise HaError("the disk is full")
            return await order(*arguments)

        monkeypatch.setattr(m1.parts.core, "order", once)
        done = await decisions(m1).restore(since)
        assert [row["id"] for row in done["changes"]] == ids[:2]
        left = ["3 ids from web2 on are left: the disk is full"]
        assert (done["notes"], done["retcode"]) == (left, 1)
        done = await decisions(m1).restore(since)
        assert [row["id"] for row in done["changes"]] == ids[2:]
        await until(lambda: accepted(one, two) == [{*ids}] * 2, "restored")
        assert len(orders) == 4


@pytest.mark.parametrize("command", ["resolve", "restore"])
@in_a_loop
async def test_who_decides_knew_what_was_shown_and_no_more(tmp_path: Path, command: str) -> None:
    """A peer's deletion arrives in between: it was not overruled, so it holds."""
    one, two = places(tmp_path, "m1", "m2")
    right = fingerprint(KEYS[0])
    put(one, "web1", 0)
    put(two, "web1", 1)
    async with met(one, two) as (m1, m2):
        await until(lambda: len(records(m1)) == len(records(m2)) == 2, "a conflict")
        core = m1.parts.core
        if command == "restore":
            states = dict.fromkeys(shown := records(m1), DELETED)
            await core.order(core.keeper.decide, {"web1": Decision(states, shown)}, "")
        later = [
            decide(record, dict(record.context), Value(Dot("e" * 16, n), DELETED, 1, "", "m3"))
            for n, record in enumerate(records(m1).values(), 1)
        ]
        payload = {"minion": "web1", "fingerprint": minion_key.show(right, short=False)}
        asked = asyncio.ensure_future(getattr(decisions(m1), command)(payload))
        await asyncio.sleep(0)  # it has begun to look
        answer, _ = await asyncio.gather(asked, core.learn(later))
        assert (answer["retcode"], answer["changes"][1:]) == (1, [])
        assert "web1: another decision arrived" in answer["notes"][0]
        await level(m1, m2)
        assert {record.state for record in records(m1).values()} == {DELETED}
        assert {"m1", "m3"} <= {value.on for value in records(m2)[right].values}
        assert accepted(one, two) == [set(), set()]


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5d", 129600)]
)
def test_spans_of_time(text: str, expected: float) -> None:
    assert span(text) == expected
