"""Joining, leaving and removing: who is trusted by whom afterwards."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import (
    HaError,
    InvalidRecord,
    PeerRefused,
    PeerUnreachable,
    TokenError,
    TrustError,
)
from saltext_ha.membership import admission, membership
from saltext_ha.membership.invites import Invites, invitation, make_token
from saltext_ha.membership.join import Joined, Place, join, preview
from saltext_ha.membership.reaching import Reach
from saltext_ha.membership.token import decode, mac_key, request_mac
from saltext_ha.transport import identity, wire
from saltext_ha.transport.client import call_once
from saltext_ha.transport.peer import Peer, make_peer
from saltext_ha.transport.peer_files import PEERS_DIR
from saltext_ha.transport.trust import Trust
from tests import engines
from tests.fixtures import named
from tests.loop import in_a_loop
from tests.peers import Master, befriend, http, raw_call, silent

m1, m2, m3 = named(Master, "m1", "m2", "m3")


def token_of(master: Master, expires_in: int = 600, share: bool = False) -> str:
    return make_token(
        master.state_dir, master.identity, (master.url,), master.group, expires_in, share
    ).encode()


async def let_join(
    master: Master, token: str, place: Place | None = None, **changes: Any
) -> Joined:
    return await join(replace(master.applicant, **changes), token, timeout=60, place=place)


@in_a_loop
async def test_two_masters(m1: Master, m2: Master) -> None:
    async with m1.running():
        joined = await let_join(m2, token_of(m1))
    assert (joined.group, joined.members) == ("prod", ("m1",))
    assert m1.trust.peers()["m2"].fingerprint == m2.identity.fingerprint
    assert m1.trust.peers()["m2"].url == m2.url
    assert m2.trust.peers()["m1"].fingerprint == m1.identity.fingerprint
    assert m2.trust.peers()["m1"].url == m1.url


@in_a_loop
async def test_the_third_is_pinned_by_all(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m2)
    async with m1.running(), m2.running():
        joined = await let_join(m3, token_of(m1))
        assert set(joined.members) == {"m1", "m2"}
        assert joined.unreached == {}
        await call_once(m3.identity, m2.peer, "members", m3.membership.offer())
    for master in (m1, m2, m3):
        assert set(master.trust.peers()) == {"m1", "m2", "m3"} - {master.name}


@in_a_loop
async def test_a_member_that_was_down_hears_of_it_later(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m2)
    async with m1.running():
        joined = await let_join(m3, token_of(m1))
        assert list(joined.unreached) == ["m2"]
        assert m2.url.removeprefix("https://") in joined.unreached["m2"]
        assert set(m2.trust.peers()) == {"m1"}
        # What its engine does every few seconds.
        assert list(await m2.membership.exchange()) == []
        assert set(m2.trust.peers()) == {"m1", "m3"}


@in_a_loop
async def test_who_joins_does_not_wait_for_a_member_whose_host_is_down(
    m1: Master, m2: Master, m3: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a long ``peer_timeout`` nobody could join: the answer came too late each time."""
    befriend(m1, m2)
    monkeypatch.setattr(membership.Membership.__init__, "__defaults__", (60.0,))
    monkeypatch.setattr(admission, "TELLING", 0.5)
    async with silent("127.0.0.1", m2.port), m1.running():
        joined = await join(m3.applicant, token_of(m1), timeout=15.0)
    assert joined.unreached == {"m2": f"127.0.0.1:{m2.port} timed out"}


@in_a_loop
async def test_the_master_key_is_shared_only_when_the_invitation_says_so(
    m1: Master, m2: Master
) -> None:
    m1.shared = {"master.pem": b"key"}
    placed: list[Any] = []
    async with m1.running():
        await let_join(m2, token_of(m1), place=placed.append)
        await let_join(m2, token_of(m1, share=True), place=placed.append)
    assert placed == [{}, m1.shared]


@in_a_loop
async def test_a_token_is_used_once(m1: Master, m2: Master, m3: Master) -> None:
    async with m1.running() as listener:
        token = token_of(m1)
        await let_join(m2, token)
        with pytest.raises(PeerRefused, match="it was used"):
            await let_join(m3, token)
        assert listener.refused == {"not trusted": 1}
    assert set(m1.trust.peers()) == {"m2"}
    assert set(m3.trust.peers()) == set()


