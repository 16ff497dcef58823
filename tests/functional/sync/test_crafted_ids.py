"""Engines whose peer refuses, takes little or was away: nothing is lost, and deletions go first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine
from lab.key_folders import PENDING, plant
from saltext_ha.common.errors import HaError, PeerUnreachable
from saltext_ha.transport.connection import Limits
from saltext_ha.transport.listener import Handler, PeerListener
from saltext_ha.transport.peer import Peer
from tests.crafted import crafted
from tests.engines import delete, is_level, met, places, running, there, wrong
from tests.loop import becomes, in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


async def status(engine: Engine) -> dict[str, Any]:
    return await engine.made.status.status({})


async def troubles(engine: Engine) -> list[str]:
    return wrong(await status(engine))


@contextlib.contextmanager
def asked(engine: Engine) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What an engine is asked by peers, in that order."""
    handlers = engine.service.listener._handlers
    kept = dict(handlers)
    found: list[tuple[str, dict[str, Any]]] = []
    listen_in(handlers, found)
    yield found
    handlers.update(kept)


def listen_in(handlers: dict[str, Any], found: list[tuple[str, dict[str, Any]]]) -> None:
    """Add to *found* what these *handlers* are asked from now on."""
    kept = dict(handlers)

    def listening(name: str) -> Any:
        async def handler(peer: Peer, payload: dict[str, Any]) -> Any:
            found.append((name, payload))
            return await kept[name](peer, payload)

        return handler

    handlers.update({name: listening(name) for name in kept})


@contextlib.contextmanager
def asked_from_its_start() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What the engine that starts in this block is asked by peers, from the first question on."""
    found: list[tuple[str, dict[str, Any]]] = []
    start = PeerListener.start

    async def listening(listener: PeerListener) -> None:
        listen_in(listener._handlers, found)
        await start(listener)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PeerListener, "start", listening)
        yield found


@contextlib.contextmanager
def first_question_held(engine: Engine) -> Iterator[tuple[list[str], asyncio.Event]]:
    """The first comparison that it is asked for is answered when the event is set."""
    handlers = engine.service.listener._handlers
    compare, questions, go_on = handlers["compare"], list[str](), asyncio.Event()

    async def held(peer: Peer, payload: dict[str, Any]) -> Any:
        questions.append("compare")
        await go_on.wait()
        return await compare(peer, payload)

    handlers["compare"] = held
    yield questions, go_on
    go_on.set()
    handlers["compare"] = compare


@in_a_loop
async def test_a_peer_that_takes_small_messages_is_not_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    As one whose limit 29 000 ids of one bucket would break: it is asked for less. A deletion waits
    for the answer to one of these questions only; the next one may be on its way.
    """
    caplog.set_level(logging.INFO)
    one, two = places(tmp_path, "m1", "m2", ha={"peer_timeout": 60})  # down, not slow
    plant(one.pki_dir, ["web1", "web2"])
    async with met(one, two) as (m1, m2):
        await until(lambda: there(two) == {"web1", "web2"}, "level")
        limit = 70_000
        m2.service.listener._limits = Limits(max_body=limit)
        plant(one.pki_dir, crafted(600), PENDING, seed=2)
        await m2.link(m1).close()  # it does not ask by itself
        with first_question_held(m2) as (questions, go_on), asked(m2) as said:
            for minion_id in crafted(600):
                await m1.notice(minion_id)  # the push was lost: it is compared
            await until(lambda: bool(questions), "being compared")
            await delete(m1, "web1")
            await until(m1.link(m2)._sender.outbox.has_decisions, "to be told")
            del said[:]
            go_on.set()
            await until(lambda: there(two) == {"web2"}, "deleted", 60)
            told = [
                "deleted" if any(r[0] == "web1" for r in payload.get("records", ())) else name
                for name, payload in said
                if name in ("push", "compare")
            ]
            assert told[: told.index("deleted")].count("compare") <= 1, told
        await until(lambda: is_level(m1, m2), "level again", 60)
        await becomes(partial(troubles, m1), [])
        assert "peer down: name=m2" not in caplog.text


