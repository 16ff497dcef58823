"""Peers that are dead, hang, refuse or answer nonsense, on real sockets: who needs them goes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place, befriend
from lab.key_folders import plant
from saltext_ha.common.errors import PeerUnreachable
from saltext_ha.transport import identity
from saltext_ha.transport.listener import Handler, PeerListener
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.trust import Trust
from tests.engines import delete, met, places, run, there
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

Failing = Callable[[Place, Place], AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def listening(
    place: Place, handlers: Mapping[str, Handler], *known: Place
) -> AsyncIterator[None]:
    """The listener of *place* alone: it knows *known*, and has no other answers than *handlers*."""
    trust = Trust(place.config.state_dir)
    for other in known:
        trust.pin(other.peer)
    own = identity.load_or_create(place.config.state_dir, place.name)
    listener = PeerListener(own, trust, handlers, "127.0.0.1", place.port)
    await listener.start()
    try:
        yield
    finally:
        await listener.stop()


def saying(answers: Mapping[str, Any]) -> dict[str, Handler]:
    """What always answers to a method what *answers* has for it."""

    def always(answer: Any) -> Handler:
        async def handler(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            return dict(answer)

        return handler

    return {method: always(answer) for method, answer in answers.items()}


# -- how a peer may fail; each knows who it is, and whom it is called by


@contextlib.asynccontextmanager
async def dead(place: Place, caller: Place) -> AsyncIterator[None]:
    yield


@contextlib.asynccontextmanager
async def silent(place: Place, caller: Place) -> AsyncIterator[None]:
    with socket.create_server(("127.0.0.1", place.port)):
        yield


def estranged(place: Place, caller: Place) -> AbstractAsyncContextManager[None]:
    return listening(place, {})


def refusing(place: Place, caller: Place) -> AbstractAsyncContextManager[None]:
    return listening(place, {}, caller)


def senseless(place: Place, caller: Place) -> AbstractAsyncContextManager[None]:
    answers = {"hello": {"name": 7}, "signature": {"signature": 7}, "digest": {"children": 7}}
    return listening(place, saying(answers), caller)


def failing_later(place: Place, caller: Place) -> AbstractAsyncContextManager[None]:
    """It has met the caller, and does not tell what it is asked after a lost replica."""
    hello = {"one_denied": True, "caller": caller.name}
    answers = {"hello": hello, "signature": {}, "digest": {"same": True}, "horizon": {"epoch": 1}}
    return listening(place, saying(answers), caller)


WAYS = (dead, silent, estranged, refusing, senseless, failing_later)


@pytest.mark.parametrize("failing", WAYS, ids=[way.__name__ for way in WAYS])
@in_a_loop
async def test_a_lost_replica_does_not_wait_for_ever_for_peers_that_fail(
    tmp_path: Path, failing: Failing
) -> None:
    # Peers are asked in the order of their names; each that is silent takes all of its time.
    first, one, two, last = places(tmp_path, "m0", "m1", "m2", "m3", ha={"peer_timeout": 4})
    plant(one.pki_dir, ["web1", "web2"])
    plant(two.pki_dir, ["web1"])
    async with AsyncExitStack() as stack:
        m2 = await stack.enter_async_context(Engine(two))
        await delete(m2, "web1")
        befriend(one, two)
        for place in (first, last):
            Trust(one.config.state_dir).pin(place.peer)
            await stack.enter_async_context(failing(place, one))
        m1 = await stack.enter_async_context(Engine(one))
        assert set(m1.parts.trust.peers()) == {"m0", "m2", "m3"}
        await until(lambda: not m1.parts.core.mode.lost, "rebuilt")
        # What the one that answers knows was learnt before the key folder was taken for news.
        await until(lambda: there(one) == there(two) == {"web2"}, "as m2 said")


@in_a_loop
async def test_who_shares_a_store_is_asked_of_all_at_once(tmp_path: Path) -> None:
    # Nobody's time runs out here: whoever is asked after one that does not answer never is.
    (one,) = places(tmp_path, "m1", ha={"peer_timeout": 300})
    hanging, refuses = places(tmp_path, "m2", "m4", "m5"), Place(tmp_path, "m3")
    asked: set[str] = set()
    answer = asyncio.Event()

    def hangs(place: Place) -> Handler:
        async def signature(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            asked.add(place.name)
            await answer.wait()
            return {}

        return signature

    async with AsyncExitStack() as stack:
        for place in (*hanging, refuses):
            Trust(one.config.state_dir).pin(place.peer)
            # A link that is refused its greeting asks for nothing else.
            handlers = {"signature": hangs(place)} if place in hanging else {}
            await stack.enter_async_context(listening(place, handlers, one))
        m1 = await stack.enter_async_context(Engine(one))
        await until(lambda: len(m1.parts.links) == 4, "it knows all")
        checking = asyncio.ensure_future(m1.parts.shared_store.check_all())
        await until(lambda: asked == {place.name for place in hanging}, "all are asked")
        answer.set()
        await checking  # one refused, which is no error
        assert m1.parts.core.mode.never == ""


@in_a_loop
async def test_slow_peers_hold_up_the_status_together_and_not_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a slow network, while a change is on its way."""
    ha = {"sync_interval": 600, "peer_timeout": 20}  # this machine may be busy
    own, *others = places(tmp_path, "m1", "m2", "m3", "m4", ha=ha)
    asked: set[int] = set()
    all_are_asked = asyncio.Event()
    answer = PeerListener._answer

    async def late(listener: PeerListener, request: Any, connection: Any) -> bytes:
        """The first one waits until the last one is asked, too."""
        if listener.port == own.port or "branches" not in request.path:
            return await answer(listener, request, connection)
        asked.add(listener.port)
        if len(asked) == len(others):
            all_are_asked.set()
        await all_are_asked.wait()
        return await answer(listener, request, connection)

    async with met(own, *others) as (m1, *_):
        monkeypatch.setattr(PeerListener, "_answer", late)
        plant(own.pki_dir, ["web1"])
        await m1.notice("web1")
        rows = (await run(own, "status"))["masters"]
        assert [row["behind"] for row in rows] == [0, 1, 1, 1]
    assert all_are_asked.is_set()


@in_a_loop
async def test_reasons_that_alternate_do_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, away = places(tmp_path, "m1", "m2", ha={"sync_interval": 600, "peer_timeout": 0.3})
    befriend(own, away)
    async with Engine(own) as m1:
        await until(lambda: "m2" in m1.parts.links, "it knows m2")
        for fails in (dead, silent) * 3:
            async with fails(away, own):
                with contextlib.suppress(PeerUnreachable):
                    await m1.link(away).exchange()
        assert m1.link(away).contact.error.endswith("timed out")
    said = [line for line in caplog.messages if line.startswith("ha peer")]
    # Where the machine holds up the first try, a refusal comes too late, and is said second.
    reasons = sorted(why for line in said for why in ("refused", "timed out") if why in line)
    assert (reasons, len(said)) == (["refused", "timed out"], 2), said