@in_a_loop
async def test_a_join_whose_answer_was_lost_can_be_repeated(m1: Master, m2: Master) -> None:
    async with m1.running():
        token = token_of(m1)
        await let_join(m2, token)
        m2.trust.unpin("m1")
        assert (await let_join(m2, token)).members == ("m1",)


def test_fifty_masters_with_one_token(m1: Master, tmp_path: Path) -> None:
    """All at once, each from a thread of its own: exactly one gets in."""
    masters = [Master(tmp_path, f"n{n}") for n in range(50)]
    token = token_of(m1)
    results: list[object] = []
    start = threading.Barrier(len(masters) + 1)

    def attempt(master: Master) -> None:
        async def main() -> Joined:
            return await join(master.applicant, token, 30)

        start.wait()
        try:
            results.append(asyncio.run(main()))
        except HaError as exc:
            results.append(exc)

    async def main() -> None:
        async with m1.running():
            threads = [threading.Thread(target=attempt, args=(master,)) for master in masters]
            for thread in threads:
                thread.start()
            await asyncio.to_thread(start.wait)
            for thread in threads:
                await asyncio.to_thread(thread.join)

    asyncio.run(main())
    assert len(results) == 50
    assert sum(isinstance(result, Joined) for result in results) == 1
    assert len(m1.trust.peers()) == 1


@in_a_loop
async def test_an_expired_token(m1: Master, m2: Master) -> None:
    async with m1.running():
        with pytest.raises(PeerRefused, match="expired"):
            await let_join(m2, token_of(m1, expires_in=-1))
    assert m1.trust.peers() == {}


@in_a_loop
async def test_a_withdrawn_invitation(m1: Master, m2: Master) -> None:
    token = token_of(m1)
    Invites(m1.state_dir).discard(decode(token).invite)
    async with m1.running():
        with pytest.raises(PeerRefused, match="not known here"):
            await let_join(m2, token)


@in_a_loop
async def test_another_server_at_the_address_gets_nothing(
    m1: Master, m2: Master, m3: Master
) -> None:
    """m3 listens where the token points: it must not see the proof, let alone the secret."""
    token = token_of(m1)
    pointed = replace(decode(token), urls=(m3.url,)).encode()
    seen = []

    async with m3.running() as listener:

        async def note(payload: object, host: str) -> dict[str, object]:
            seen.append(payload)
            return {}

        listener._strangers["join"] = note
        with pytest.raises(PeerUnreachable, match="nothing was sent"):
            await let_join(m2, pointed)
    assert seen == []
    assert m2.trust.peers() == {}


@in_a_loop
async def test_an_address_of_the_inviter_that_leads_to_the_joiner_is_named(
    m1: Master, m2: Master
) -> None:
    """As ``localhost`` does, where the inviter has no ``ha: address``."""
    pointed = replace(decode(token_of(m1)), urls=(m2.url,)).encode()
    with pytest.raises(PeerUnreachable, match=r"leads to this master itself: set ha: address"):
        await let_join(m2, pointed, reach=reach(m2))
    async with m2.running():
        with pytest.raises(PeerUnreachable, match=rf"is at {m2.url}, and that leads to this"):
            await let_join(m2, pointed)


@in_a_loop
async def test_a_server_without_the_secret_proves_nothing(m1: Master, m2: Master) -> None:
    """The right certificate is not enough: who answers must know what the token says."""
    token = token_of(m1)

    async def forged(payload: object, host: str) -> dict[str, object]:
        reply = {"group": "prod", "members": [], "shared": {}}
        return {"reply": wire.pack(reply), "mac": b"\x00" * 32}

    async with m1.running() as listener:
        listener._strangers["join"] = forged
        with pytest.raises(TokenError, match="the proof in the answer"):
            await let_join(m2, token)
    assert m2.trust.peers() == {}


@in_a_loop
async def test_the_next_address_is_tried(m1: Master, m2: Master, m3: Master) -> None:
    token = replace(decode(token_of(m1)), urls=(m3.url, m1.url)).encode()
    async with m1.running():
        assert (await let_join(m2, token)).members == ("m1",)


def test_nobody_there(m1: Master, m2: Master) -> None:
    with pytest.raises(PeerUnreachable, match=rf"127\.0\.0\.1:{m1.port} refused the connection"):
        asyncio.run(let_join(m2, token_of(m1)))


