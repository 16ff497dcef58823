"""Masters that know the same members tell each other a digest, not every certificate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.membership import membership
from saltext_ha.membership.membership import Membership
from saltext_ha.transport import wire
from saltext_ha.transport.client import call_once
from tests.loop import in_a_loop
from tests.peers import Master, befriend

pytestmark = pytest.mark.core


@pytest.fixture
def group(tmp_path: Path) -> list[Master]:
    return [Master(tmp_path, name) for name in ("m1", "m2", "m3")]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What masters send each other from here on."""
    sent: list[dict[str, Any]] = []

    async def note(identity: Any, peer: Any, method: str, payload: Any, *rest: Any) -> Any:
        answer = await call_once(identity, peer, method, payload, *rest)
        sent.extend((payload, answer))
        return answer

    monkeypatch.setattr(membership, "call_once", note)
    return sent


def exchange(caller: Master, *others: Master) -> None:
    """As the engine of *caller* does every minute, while *others* run."""

    async def main() -> None:
        async with caller.running():
            running = [other.running() for other in others]
            for one in running:
                await one.__aenter__()
            try:
                await caller.membership.exchange(brief=True)
            finally:
                for one in running:
                    await one.__aexit__(None, None, None)

    asyncio.run(main())


def test_who_knows_the_same_sends_no_certificates(
    group: list[Master], told: list[dict[str, Any]]
) -> None:
    befriend(*group)
    exchange(*group)
    assert len(told) == 4
    assert all(len(wire.pack(message)) < 200 for message in told), told


def test_a_member_and_a_removal_are_still_heard_of(group: list[Master]) -> None:
    m1, m2, m3 = group
    befriend(m1, m2)
    befriend(m1, m3)
    exchange(m1, m2)
    assert set(m2.trust.peers()) == {"m1", "m3"}
    m1.trust.remove("m3")
    exchange(m1, m2)
    assert set(m2.trust.peers()) == {"m1"}
    assert [note.name for note in m2.trust.removals.notes()] == ["m3"]


def test_what_only_the_other_knows_is_learnt(group: list[Master]) -> None:
    m1, m2, m3 = group
    befriend(m1, m2)
    befriend(m2, m3)
    exchange(m1, m2)
    assert set(m1.trust.peers()) == {"m2", "m3"}


def test_where_a_peer_is_now_is_heard_of_though_all_else_is_the_same(group: list[Master]) -> None:
    m1, m2, _ = group
    befriend(m1, m2)
    m1.url = m1.url.replace("127.0.0.1", "localhost")
    exchange(m1, m2)
    assert m2.trust.peers()["m1"].url == m1.url


def test_a_peer_of_an_older_release_is_told_all(
    group: list[Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2, m3 = group
    befriend(m1, m2)
    befriend(m1, m3)

    async def members(self: Membership, peer: Any, payload: dict[str, Any]) -> dict[str, Any]:
        self.absorb(peer, payload)
        return self.offer()

    monkeypatch.setattr(Membership, "members", members)
    exchange(m1, m2)
    assert set(m2.trust.peers()) == {"m1", "m3"}


@in_a_loop
async def test_a_state_folder_that_cannot_be_read_any_more_ends_no_exchange(
    group: list[Master],
) -> None:
    """The engine would end with it. What was read before is enough."""
    m1, m2, m3 = group
    befriend(m1, m2)
    async with m2.running():
        assert await m1.membership.exchange(brief=True) == {}
        m1.identity.key_file.unlink()
        assert await m1.membership.exchange(brief=True) == {}
        m1.trust.pin(m3.peer)
        reasons = await m1.membership.exchange(brief=True)
        assert list(reasons) == ["m3"]
        assert "cannot be used for TLS" in reasons["m3"]
