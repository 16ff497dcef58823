"""What two or three whole engines tell each other of their keys."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from lab import key_folders
from lab.engines import Engine, befriend
from lab.key_folders import PENDING
from saltext_ha.sync import antientropy
from saltext_ha.sync.link import Link
from saltext_ha.sync.repair_leases import MANY
from saltext_ha.transport.trust import Trust
from tests.engines import (
    accepted,
    delete,
    level,
    met,
    places,
    put,
    records,
    there,
)
from tests.keys import LOOK_ALIKES
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@in_a_loop
async def test_a_lost_replica_is_rebuilt_from_all_who_know_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3")
    exchange = Link.exchange

    async def slow(link: Link, shared: bool = False) -> antientropy.Exchanged:
        if "m3" in (link.contact.peer.name, link._greeting()["name"]) and link.contact.up is None:
            await asyncio.sleep(2)
        return await exchange(link, shared)

    put(one, "web1")
    async with met(one, three):
        await until(lambda: accepted(three) == [{"web1"}], "accepted")
    befriend(one, two, three)
    one.replica_file.unlink()
    # m2 has nothing, either, asks nobody but m1, and is met first.
    monkeypatch.setattr(Link, "exchange", slow)
    Trust(two.config.state_dir).unpin("m3")
    async with Engine(two), Engine(three) as m3, Engine(one) as m1:
        await until(lambda: not m1.parts.core.mode.lost, "rebuilt")
        there, here = records(m3), records(m1)
        assert here == there
        assert [len(record.values) for record in here.values()] == [1]


@in_a_loop
async def test_what_is_decided_of_an_id_says_nothing_of_its_look_alikes(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    others, cyrillic = set(LOOK_ALIKES.values()), LOOK_ALIKES["a Cyrillic e"]
    waiting, refused = one.pki_dir / PENDING, one.pki_dir / "minions_rejected"
    refused.mkdir()
    for minion_id in others:
        put(one, minion_id, 1, PENDING)

    def pending() -> set[str]:
        return there(two, PENDING)

    put(one, "web1")
    async with met(one, two) as (m1, _):
        await until(lambda: accepted(two) == [{"web1"}] and pending() == others, "all there")
        (waiting / cyrillic).rename(refused / cyrillic)
        await m1.hint(cyrillic)
        await until((two.pki_dir / "minions_rejected" / cyrillic).exists, "rejected")
        await until(lambda: pending() == others - {cyrillic}, "not pending any more")
        assert accepted(two) == [{"web1"}]
        await delete(m1, "web1")
        await until(lambda: accepted(two) == [set()], "deleted")
        assert pending() == others - {cyrillic}


@in_a_loop
async def test_who_is_sent_hundreds_of_records_does_not_ask_for_more_of_them(
    tmp_path: Path,
) -> None:
    one, two = places(tmp_path, "m1", "m2")
    ids = key_folders.ids(2 * MANY)
    for place in (one, two):
        key_folders.plant(place.pki_dir, ids, PENDING)
    async with met(one, two) as (m1, m2):
        await level(m1, m2)
        leases = m2.parts.leases
        await until(lambda: not leases.expects_more(time.monotonic()), "that is over")
        key_folders.accept(one.pki_dir, ids)
        await until(lambda: leases.expects_more(time.monotonic()), "they are pushed")
        await level(m1, m2)
        assert accepted(two) == [set(ids)]
