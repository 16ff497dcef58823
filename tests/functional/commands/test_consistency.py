"""Engines that ask each other what they are, and what an operator is told."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place, befriend
from saltext_ha.commands.consistency import consistency_check, consistency_watch
from saltext_ha.common.errors import PeerRefused
from saltext_ha.config.consistency import ConsistencySettings
from saltext_ha.consistency import digests, sections
from saltext_ha.replication.placement import Stored
from saltext_ha.salt_bus.announce import Announcer
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.group import Group
from saltext_ha.sync.links import Links
from saltext_ha.sync.server import SyncServer
from saltext_ha.transport import wire
from saltext_ha.transport.client import PeerClient, call_once
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.trust import Trust
from tests.engines import met, put, run, same_records
from tests.functional.comparing import SECRET, Answer, checked, found, place
from tests.loop import becomes, in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@in_a_loop
async def test_nothing_differs_and_next_to_nothing_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [place(tmp_path, name) for name in ("m1", "m2", "m3")]
    asked: list[tuple[str, str, int]] = []
    real = PeerClient.call

    async def call(self: PeerClient, method: str, payload: Any = None, *more: Any) -> Any:
        said = await real(self, method, payload, *more)
        asked.append((self.peer.name, method, len(wire.pack(payload)) + len(wire.pack(said))))
        return said

    async with met(*places):
        monkeypatch.setattr(PeerClient, "call", call)
        began = time.monotonic()
        answer = await run(places[0], "check_consistency")
        took = time.monotonic() - began
        assert (answer["status"], answer["retcode"], found(answer)) == ("same", 0, {})
        assert tuple(answer["sections"]) == sections.NAMES
        assert answer["sections"]["roots"]["counts"] == {"differ": 0, "of": 3 + 2}
        offsets = answer["sections"]["clock"]["offsets"]
        assert offsets.keys() == {"m2", "m3"}
        assert all(abs(one["offset"]) <= one["error"] < took for one in offsets.values())
    # What the engines say to each other besides is more, the longer it takes.
    told = [each for each in asked if each[1] in ("clock", "consistency", "facts", "keys")]
    assert {method for _, method, _ in told} == {"clock", "consistency"}
    for name in ("m2", "m3"):
        assert 0 < sum(size for peer, _, size in told if peer == name) < 4096


@in_a_loop
async def test_details_are_asked_for_only_where_something_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    taken: list[str] = []
    call, take = Contact.call, consistency_check._facts

    def once(name: str, mine: Any) -> Any:
        taken.append(mine.config.name)
        return take(name, mine)

    monkeypatch.setattr(consistency_check, "_facts", once)

    async def noted(self: Contact, method: str, *arguments: Any) -> Any:
        asked.append(method)
        return await call(self, method, *arguments)

    async def questions(one: Place, only: str) -> list[str]:
        asked.clear()
        await run(one, "check_consistency", only=only)
        return [method for method in asked if method in ("clock", "consistency", "facts")]

    one, two = place(tmp_path, "m1"), place(tmp_path, "m2", open_mode=True)

    async with met(one, two):
        monkeypatch.setattr(Contact, "call", noted)
        assert await questions(one, "versions") == ["clock", "consistency"]
        assert await questions(one, "clock") == [*["clock"] * 3, "consistency"]
        taken.clear()
        assert await questions(one, "access") == ["clock", "consistency", "facts"]
        assert sorted(taken) == ["m1", "m2"], "of one and the same moment"


@in_a_loop
async def test_a_master_that_joined_just_now_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned, and not yet talked to."""
    one, two, three = (place(tmp_path, name) for name in ("m1", "m2", "m3"))

    async def later(self: Links) -> None:
        pass

    async with met(one, two):
        monkeypatch.setattr(Links, "follow", later)
        Trust(one.config.state_dir).pin(three.peer)
        answer = await run(one, "check_consistency")
        assert answer["unknown"] == {"m3": "joined just now; not asked yet"}
        assert (answer["masters"], answer["retcode"]) == (["m1", "m2", "m3"], 2)


