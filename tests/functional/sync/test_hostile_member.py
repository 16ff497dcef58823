"""A hostile member, which is pinned: it may accept and delete keys, and not break the group."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place, befriend
from saltext_ha.common.errors import HaError
from saltext_ha.replication.record import ACCEPTED, DELETED, Dot, Record, Value
from saltext_ha.replication.vouching import MOST_WRITES
from saltext_ha.sync.codec import to_wire
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.trust import Trust
from tests import peers
from tests.engines import delete, level, places, running
from tests.keys import public_key
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

KEY = public_key(0)
FAR = MOST_WRITES
EVIL = "e" * 16


class Turned:
    """The member m3, which is a script."""

    def __init__(self, root: Path, *others: Place) -> None:
        self.master = peers.Master(root, "m3")
        for place in others:
            Trust(place.config.state_dir).pin(self.master.peer)

    async def call(self, place: Place, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        client = PeerClient(self.master.identity, place.peer, 60.0)
        try:
            return await client.call(method, payload)
        finally:
            await client.close()

    async def push(self, place: Place, *records: Record, vouched: Sequence[Any] = ()) -> None:
        message = {"records": [to_wire(record) for record in records], "vouched": list(vouched)}
        await self.call(place, "push", message)


def crafted(
    record: Record, context: Mapping[str, int], state: str = ACCEPTED, node: str = EVIL
) -> Record:
    """*record* after a decision of *node*, that claims to have seen *context*, too."""
    value = Value(Dot(node, 1), state, 1.0, "eve", "m3")
    seen = {**dict(record.context), **context, node: 1}
    return record._replace(values=(value,), context=tuple(sorted(seen.items())))


def accept(place: Place, minion_id: str) -> None:
    folder = place.pki_dir / "minions"
    folder.mkdir(exist_ok=True)
    (folder / minion_id).write_text(KEY)


def has(place: Place, minion_id: str) -> bool:
    return (place.pki_dir / "minions" / minion_id).exists()


def record(engine: Engine, minion_id: str = "web1") -> Record:
    return next(iter(engine.known(lambda of: of.get(minion_id)).values()))


def node(engine: Engine) -> str:
    return engine.parts.core.replica.node


async def note(engine: Engine) -> str:
    status = await engine.made.status.status({})
    assert status["state"] != "ok"
    return next(str(row["note"]) for row in status["masters"] if row["self"])


@contextlib.asynccontextmanager
async def group(root: Path) -> AsyncIterator[tuple[Engine, Engine, Turned]]:
    """m1 and m2, which know web1 as accepted, and m3."""
    one, two = places(root, "m1", "m2")
    accept(one, "web1")
    async with running(one, two) as (m1, m2):
        befriend(one, two)
        evil = Turned(root / "evil", one, two)
        await m1.meets(m2)
        await m2.meets(m1)
        await until(lambda: has(two, "web1"), "web1 is known")
        await level(m1, m2)
        yield m1, m2, evil


@in_a_loop
async def test_nobody_claims_what_another_master_has_yet_to_write(tmp_path: Path) -> None:
    async with group(tmp_path) as (m1, m2, evil):
        forged = crafted(record(m1), {node(m1): FAR})
        for engine in (m1, m2):
            await evil.push(engine.place, forged)
        await level(m1, m2)
        for engine in (m1, m2):
            assert "not taken from m3: record of 'web1'" in await note(engine)
        await delete(m1, "web1")
        await until(lambda: not has(m2.place, "web1"), "deleted on m2, too")
        await level(m1, m2)
        accept(m1.place, "web2")
        await m1.hint("web2")
        await until(lambda: has(m2.place, "web2"), "m1 is believed as before")


@in_a_loop
async def test_nobody_vouches_for_another_master(tmp_path: Path) -> None:
    async with group(tmp_path) as (m1, m2, evil):
        owner, nonce, _, proof = m1.parts.vouching.own()[0]
        forged = crafted(record(m1), {node(m1): FAR})
        await evil.push(m2.place, forged, vouched=[[owner, nonce, FAR, proof]])
        assert "not taken from m3: record of 'web1'" in await note(m2)
        assert dict(record(m2).context)[node(m1)] < FAR


@in_a_loop
async def test_nor_before_that_master_was_met(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    accept(one, "web1")
    async with running(one, two) as (m1, m2):
        evil = Turned(tmp_path / "evil", one, two)
        await until(lambda: "web1" in m1.known(lambda of: set(of.ids())), "recorded")
        await evil.push(two, crafted(record(m1), {node(m1): FAR}))
        await until(lambda: has(two, "web1"), "taken: nobody there knows whose node that is")
        befriend(one, two)
        await m1.meets(m2)
        await m2.meets(m1)
        await level(m1, m2)
        assert dict(record(m2).context).get(node(m1), 0) < FAR
        await delete(m1, "web1")
        await until(lambda: not has(two, "web1"), "deleted on m2, too")


@in_a_loop
async def test_no_value_counts_that_its_writer_did_not_write(tmp_path: Path) -> None:
    async with group(tmp_path) as (m1, m2, evil):
        await delete(m1, "web1")
        await until(lambda: not has(m2.place, "web1"), "deleted")
        forged = record(m1)._replace(
            values=(Value(Dot(node(m1), 1000), ACCEPTED, 1.0, "root", "m1"),),
            context=((node(m1), 1000),),
        )
        await evil.push(m2.place, forged)
        await level(m1, m2)
        assert record(m2).state == DELETED
        assert "not taken from m3" in await note(m2)


def crowd(count: int) -> dict[str, int]:
    return {secrets.token_hex(8): 1 for _ in range(count)}


@in_a_loop
async def test_a_crowded_context_keeps_nobody_from_writing(tmp_path: Path) -> None:
    async with group(tmp_path) as (m1, m2, evil):
        forged = crafted(record(m1), crowd(4000))
        for engine in (m1, m2):
            await evil.push(engine.place, forged)
        await level(m1, m2)
        assert "writers that are new" in await note(m2)
        assert len(record(m2).context) < 10
        await delete(m1, "web1")
        await until(lambda: not has(m2.place, "web1"), "deleted on m2, too")


@in_a_loop
async def test_a_context_that_was_crowded_before_loses_no_decision(tmp_path: Path) -> None:
    """As an older release took it; even with a replica that is rebuilt from it."""
    async with group(tmp_path) as (m1, m2, _):
        forged = crafted(record(m1), crowd(4095 - len(record(m1).context)))

        async def plant(engine: Engine) -> None:
            replica = engine.parts.core.replica

            def put() -> None:
                with replica.transaction():
                    replica.put(forged)

            await engine.parts.core.run(put)

        for engine in (m1, m2):
            await plant(engine)
        await level(m1, m2)
        await delete(m1, "web1")
        await until(lambda: not has(m2.place, "web1"), "deleted on m2, too")
        await level(m1, m2)
        for engine in (m1, m2):
            assert len(engine.known(lambda of: of.get("web1"))) == 1
        await m1.stop()
        m1.place.replica_file.unlink()
        accept(m1.place, "web1")
        async with Engine(m1.place) as again:
            await until(lambda: not again.parts.core.mode.lost, "rebuilt")
            await until(lambda: not has(m1.place, "web1"), "it stays deleted")
            assert not has(m2.place, "web1")
            assert "it claims" in await note(again)


@in_a_loop
async def test_a_horizon_lies_within_what_was_had(tmp_path: Path) -> None:
    async with group(tmp_path) as (m1, m2, evil):
        far = [[node(engine), FAR] for engine in (m1, m2)]
        for engine in (m1, m2):
            root = engine.parts.core.replica.records.root
            payload = {"root": root, "keys": [], "horizon": far, "epoch": 1}
            assert (await evil.call(engine.place, "drop", payload))["dropped"]
            with pytest.raises(HaError, match="epoch"):  # after which there is no other one
                await evil.call(engine.place, "drop", {**payload, "epoch": FAR})
        for engine, minion_id in ((m1, "web2"), (m2, "web3")):
            accept(engine.place, minion_id)
            await engine.hint(minion_id)
        for minion_id in ("web2", "web3"):
            await until(lambda i=minion_id: has(m1.place, i) and has(m2.place, i), minion_id)
        await level(m1, m2)
        # Records pushed have long been answered; what counts as dropped would be gone.
        for engine in (m1, m2):
            assert (record(engine, "web2").state, record(engine, "web3").state) == (
                ACCEPTED,
                ACCEPTED,
            )


@in_a_loop
async def test_two_that_claim_to_have_overruled_each_other_leave_the_strictest(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as (m1, m2, evil):
        before = record(m1)
        both = {"a" * 16: 1, "b" * 16: 1}
        granted = crafted(before, both, ACCEPTED, "a" * 16)
        revoked = crafted(before, both, DELETED, "b" * 16)
        await asyncio.gather(evil.push(m1.place, granted), evil.push(m2.place, revoked))
        await level(m1, m2)
        await until(lambda: not has(m1.place, "web1"), "deleted on both")
        await level(m1, m2)
        assert record(m1).state == record(m2).state == DELETED
        assert "claim to have overruled" in f"{await note(m1)} {await note(m2)}"


@in_a_loop
async def test_a_write_outlives_its_writer(tmp_path: Path) -> None:
    """m3 has m1's word of before; the rest comes by m2, after m1 is gone for good."""
    one, two, three = places(tmp_path, "m1", "m2", "m3")
    accept(one, "web1")
    async with running(one, two, three) as (m1, m2, m3):
        befriend(one, two, three)
        for engine in (m1, m2, m3):
            await engine.meets(*(other for other in (m1, m2, m3) if other is not engine))
        await level(m1, m2, m3)
        writer = node(m1)
        assert (known := m3.parts.core.replica.vouched.get(writer))
        await m3.stop()
        await delete(m1, "web1")
        await until(lambda: not has(two, "web1"), "m2 has it")
        await m1.stop()
        async with Engine(three) as again:
            await until(lambda: not has(three, "web1"), "m3 has it by m2")
            await level(m2, again)
            word = again.parts.core.replica.vouched.get(writer)
            assert word
            assert word.high > known.high
            assert "not taken" not in await note(again)