@in_a_loop
async def test_waiting_for_the_inviter_to_start(m1: Master, m2: Master) -> None:
    waiting = asyncio.ensure_future(join(m2.applicant, token_of(m1), wait=30))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    async with m1.running():
        assert (await asyncio.wait_for(waiting, 60)).members == ("m1",)


@in_a_loop
async def test_another_group_is_refused_on_both_sides(m1: Master, m2: Master) -> None:
    token = token_of(m1)
    async with m1.running():
        with pytest.raises(TokenError, match="'prod', this master is configured for 'test'"):
            await let_join(m2, token, group="test")
        pretended = replace(decode(token), group="test").encode()
        with pytest.raises(PeerRefused, match="of the group 'prod', not 'test'"):
            await let_join(m2, pretended, group="test")
        # Nothing was used up by that.
        await let_join(m2, token)


@in_a_loop
async def test_a_token_that_is_pasted_where_it_was_made(m1: Master) -> None:
    async with m1.running():
        with pytest.raises(TokenError, match="made that token itself: join on the other master"):
            await let_join(m1, token_of(m1))


@in_a_loop
async def test_a_name_that_is_taken(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m3)
    async with m1.running():
        token = token_of(m1)
        with pytest.raises(PeerRefused, match="pinned already with another certificate"):
            await let_join(m2, token, name="m3")
        with pytest.raises(PeerRefused, match="the inviting master's own name"):
            await let_join(m2, token, name="m1")
        await let_join(m2, token)
    assert m1.trust.peers()["m3"].fingerprint == m3.identity.fingerprint


# -- a master that joins is tried first


def reach(master: Master, required: bool = True) -> Reach:
    return Reach("127.0.0.1", master.port, required)


@in_a_loop
async def test_who_joins_answers_for_its_engine(m1: Master, m2: Master) -> None:
    """Before it ever ran, and while it runs; afterwards the port is free."""
    async with m1.running():
        for _ in range(2):
            joined = await let_join(m2, token_of(m1), reach=reach(m2))
            assert (joined.members, joined.unreachable) == (("m1",), "")
            async with m2.running():
                await let_join(m2, token_of(m1), reach=reach(m2))
                await call_once(m1.identity, m2.peer, "members", m1.membership.offer())


@in_a_loop
async def test_an_own_address_that_leads_nowhere_is_refused(
    m1: Master, m2: Master, m3: Master
) -> None:
    async with m1.running():
        token = token_of(m1)
        why = f"m1 cannot reach you at {m3.url}: refused the connection; set ha: address"
        seen = await preview(m2.identity, token, "m2", m3.url, reach=reach(m2))
        assert seen.refused.startswith(why)
        with pytest.raises(PeerRefused, match=why):
            await let_join(m2, token, url=m3.url, reach=reach(m2))
        async with m3.running():
            with pytest.raises(PeerRefused, match=f"{m3.url}: another master answers there"):
                await let_join(m2, token, url=m3.url, reach=reach(m2))
        assert m1.trust.peers() == m2.trust.peers() == {}
        # The token is as good as before.
        await let_join(m2, token, reach=reach(m2))
    assert m1.trust.peers()["m2"].url == m2.url


@in_a_loop
async def test_who_is_reached_later_is_told_so(m1: Master, m2: Master, m3: Master) -> None:
    own: dict[str, Any] = {"url": m3.url, "reach": reach(m2, required=False)}
    async with m1.running():
        token = token_of(m1)
        seen = await preview(m2.identity, token, "m2", **own)
        assert (seen.refused, seen.unreachable) == ("", "refused the connection")
        joined = await let_join(m2, token, **own)
        assert joined.unreachable == "refused the connection"
    assert set(m1.trust.peers()) == {"m2"}


@in_a_loop
async def test_a_master_is_tried_where_it_is_called(m1: Master, m2: Master, m3: Master) -> None:
    """``ha: peers`` on the inviter says where that is."""
    m1.trust = Trust(m1.state_dir, {"m2": m2.url})
    async with m1.running():
        joined = await let_join(m2, token_of(m1), url=m3.url, reach=reach(m2))
        assert joined.unreachable == ""


@in_a_loop
async def test_joining_again_moves_the_address(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m2)
    async with m1.running():
        await let_join(m2, token_of(m1), url=m3.url)
    assert m1.trust.peers()["m2"].url == m3.url