@in_a_loop
async def test_unchanged_files_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    reading, now = digests._read, time.time_ns

    def noted(path: str, *stop: Any) -> tuple[bytes, digests.Mark]:
        read.append(path)
        return reading(path, *stop)

    monkeypatch.setattr(digests, "_read", noted)
    # What was written just now is read again: it might change once more unseen.
    monkeypatch.setattr(digests.time, "time_ns", lambda: now() + 10_000_000_000)
    places = [place(tmp_path, name) for name in ("m1", "m2")]
    changed = tmp_path / "m2/srv/web/init.sls"

    async with met(*places):
        await run(places[0], "check_consistency")
        assert len(read) == 2 * 3
        await run(places[1], "check_consistency")
        assert len(read) == 2 * 3, "whoever asks"
        changed.write_text("other")
        answer = await run(places[0], "check_consistency")
        assert read[2 * 3 :] == [str(changed)]
        assert set(found(answer)) == {"roots:file_roots:base:web/init.sls"}


def test_a_secret_that_differs_is_found_and_not_shown(tmp_path: Path) -> None:
    options = {
        "ext_pillar": [{"vault": {"token": SECRET}}],
        "master_job_cache": "redis",
        "redis.password": SECRET,
    }
    answer = checked(place(tmp_path, "m1"), place(tmp_path, "m2", **options))
    assert set(found(answer)) == {f"options:{option}" for option in options}
    assert answer["retcode"] == 1


def test_files_that_differ(tmp_path: Path) -> None:
    one, two, three = (place(tmp_path, name) for name in ("m1", "m2", "m3"))
    (tmp_path / "m2/srv/top.sls").write_text("other")
    (tmp_path / "m3/srv/extra").write_text("extra")
    (tmp_path / "m3/pillar/top.sls").write_text(f"{SECRET} 2")
    told = found(checked(one, two, three))
    assert set(told) == {
        "roots:file_roots:base:extra",
        "roots:file_roots:base:top.sls",
        "roots:pillar_roots:base:top.sls",
    }
    top = told["roots:file_roots:base:top.sls"]
    assert top["m1"] == top["m3"] != top["m2"]
    assert told["roots:file_roots:base:extra"] == {
        "m1": {"absent": True},
        "m2": {"absent": True},
        "m3": told["roots:file_roots:base:extra"]["m3"],
    }


def test_files_that_were_edited_without_a_restart(tmp_path: Path) -> None:
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2")
    path = Path(two.opts["conf_file"])
    path.write_text(json.dumps({**json.loads(path.read_text()), "nodegroups": {"a": "b*"}}))
    assert found(checked(one, two)) == {
        "running:nodegroups:a": {"m2": {"file": "b*", "running": {"absent": True}}}
    }


@in_a_loop
async def test_only_what_is_asked_for(tmp_path: Path) -> None:
    places = place(tmp_path, "m1"), place(tmp_path, "m2", open_mode=True, hash_type="md5")
    async with met(*places):
        answer = await run(places[1], "check_consistency", only="access,keys")
        assert tuple(answer["sections"]) == ("keys", "access")
        assert set(found(answer)) == {"access:open_mode"}
        assert (await run(places[1], "check_consistency", only="versions"))["retcode"] == 0
        wrong = await run(places[1], "check_consistency", only="acess")
        assert wrong["retcode"] == 2
        assert "did you mean 'access'" in wrong["error"]


def test_what_is_ignored_where_it_is_asked(tmp_path: Path) -> None:
    ignore = {
        "consistency": {"interval": 0, "ignore": ["access:open_mode", "nodegroups:*", "ha:*"]}
    }
    one = place(tmp_path, "m1", ignore)
    two = place(tmp_path, "m2", open_mode=True, nodegroups={"a": "b"}, auto_accept=True)
    answer = checked(one, two)
    assert set(found(answer)) == {"access:auto_accept"}
    assert answer["sections"]["access"]["ignored"] == 2