@in_a_loop
async def test_one_record_that_a_peer_refuses_keeps_no_others_from_it(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with met(one, two) as (m1, m2):
        await m2.link(m1).close()  # it does not fetch by itself what it refuses
        handlers = m2.service.listener._handlers
        push = handlers["push"]

        async def choosy(peer: Peer, payload: dict[str, Any]) -> Any:
            if any(record[0] == "poison" for record in payload["records"]):
                raise HaError("its disk is full")
            return await push(peer, payload)

        handlers["push"] = choosy
        ids = {f"web{number}" for number in range(40)}
        plant(one.pki_dir, sorted({*ids, "poison"}))
        await m1.parts.core.scan()
        await until(lambda: there(two) == ids, "the others came")
        assert m1.link(m2).contact.up
        await until(lambda: bool(m1.link(m2).trouble), "the round is over")
        shown = await status(m1)
        assert shown["state"] == "degraded"
        note = next(row["note"] for row in shown["masters"] if row["name"] == "m2")
        assert "refuses some of what it is sent" in note
        assert "its disk is full (the key of poison)" in note
        handlers["push"] = push
        await until(lambda: is_level(m1, m2), "it takes all")
        await until(lambda: not m1.link(m2).trouble, "that is over")
        await becomes(partial(troubles, m1), [])


@in_a_loop
async def test_what_was_decided_while_a_peer_was_away_is_the_first_it_is_told(
    tmp_path: Path,
) -> None:
    one, two = places(tmp_path, "m1", "m2")
    plant(one.pki_dir, ["web1", "web2"])
    async with met(one, two) as (m1, m2):
        await until(lambda: is_level(m1, m2), "level")
        await m2.stop()
        await until(lambda: m1.link(m2).contact.up is False, "it is missed")
        plant(one.pki_dir, [f"stranger{number}" for number in range(300)], PENDING, seed=2)
        await m1.parts.core.scan()
        await delete(m1, "web1")
        with asked_from_its_start() as said:
            async with running(two) as (back,):
                await until(lambda: is_level(m1, back), "level again")
            names = [name for name, _ in said if name in ("push", "digest", "compare")]
            assert names[0] == "push"
            pushed = [
                record[0]
                for name, payload in said
                if name == "push"
                for record in payload["records"]
            ]
            assert pushed[0] == "web1"


async def not_now(peer: Peer, payload: dict[str, Any]) -> Any:
    raise HaError("not now")


@contextlib.asynccontextmanager
async def only_pushes(
    root: Path, digest: Handler = not_now, **ha: Any
) -> AsyncIterator[tuple[Engine, Engine, dict[str, Handler]]]:
    """
    m1 and m2, both with web1 accepted, and what answers m1's calls to m2. To the end of the block
    nothing is compared, neither by m2 nor by m1, which gets *digest* for an answer. Then all is
    well again.
    """
    one, two = places(root, "m1", "m2", ha=ha)
    plant(one.pki_dir, ["web1"])
    async with met(one, two) as (m1, m2):
        await until(lambda: there(two) == {"web1"}, "level")
        await m2.link(m1).close()  # it does not ask by itself
        handlers = m2.service.listener._handlers
        kept = dict(handlers)
        handlers.update(digest=digest)
        yield m1, m2, handlers
        handlers.update(kept)
        await until(lambda: bool(m1.link(m2).contact.up), "up again", 60)


@in_a_loop
async def test_a_deletion_that_timed_out_is_not_forgotten(tmp_path: Path) -> None:
    async def dead(peer: Peer, payload: dict[str, Any]) -> Any:
        await asyncio.sleep(60)

    async with only_pushes(tmp_path, dead, peer_timeout=1) as (m1, m2, handlers):
        # The first call after the deletion gets no answer.
        await until(lambda: m1.link(m2).contact.up is False, "down")
        await delete(m1, "web1")
        handlers.update(digest=not_now)
        await until(lambda: there(m2.place) == set(), "told, before all else")


@in_a_loop
async def test_a_push_that_is_cut_is_pushed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with only_pushes(tmp_path) as (m1, m2, _):
        client = m1.link(m2).contact.client
        call = client.call
        cut: list[str] = []

        async def cutting(method: str, *args: Any) -> Any:
            if method == "push" and not cut:
                cut.append(method)
                raise PeerUnreachable("the connection broke")
            return await call(method, *args)

        monkeypatch.setattr(client, "call", cutting)
        await delete(m1, "web1")
        await until(lambda: there(m2.place) == set(), "told again")
        assert cut


@in_a_loop
async def test_a_deletion_that_was_refused_is_told_again(tmp_path: Path) -> None:
    async with only_pushes(tmp_path) as (m1, m2, handlers):
        push = handlers["push"]
        refused: list[int] = []

        async def full(peer: Peer, payload: dict[str, Any]) -> Any:
            refused.append(len(payload["records"]))
            raise HaError("its disk is full")

        handlers.update(push=full)
        await delete(m1, "web1")
        await until(lambda: bool(refused), "refused")
        handlers.update(push=push)
        await until(lambda: there(m2.place) == set(), "told again", 60)