@in_a_loop
async def test_a_refused_member_leaves_the_joiner_untouched(
    m1: Master, m2: Master, m3: Master
) -> None:
    """m2 knows an m3 of its own: it may not end up trusting half a group."""
    befriend(m1, m3)
    m2.trust.pin(make_peer("m3", m3.url, m2.identity.certificate))
    async with m1.running():
        with pytest.raises(TrustError, match="m3: pinned already with another certificate"):
            await let_join(m2, token_of(m1))
    assert set(m2.trust.peers()) == {"m3"}


@in_a_loop
async def test_who_takes_fewer_masters_than_the_group_has_pins_none(
    m1: Master, m2: Master, m3: Master
) -> None:
    """Nor is a key put in place: with a part of the group pinned it would count as joined."""
    befriend(m1, m2)
    m3.trust = Trust(m3.state_dir, most=2)
    placed: list[Any] = []

    async with m1.running():
        token = token_of(m1)
        for _ in range(2):
            with pytest.raises(TrustError) as caught:
                await let_join(m3, token, place=placed.append)
            said = str(caught.value)
            assert "this group has 2 masters already, and takes 2" in said
            assert "the other masters list this one already" in said
        assert (m3.trust.peers(), placed) == ({}, [])
        m3.trust = Trust(m3.state_dir, most=3)
        assert set((await let_join(m3, token)).members) == {"m1", "m2"}