@in_a_loop
async def test_a_master_that_does_not_answer_is_unknown(tmp_path: Path) -> None:
    places = [place(tmp_path, name) for name in ("m1", "m2", "m3")]
    async with met(*places) as engines:
        await engines[2].stop()
        answer = await run(places[0], "check_consistency")
        assert (answer["status"], answer["retcode"]) == ("unknown", 2)
        assert "m3" in answer["unknown"]
        assert {part["status"] for part in answer["sections"].values()} == {"unknown"}


@in_a_loop
async def test_keys_that_differ_conflict_or_are_denied(tmp_path: Path) -> None:
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2", {"mode": "observe"})
    put(one, "db1")
    put(two, "db1", 1)
    put(one, "web1", 2)
    put(one, "web1", 3, "minions_denied")
    async with met(one, two) as (m1, m2):
        await same_records(m1, m2)
        answer = await run(one, "check_consistency", only="keys")
        told = {entry["path"]: entry for entry in answer["sections"]["keys"]["differences"]}
        assert told.keys() == {"db1", "web1", "denied"}
        assert told["db1"]["conflict"]
        assert "ha.resolve db1" in told["db1"]["fix"]
        states = told["web1"]["keys"].values()
        assert {tuple(state.items()) for state in states} == {
            (("m1", "accepted"), ("m2", None)),
            (("m1", "denied"), ("m2", None)),
        }
        assert told["denied"]["severity"] == "note"
        assert told["denied"]["values"] == {"m1": 1, "m2": 0}
        assert answer["retcode"] == 1


@in_a_loop
async def test_of_the_keys_that_differ_only_those_that_are_ignored_do_not_count(
    tmp_path: Path,
) -> None:
    ignore = {"consistency": {"interval": 0, "ignore": ["keys:denied", "keys:db2"]}}
    one, two = place(tmp_path, "m1", ignore), place(tmp_path, "m2", {"mode": "observe"})
    put(one, "db1")
    put(one, "db2", 1)
    put(one, "db1", 2, "minions_denied")
    async with met(one, two) as (m1, m2):
        await same_records(m1, m2)
        section = (await run(one, "check_consistency", only="keys"))["sections"]["keys"]
        assert [entry["path"] for entry in section["differences"]] == ["db1"]
        assert (section["ignored"], section["counts"]) == (2, {"differ": 1, "of": 2})


@in_a_loop
async def test_a_conflict_is_told_where_the_stores_that_can_be_asked_are_the_same(
    tmp_path: Path,
) -> None:
    places = [place(tmp_path, name) for name in ("m1", "m2", "m3")]
    for where, key in zip(places, (0, 1, 0), strict=True):
        put(where, "db1", key)
    async with met(*places) as engines:
        await same_records(*engines)
        await engines[1].stop()
        answer = await run(places[0], "check_consistency", only="keys")
        (entry,) = answer["sections"]["keys"]["differences"]
        assert (entry["path"], entry["conflict"]) == ("db1", True)
        assert entry["values"]["m1"] == entry["values"]["m3"]
        assert (await run(places[0], "keys_"))["retcode"] == 2
        # Its key is still accepted for all who know of it.
        await run(places[0], "remove_peer", "m2")
        await until(lambda: engines[0].parts.group.contacts.keys() == {"m3"}, "m2 is removed")
        told = await run(places[0], "keys_")
        assert [(row["same"], row["conflict"]) for row in told["keys"]] == [(True, True)] * 2
        assert (told["unknown"], told["retcode"]) == ({}, 1)


@in_a_loop
async def test_keys_under_way_are_no_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the digests differ, and the key has arrived by the time that it is looked at."""
    quiet = {"sync_interval": 3600}
    one, two = place(tmp_path, "m1", quiet), place(tmp_path, "m2", quiet)
    looked_at: list[list[str]] = []
    push, keys_of = SyncServer._push, Group.keys_of

    looked = asyncio.Event()

    async def late(self: SyncServer, peer: Peer, payload: Answer) -> Answer:
        await looked.wait()
        return await push(self, peer, payload)

    async def after(
        self: Group, ids: list[str], errors: dict[str, str]
    ) -> dict[str, dict[str, Stored]]:
        if ids and self.name == "m1":
            looked_at.append(ids)
            looked.set()
            await until(lambda: (two.pki_dir / "minions" / "web1").exists(), "it is there")
            await until(same, "m2 knows")
        return await keys_of(self, ids, errors)

    monkeypatch.setattr(SyncServer, "_push", late)
    monkeypatch.setattr(Group, "keys_of", after)
    async with met(one, two) as (m1, m2):

        def same() -> bool:
            roots = [e.parts.core.replica.placements.root for e in (m1, m2)]
            return roots[0] == roots[1]

        put(one, "web1")
        answer = await run(one, "check_consistency", only="keys")
        assert looked_at == [["web1"]]
        assert (found(answer), answer["retcode"]) == ({}, 0)
        assert answer["sections"]["keys"]["counts"] == {"differ": 0, "of": 1}


@in_a_loop
async def test_changes_that_are_held(tmp_path: Path) -> None:
    one = place(tmp_path, "m1", {"hold_minimum": 0, "hold_fraction": 0})
    two = place(tmp_path, "m2")
    for number, name in enumerate(("web1", "web2")):
        put(one, name, number)

    async with met(one, two) as (m1, _):
        core = m1.parts.core
        (one.pki_dir / "minions" / "web1").unlink()

        async def held() -> None:
            while not await core.run(core.replica.held.all):
                await core.scan()
                await asyncio.sleep(0.05)

        await asyncio.wait_for(held(), 60)
        answer = await run(one, "check_consistency", only="keys")
        (entry,) = (
            entry for entry in answer["sections"]["keys"]["differences"] if entry["path"] == "held"
        )
        assert entry["values"] == {"m1": 1, "m2": 0}
        assert "ha.refill test=True on m1" in entry["fix"]
        assert answer["retcode"] == 1


def test_a_section_that_fails_is_unknown_and_takes_nothing_along(tmp_path: Path) -> None:
    # No release of Salt would start with this; an engine must not end by it.
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2", open_mode=True)
    two.opts["file_roots"] = {"base": 7}
    answer = checked(one, two)
    assert "TypeError" in answer["sections"]["roots"]["unknown"]["m2"]
    assert answer["sections"]["roots"]["status"] == "unknown"
    assert answer["sections"]["access"]["status"] == "differ"
    assert answer["retcode"] == 2


@in_a_loop
async def test_strangers_questions_are_refused(tmp_path: Path) -> None:
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2")
    async with met(one, two) as (_, m2):
        for method, payload in (
            ("consistency", {"nonce": b"short", "sections": ["access"]}),
            ("consistency", {"nonce": b"n" * 32, "sections": "access"}),
            ("facts", {"nonce": b"n" * 32, "buckets": {"access": b"short"}}),
            ("facts", {"nonce": b"n" * 32, "buckets": []}),
        ):
            with pytest.raises(PeerRefused):
                await call_once(m2.parts.identity, one.peer, method, payload)
        unknown = {"nonce": b"n" * 32, "sections": ["nonsense", 7, None]}
        answer = await call_once(m2.parts.identity, one.peer, "consistency", unknown)
        assert answer == {"digests": {}}


@in_a_loop
async def test_events_when_the_answer_changes_and_the_last_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[tuple[str, Any]] = []
    monkeypatch.setattr(Announcer, "__call__", lambda self, tag, data: fired.append((tag, data)))
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2")
    top = tmp_path / "m2/srv/top.sls"
    former = top.read_text()

    def events() -> list[str]:
        return [tag for tag, data in fired if data.get("master") == "m1"]

    async with Engine(two):
        async with Engine(one) as m1:
            befriend(one, two)
            await m1.meets(two)
            assert (await run(one, "status"))["consistency"] is None
            await run(one, "check_consistency")
            assert events() == []
            top.write_text("other")
            await run(one, "check_consistency", only="roots")
            assert events() == []
            for _ in range(2):
                await run(one, "check_consistency")
            assert events() == ["drift"]
            # Of others, as that a peer is up, some may come later.
            *_, drift = (data for tag, data in fired if tag == "drift")
            assert drift["differences"] == ["roots:file_roots:base:top.sls"]
            assert (await run(one, "status"))["consistency"]["counts"] == {"roots": 1}
        async with Engine(one) as m1:
            assert (await run(one, "status"))["consistency"]["counts"] == {"roots": 1}
            await m1.meets(two)
            await run(one, "check_consistency")
            assert events() == ["drift"]
            top.write_text(former)
            await run(one, "check_consistency")
            assert events() == ["drift", "consistent"]
            assert (await run(one, "status"))["consistency"]["status"] == "same"


@in_a_loop
async def test_the_engine_checks_by_itself(tmp_path: Path) -> None:
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2", open_mode=True)
    # More often than the configuration takes.
    one.config = dataclasses.replace(one.config, consistency=ConsistencySettings(interval=0.2))
    async with met(one, two) as (m1, m2):

        def drifted() -> bool:
            return ((m1.parts.watch.shown() or {}).get("counts") or {}).get("access") == 1

        await until(drifted, "it has found it")
        assert m2.parts.watch.shown() is None


@in_a_loop
async def test_what_a_deployment_mends_is_shown_as_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On all masters, and long before the next comparison is due."""
    monkeypatch.setattr(consistency_watch, "SETTLED", 0.2)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "web.sls").write_text("{}\n")
    places = []
    for name in ("m1", "m2"):
        live = str(tmp_path / name / "live")
        tree = {"source": str(tmp_path / "source"), "live": live}
        ha = {"consistency": {"interval": 600}, "trees": {"states": tree}}
        places.append(place(tmp_path, name, ha, file_roots={"base": [live]}))
    one, two = places

    async def statuses() -> list[str]:
        shown = [(await run(each, "status"))["consistency"] for each in places]
        return [each["status"] for each in shown if each]

    async with met(one, two):
        assert (await run(one, "deploy"))["retcode"] == 0
        await becomes(statuses, ["same", "same"])
        (tmp_path / "m2" / "live" / "web.sls").write_text("by hand\n")
        for each in places:
            await run(each, "check_consistency")
        assert await statuses() == ["differ", "differ"]
        assert (await run(one, "deploy"))["retcode"] == 0
        await becomes(statuses, ["same", "same"])


@pytest.mark.parametrize("section", ["roots", "running"])
@in_a_loop
async def test_a_file_system_that_hangs_is_unknown_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    one, two = place(tmp_path, "m1"), place(tmp_path, "m2", open_mode=True)
    free = threading.Event()
    take = consistency_check._facts

    def hang(name: str, mine: Any) -> Any:
        if mine.config.name == "m2" and name == section:
            assert free.wait(60)
        return take(name, mine)

    monkeypatch.setattr(consistency_check, "_facts", hang)
    monkeypatch.setattr(consistency_check, "READ_WITHIN", 2.0)

    async with met(one, two):
        try:
            for _ in range(2):
                answer = await run(one, "check_consistency")
                parts = answer["sections"]
                assert "hang" in parts[section]["unknown"]["m2"]
                unknown = [name for name in sections.OF_MASTERS if parts[name]["unknown"]]
                assert unknown == [section]
                assert set(found(answer)) == {"access:open_mode"}
                assert answer["masters"] == ["m1", "m2"]
                assert answer["retcode"] == 2
        finally:
            free.set()