@pytest.mark.parametrize("known", [False, True])
@in_a_loop
async def test_a_disk_that_is_full_halfway_leaves_no_half_of_the_group(
    m1: Master, m2: Master, m3: Master, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Who was pinned before that stays."""
    befriend(m1, m2)
    if known:
        m3.trust.pin(m1.peer)
    pin, left = m3.trust.pin, [1]

    def full(peer: Peer) -> bool:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left.pop()
        return pin(peer)

    monkeypatch.setattr(m3.trust, "pin", full)

    async with m1.running():
        with pytest.raises(TrustError, match=r"No space left.* list this one already"):
            await let_join(m3, token_of(m1))
    assert set(m3.trust.peers()) == ({"m1"} if known else set())


@in_a_loop
async def test_a_state_folder_of_the_inviter_that_is_read_only_is_named(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(self: Invites, invite_id: str, joiner: str) -> bool:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    token = token_of(m1)
    async with m1.running():
        with monkeypatch.context() as patched:
            patched.setattr(Invites, "consume", read_only)
            with pytest.raises(PeerRefused, match="state folder of that master fails: Read-only"):
                await let_join(m2, token)
        assert (await let_join(m2, token)).members == ("m1",)


@in_a_loop
async def test_a_join_that_fails_removes_no_damaged_file_of_a_member(
    m1: Master, m2: Master, m3: Master
) -> None:
    """An operator is told to restore it from a backup, and may mend it."""
    befriend(m1, m2)
    m3.trust.pin(m2.peer)
    file = m3.state_dir / PEERS_DIR / "m2.json"
    file.write_text(file.read_text()[:-20])

    async with m1.running():
        with pytest.raises(TrustError, match="m2"):
            await let_join(m3, token_of(m1))
    assert file.exists()
    assert set(m3.trust.peers()) == set()


def join_request(master: Master, server: Master, token: str, **changes: object) -> bytes:
    ticket = decode(token)
    mac = request_mac(
        mac_key(ticket.secret),
        server.identity.fingerprint,
        master.identity.fingerprint,
        master.name,
        master.url,
        "prod",
    )
    request = {
        "invite": ticket.invite,
        "name": master.name,
        "url": master.url,
        "group": "prod",
        "certificate": master.identity.certificate,
        "mac": mac,
    }
    return http("/v1/join", wire.pack({**request, **changes}), Connection="close")


@pytest.mark.parametrize("what", ["name", "url", "certificate", "mac"])
@in_a_loop
async def test_the_proof_covers_everything(m1: Master, m2: Master, m3: Master, what: str) -> None:
    changed = {
        "name": "m3",
        "url": m3.url,
        "certificate": m3.identity.certificate,
        "mac": b"\x00" * 32,
    }
    async with m1.running():
        token = token_of(m1)
        answer = await raw_call(m1, join_request(m2, m1, token, **{what: changed[what]}))
        assert b"403" in answer.splitlines()[0]
        assert m1.trust.peers() == {}
        answer = await raw_call(m1, join_request(m2, m1, token))
        assert b"200" in answer.splitlines()[0]


@pytest.mark.parametrize("what", ["invite", "name", "url", "group", "certificate", "mac"])
@pytest.mark.parametrize("value", [None, 7, "", "../../x", b"\x00", [], {}])
@in_a_loop
async def test_nonsense_is_refused(m1: Master, m2: Master, what: str, value: object) -> None:
    async with m1.running():
        answer = await raw_call(m1, join_request(m2, m1, token_of(m1), **{what: value}))
        assert b"403" in answer.splitlines()[0]
    assert m1.trust.peers() == {}


@in_a_loop
async def test_five_wrong_proofs_end_an_invitation(m1: Master, m2: Master) -> None:
    async with m1.running():
        token = token_of(m1)
        for _ in range(5):
            await raw_call(m1, join_request(m2, m1, token, mac=b"\x00" * 32))
        with pytest.raises(PeerRefused, match="not known here"):
            await let_join(m2, token)


@in_a_loop
async def test_failed_joins_are_throttled(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with m1.running():
        for _ in range(admission.MAX_FAILED_JOINS):
            await raw_call(m1, join_request(m2, m1, token_of(m1), invite="0" * 32))
        with pytest.raises(PeerRefused, match="too many failed joins"):
            await let_join(m2, token_of(m1))
        monkeypatch.setattr(admission, "FAILED_JOINS_PERIOD", 0.0)
        await let_join(m2, token_of(m1))


@in_a_loop
async def test_a_removed_master_stays_out(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m2, m3)
    async with m1.running(), m2.running():
        assert list(await m1.membership.remove("m3")) == []
        assert set(m1.trust.peers()) == {"m2"}
        assert set(m2.trust.peers()) == {"m1"}
        # Neither gossip of one who has not heard nor a token brings that certificate back.
        stale = {"members": [m3.membership.offer()["self"] | {"certificate": m3.peer.certificate}]}
        assert m2.membership.absorb(m1.peer, stale).adopted == []
        with pytest.raises(PeerRefused, match="was removed from this group"):
            await let_join(m3, token_of(m1))
        # Under a new one it is welcome, by the same name.
        m3.identity = identity.renew(m3.state_dir, "m3")
        m3.trust.unpin("m2")
        await let_join(m3, token_of(m1))
        assert m2.trust.peers()["m3"].fingerprint == m3.identity.fingerprint


@in_a_loop
async def test_a_master_that_leaves(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m2, m3)
    async with m1.running():
        told, unreached = await m3.membership.leave()
        assert (told, list(unreached)) == (["m1"], ["m2"])
        assert m3.trust.peers() == {}
        assert set(m1.trust.peers()) == {"m2"}
        await m2.membership.exchange()
        assert set(m2.trust.peers()) == {"m1"}


@in_a_loop
async def test_who_was_removed_before_it_leaves_need_not_be_removed(
    m1: Master, m2: Master, m3: Master
) -> None:
    """The advice to remove it would take it out again, once it has joined anew."""
    befriend(m1, m2, m3)
    m1.trust.remove("m3")
    async with m1.running():
        told, unreached = await m3.membership.leave()
        assert list(unreached) == ["m2"], "it is down, and may trust m3 still"
        assert not told, "m1, which removed m3 before, noted no more"
    assert m3.trust.peers() == {}


@in_a_loop
async def test_who_leaves_trusts_nobody_that_came_meanwhile(
    m1: Master, m2: Master, m3: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that it tells may take long to answer."""
    befriend(m1, m2)

    async def tell(*args: Any) -> dict[str, Any]:
        m1.trust.pin(m3.peer)
        return await call_once(*args)

    monkeypatch.setattr(membership, "call_once", tell)
    async with m2.running():
        _, unreached = await m1.membership.leave()
        assert list(unreached) == ["m3"]
    assert m1.trust.peers() == m2.trust.peers() == {}


@in_a_loop
async def test_who_leaves_trusts_nobody_that_was_just_let_in(
    m1: Master, m2: Master, m3: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join that was decided before this master had its new certificate may be pinned after."""
    befriend(m1, m2)

    def let_in(name: str) -> None:
        if name == "leave.unpin":
            m1.trust.pin(m3.peer)

    monkeypatch.setattr(membership, "point", let_in)
    async with m2.running():
        await m1.membership.leave()
    assert m1.trust.peers() == {}


@pytest.mark.usefixtures("no_bus")
@in_a_loop
async def test_who_leaves_while_it_lets_another_in_trusts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, down = engines.places(tmp_path, "one", "two", "down")
    unreached = admission.unreached

    async def leave(url: str, fingerprint: str) -> str:
        assert (await engines.run(one, "leave"))["retcode"] == 2
        return await unreached(url, fingerprint)

    monkeypatch.setattr(admission, "unreached", leave)
    async with engines.running(one) as (engine,):
        engine.parts.trust.pin(down.peer)
        joined = await engines.join_by(two, await engines.invited(one))
        assert "a new certificate just now; join again" in joined["error"]
        assert engine.parts.trust.peers() == {}


@in_a_loop
async def test_a_member_that_moved_is_called_at_its_new_address(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    old = m2.url
    async with m1.running():
        m2.url = old.replace("127.0.0.1", "127.0.0.2")
        await m2.membership.exchange()
    assert m1.trust.peers()["m2"].url == m2.url != old


def test_nobody_may_move_another(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m2, m3)
    lie = {"name": "m3", "url": "https://127.0.0.9:1", "certificate": m3.identity.certificate}
    m1.membership.absorb(m2.peer, {"members": [lie]})
    assert m1.trust.peers()["m3"].url == m3.url


def test_one_bad_entry_does_not_hide_the_others(m1: Master, m2: Master, m3: Master) -> None:
    m1.trust.pin(m2.peer)
    good = {"name": "m3", "url": m3.url, "certificate": m3.identity.certificate}
    offer = {
        "members": [{}, {**good, "name": "../m3"}, {**good, "name": "m1"}, good],
        "removed": [{"fingerprint": "../../identity"}],
    }
    learnt = m1.membership.absorb(m2.peer, offer)
    assert learnt.adopted == ["m3"]
    assert len(learnt.problems) == 4
    assert not list(m1.state_dir.glob("**/*identity.json"))


@pytest.mark.parametrize("offer", [{"members": 1}, {"members": [1]}, {"removed": {}}])
def test_no_offer_at_all(m1: Master, m2: Master, offer: dict[str, object]) -> None:
    with pytest.raises(InvalidRecord):
        m1.membership.absorb(m2.peer, offer)


def test_hearing_of_our_own_removal_changes_nothing(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    note = {"fingerprint": m1.identity.fingerprint, "name": "m1", "removed": ""}
    learnt = m1.membership.absorb(m2.peer, {"removed": [note]})
    assert learnt.removed_ourselves
    assert m1.trust.removals.notes() == []


@in_a_loop
async def test_an_invitation_says_when_nobody_listens(m1: Master, m2: Master) -> None:
    token = make_token(m1.state_dir, m1.identity, (m1.url,), "prod")
    made = invitation(token, m1.identity)
    assert f"nobody answers at {m1.url}" in made.notes[0]
    async with m1.running():
        made = await asyncio.to_thread(invitation, token, m1.identity)
        assert made.notes == ()
    async with silent("127.0.0.1", m1.port):
        # As a firewall, or NAT, that keeps a master from its own address.
        made = await asyncio.to_thread(invitation, token, m1.identity)
        assert "the other one may reach it all the same" in made.notes[0]
    m2.url = m1.url
    async with m2.running():
        made = await asyncio.to_thread(invitation, token, m1.identity)
        assert "something else answers" in made.notes[0]
    hosts = ("localhost", "localhost.localdomain", "0.0.0.0", "[::]")
    for url in (f"https://{host}:{m1.port}" for host in hosts):
        token = make_token(m1.state_dir, m1.identity, (url,), "prod")
        assert "set ha: address" in invitation(token, m1.identity).notes[0]


def test_the_secret_is_nowhere_but_in_the_token(m1: Master, m2: Master) -> None:
    token = token_of(m1)
    secret = decode(token).secret
    for path in (path for path in m1.state_dir.rglob("*") if path.is_file()):
        assert path.stat().st_mode & 0o777 in (0o600, 0o644)
        content = path.read_bytes()
        assert secret not in content
        assert secret.hex().encode() not in content
    invitation = json.loads(next((m1.state_dir / "invites").glob("*.json")).read_text())
    assert set(invitation) == {"key", "expires", "group", "share_master_key", "share_signing_key"}
    assert "secret" not in repr(decode(token))
