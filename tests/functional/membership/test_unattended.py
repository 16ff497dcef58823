"""Joining by the group's secret: who gets in, who does not, and what an attacker sees."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common.errors import (
    DiskHangs,
    HaError,
    PeerRefused,
    PeerUnreachable,
    TokenError,
    TrustError,
)
from saltext_ha.membership import admission, group_secret, unattended
from saltext_ha.membership.join import Joined
from saltext_ha.membership.reaching import Reach
from saltext_ha.membership.token import mac_key
from saltext_ha.membership.unattended import apply, find_group
from saltext_ha.transport import identity, wire
from saltext_ha.transport.peer import make_peer
from saltext_ha.transport.stranger_calls import call_stranger, shown
from saltext_ha.transport.trust import Trust
from tests.fixtures import named
from tests.loop import in_a_loop
from tests.peers import Master, befriend, http, raw_call, silent

SECRET = b"0123456789abcdef0123456789abcdef"
OTHER = b"fedcba9876543210fedcba9876543210"
KEY = {"master.pem": "private", "master.pub": "public"}

pytestmark = pytest.mark.core


def make(root: Path, name: str, secret: bytes | None = SECRET) -> Master:
    master = Master(root, name)
    master.secret = secret
    return master


m1, m2, m3 = named(make, "m1", "m2", "m3")


async def let_in(joiner: Master, through: Master, place: Any = None) -> Joined:
    return await apply(joiner.applicant, through.url, await shown(through.url), place, timeout=60)


def nobody_is_pinned(*masters: Master) -> bool:
    return not any(master.trust.peers() for master in masters)


@in_a_loop
async def test_two_masters_know_each_other_afterwards(m1: Master, m2: Master) -> None:
    async with m1.running() as listener:
        joined = await let_in(m2, m1)
        assert listener.refused == {}
    assert (joined.group, joined.members) == ("prod", ("m1",))
    assert m1.trust.peers()["m2"].fingerprint == m2.identity.fingerprint
    assert m2.trust.peers()["m1"].fingerprint == m1.identity.fingerprint


@in_a_loop
async def test_the_third_is_pinned_by_all(m1: Master, m2: Master, m3: Master) -> None:
    async with m1.running(), m2.running():
        await let_in(m2, m1)
        joined = await let_in(m3, m2)
        assert set(joined.members) == {"m1", "m2"}
    for master in (m1, m2, m3):
        assert set(master.trust.peers()) == {"m1", "m2", "m3"} - {master.name}


@in_a_loop
async def test_the_secret_is_as_good_as_often_as_it_is_used(m1: Master, m2: Master) -> None:
    async with m1.running():
        for _ in range(3):
            await let_in(m2, m1)
        assert list((m1.state_dir / "invites").iterdir()) == []


@pytest.mark.parametrize(
    ("shares", "asks", "handed"),
    [(True, True, KEY), (True, False, {}), (False, True, {}), (False, False, {})],
)
@in_a_loop
async def test_the_master_key_goes_to_who_asks_where_it_is_shared(
    m1: Master, m2: Master, shares: bool, asks: bool, handed: dict[str, str]
) -> None:
    m1.shared, m1.share_master_key = KEY, shares
    placed: list[Any] = []
    async with m1.running():
        await let_in(m2, m1, placed.append if asks else None)
    assert m1.handed == [handed]
    assert placed == ([handed] if asks else [])


def test_the_key_is_in_place_before_anybody_is_pinned(m1: Master, m2: Master) -> None:
    """A crash between the two leaves a master that joins again."""
    m1.shared, m1.share_master_key = KEY, True

    def crash(shared: object) -> None:
        assert m2.trust.peers() == {}
        raise KeyboardInterrupt

    async def main() -> None:
        async with m1.running():
            with pytest.raises(KeyboardInterrupt):
                await let_in(m2, m1, crash)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
    assert m2.trust.peers() == {}


@pytest.mark.parametrize("theirs", [OTHER, None])
@in_a_loop
async def test_another_secret_gets_nobody_in(m1: Master, m2: Master, theirs: bytes | None) -> None:
    m1.secret = theirs
    async with m1.running() as listener:
        with pytest.raises(PeerRefused, match="secret"):
            await let_in(m2, m1)
        assert listener.refused == {"not trusted": 1}
    assert nobody_is_pinned(m1, m2)


@in_a_loop
async def test_another_group_is_refused(m1: Master, m2: Master) -> None:
    m2.group = "test"
    async with m1.running():
        with pytest.raises(PeerRefused, match="of the group 'prod', not 'test'"):
            await let_in(m2, m1)
    assert nobody_is_pinned(m1, m2)


@in_a_loop
async def test_a_removed_certificate_stays_out(m1: Master, m2: Master) -> None:
    async with m1.running(), m2.running():
        await let_in(m2, m1)
        m1.trust.remove("m2")
        with pytest.raises(PeerRefused, match="was removed from this group"):
            await let_in(m2, m1)
        # Nor does m1 let itself be talked into it by asking.
        with pytest.raises(TrustError, match="was removed from this group"):
            await let_in(m1, m2)
    assert m1.trust.peers() == {}


@in_a_loop
async def test_who_left_lets_nobody_in_until_told_so(m1: Master, m2: Master) -> None:
    async with m1.running():
        group_secret.mark_left(m1.state_dir)
        with pytest.raises(PeerRefused, match="that master left its group"):
            await let_in(m2, m1)
        group_secret.forget_left(m1.state_dir)
        await let_in(m2, m1)


@in_a_loop
async def test_each_joins_the_other_at_the_same_time(m1: Master, m2: Master, m3: Master) -> None:
    masters = (m1, m2, m3)
    async with m1.running(), m2.running(), m3.running():
        await asyncio.gather(
            *(let_in(one, other) for one in masters for other in masters if one is not other)
        )
    for master in masters:
        assert set(master.trust.peers()) == {"m1", "m2", "m3"} - {master.name}
        assert master.trust.problems() == {}


# -- somebody in between


@contextlib.asynccontextmanager
async def between(attacker: Master, victim: Master, seen: list[Any]) -> AsyncIterator[None]:
    """*attacker* listens with its own certificate and passes all on to *victim*, and back."""

    async def relay(payload: dict[str, Any], host: str) -> dict[str, Any]:
        seen.append(payload)
        expected = victim.identity.fingerprint
        try:
            return await call_stranger(victim.url, expected, "join", payload, unattended.TIMEOUT)
        except HaError as exc:
            seen.append(exc)
            raise

    async with attacker.running() as listener:
        listener._strangers["join"] = relay
        yield


@in_a_loop
async def test_who_stands_in_between_gains_nothing(m1: Master, m2: Master, m3: Master) -> None:
    m1.shared, m1.share_master_key, m3.secret = KEY, True, None
    seen: list[Any] = []
    placed: list[Any] = []
    async with m1.running(), between(m3, m1, seen):
        with pytest.raises(PeerRefused):
            await let_in(m2, m3, placed.append)
    request, refusal = seen
    assert "the proof is wrong" in str(refusal)
    assert SECRET not in wire.pack(request)
    assert mac_key(SECRET) not in wire.pack(request)
    assert nobody_is_pinned(m1, m2, m3)
    assert placed == []


@in_a_loop
async def test_who_answers_without_the_secret_is_not_believed(m1: Master, m2: Master) -> None:
    me = make_peer("m1", m1.url, m1.identity.certificate)
    member = {"name": me.name, "url": me.url, "certificate": me.certificate}

    async def forged(payload: dict[str, Any], host: str) -> dict[str, Any]:
        reply = {"group": "prod", "members": [member], "nonce": payload["nonce"]}
        return {"reply": wire.pack(reply), "mac": b"\x00" * 32}

    async with m1.running() as listener:
        listener._strangers["join"] = forged
        with pytest.raises(TokenError, match="the proof in the answer"):
            await let_in(m2, m1)
    assert nobody_is_pinned(m2)


@in_a_loop
async def test_an_answer_that_was_good_once_is_not_believed_again(m1: Master, m2: Master) -> None:
    answers: list[Any] = []
    async with m1.running() as listener:
        genuine = listener._strangers["join"]
        assert genuine is not None

        async def recorded(payload: dict[str, Any], host: str) -> Any:
            answers.append(await genuine(payload, host))
            return answers[-1]

        async def replayed(payload: dict[str, Any], host: str) -> Any:
            return answers[0]

        listener._strangers["join"] = recorded
        await let_in(m2, m1)
        m2.trust.unpin("m1")
        listener._strangers["join"] = replayed
        with pytest.raises(TokenError, match="an old one"):
            await let_in(m2, m1)
    assert nobody_is_pinned(m2)


def request_of(master: Master, server: Master) -> dict[str, Any]:
    nonce = b"n" * group_secret.NONCE
    proof = group_secret.request_mac(
        mac_key(SECRET), server.identity.fingerprint, master.peer, "prod", nonce, False
    )
    return {
        "invite": group_secret.STANDING,
        "name": master.name,
        "url": master.url,
        "group": "prod",
        "certificate": master.identity.certificate,
        "nonce": nonce,
        "wants_key": False,
        "mac": proof,
    }


async def send(request: dict[str, Any], to: Master) -> bytes:
    answer = await raw_call(to, http("/v1/join", wire.pack(request), Connection="close"))
    return answer.splitlines()[0]


@pytest.mark.parametrize(
    "what", ["name", "url", "group", "certificate", "nonce", "wants_key", "mac", "invite"]
)
@in_a_loop
async def test_the_proof_covers_everything(m1: Master, m2: Master, m3: Master, what: str) -> None:
    changed: dict[str, Any] = {
        "name": "m3",
        "url": m3.url,
        "group": "test",
        "certificate": m3.identity.certificate,
        "nonce": b"o" * group_secret.NONCE,
        "wants_key": True,
        "mac": b"\x00" * 32,
        "invite": "0" * 32,
    }
    async with m1.running():
        assert b"403" in await send({**request_of(m2, m1), what: changed[what]}, m1)
        assert nobody_is_pinned(m1)
        assert b"200" in await send(request_of(m2, m1), m1)


@pytest.mark.parametrize("what", ["name", "url", "group", "certificate", "nonce", "mac"])
@pytest.mark.parametrize("value", [None, 7, "", "../../x", b"\x00", [], {}])
@in_a_loop
async def test_nonsense_is_refused(m1: Master, m2: Master, what: str, value: object) -> None:
    async with m1.running():
        assert b"403" in await send({**request_of(m2, m1), what: value}, m1)
    assert nobody_is_pinned(m1)


@in_a_loop
async def test_a_request_for_one_master_is_worth_nothing_at_another(
    m1: Master, m2: Master, m3: Master
) -> None:
    async with m1.running(), m3.running():
        assert b"403" in await send(request_of(m2, m1), m3)
        assert b"200" in await send(request_of(m2, m1), m1)
    assert nobody_is_pinned(m3)


@in_a_loop
async def test_guessing_is_throttled(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with m1.running():
        for n in range(admission.MAX_FAILED_JOINS):
            wrong = {**request_of(m2, m1), "mac": n.to_bytes(32, "big")}
            assert b"403" in await send(wrong, m1)
        with pytest.raises(PeerRefused, match="too many failed joins"):
            await let_in(m2, m1)
        assert nobody_is_pinned(m1)
        monkeypatch.setattr(admission, "FAILED_JOINS_PERIOD", 0.0)
        await let_in(m2, m1)


@in_a_loop
async def test_the_secret_is_shown_nowhere(
    m1: Master, m2: Master, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    m1.secret = OTHER
    async with m1.running():
        with pytest.raises(PeerRefused) as refused:
            await let_in(m2, m1)
        m1.secret = SECRET
    async with m1.running():
        joined = await let_in(m2, m1)
    said = (str(refused.value), repr(m2.applicant), repr(joined), caplog.text)
    said += (repr(m1.admission(m1.membership)._secret),)
    for text in said:
        for secret in (SECRET, OTHER):
            assert secret.decode() not in text
            assert mac_key(secret).hex() not in text


# -- finding the group, or founding it


async def find(master: Master, *masters: Master, wait: float = 0.0) -> unattended.JoinOutcome:
    return await find_group(master.applicant, [m.url for m in masters], wait, lambda shared: None)


@in_a_loop
async def test_the_first_founds_when_nobody_is_there_and_the_others_do_not(
    m1: Master, m2: Master, m3: Master
) -> None:
    assert (await find(m1, m1, m2, m3)).joined is None
    for other in (m2, m3):
        with pytest.raises(HaError, match=rf"The first of the list, {m1.url}"):
            await find(other, m1, m2, m3)
    assert (await find(m1, m1)).joined is None
    assert nobody_is_pinned(m1, m2, m3)


@in_a_loop
async def test_the_first_joins_when_another_is_there(m1: Master, m2: Master) -> None:
    async with m2.running():
        found = await find(m1, m1, m2)
        assert found.joined is not None
        assert (found.url, found.joined.members) == (m2.url, ("m2",))


@in_a_loop
async def test_the_first_founds_nothing_where_it_was_refused(m1: Master, m2: Master) -> None:
    """A group is there; a second one beside it is the last thing that is wanted."""
    m2.secret = OTHER
    async with m2.running():
        with pytest.raises(HaError, match="the proof is wrong"):
            await find(m1, m1, m2)
        # It is there, and says what is wrong: it is not to be started.
        told: list[str] = []
        with pytest.raises(HaError, match="the proof is wrong") as refused:
            await find_group(m1.applicant, [m2.url, m1.url], 1.0, lambda _: None, told.append)
        assert "is it started" not in str(refused.value)
        # Who waits is told what for, once.
        assert len(told) == 1
        assert "the proof is wrong" in told[0]


def test_the_first_founds_nothing_while_it_has_peers(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    with pytest.raises(HaError, match="refused the connection"):
        asyncio.run(find(m1, m1, m2))


@in_a_loop
async def test_silence_must_last_before_the_first_founds(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that takes connections and says nothing is no sign that nobody is there."""
    monkeypatch.setattr(unattended, "SILENCE", 4.0)
    monkeypatch.setattr(shown, "__defaults__", (0.1,))
    async with silent("127.0.0.1", m2.port):
        founding = asyncio.ensure_future(find(m1, m1, m2, wait=60))
        done, _ = await asyncio.wait([founding], timeout=0.8)
        assert not done
        assert (await asyncio.wait_for(founding, 60)).joined is None


@in_a_loop
async def test_an_address_that_leads_nowhere_is_refused(m1: Master, m2: Master, m3: Master) -> None:
    own = replace(m2.applicant, reach=Reach("127.0.0.1", m2.port))
    async with m1.running():
        server = await shown(m1.url)
        with pytest.raises(PeerRefused, match=f"m1 cannot reach you at {m3.url}"):
            await apply(replace(own, url=m3.url), m1.url, server)
        assert nobody_is_pinned(m1, m2)
        assert (await apply(own, m1.url, server)).unreachable == ""


@in_a_loop
async def test_who_lets_in_is_to_be_reached_where_it_says(
    m1: Master, m2: Master, m3: Master
) -> None:
    """It may be found where it listens, and say of itself what leads nowhere."""
    own = replace(m2.applicant, reach=Reach("127.0.0.1", m2.port))
    m1.url = m3.url.replace("127.0.0.1", "127.0.0.2")
    async with m1.running():
        at = f"https://127.0.0.1:{m1.port}"
        with pytest.raises(TrustError, match="m1 says that it is at") as caught:
            await apply(own, at, await shown(at))
        assert f"is at {m1.url}, and cannot" in str(caught.value)
        assert "the other masters list this one already" in str(caught.value)
        assert nobody_is_pinned(m2)
        told = replace(own, reach=Reach("127.0.0.1", m2.port, required=False))
        assert (await apply(told, at, await shown(at))).members == ("m1",)


@in_a_loop
async def test_who_lets_in_is_tried_where_this_master_calls_it(
    m1: Master, m2: Master, m3: Master
) -> None:
    """What ha: peers says goes before what that master says of itself: so it is called later on."""
    m1.url = m1.url.replace("127.0.0.1", "127.0.0.2")
    at = f"https://127.0.0.1:{m1.port}"
    trust = Trust(m2.state_dir, {"m1": at})
    own = replace(m2.applicant, trust=trust, reach=Reach("127.0.0.1", m2.port))

    async with m1.running():
        assert (await apply(own, at, await shown(at))).members == ("m1",)
        assert trust.peers()["m1"].url == at
        nowhere = Trust(m2.state_dir.parent / "m2-anew", {"m1": m3.url})
        with pytest.raises(TrustError, match=f"ha: peers has m1 at {m3.url}, and"):
            await apply(replace(own, trust=nowhere), at, await shown(at))
        assert not nowhere.pinned()


@in_a_loop
async def test_waiting_until_another_is_started(m1: Master, m2: Master) -> None:
    waiting = asyncio.ensure_future(find(m2, m1, m2, wait=60))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    async with m1.running():
        found = await asyncio.wait_for(waiting, 60)
        assert found.joined is not None


@in_a_loop
async def test_it_is_tried_again_after_a_disk_that_hung(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, hung = unattended.accept, [DiskHangs("nothing has moved")]

    def hangs_once(*args: Any) -> Joined:
        if hung:
            raise hung.pop()
        return accept(*args)

    monkeypatch.setattr(unattended, "accept", hangs_once)
    async with m1.running():
        assert (await find(m2, m1, m2, wait=60)).joined is not None
    assert not hung


@in_a_loop
async def test_who_has_no_master_key_yet_is_asked_again(m1: Master, m2: Master) -> None:
    m1.share_master_key = True
    placed: list[Any] = []

    def share(invite: object) -> dict[str, str]:
        if not m1.shared:
            raise TrustError("this master has no master key to share")
        return m1.shared

    async with m1.running() as listener:
        through = m1.admission(m1.membership)
        through._share = share
        listener._strangers["join"] = through.join
        joining = asyncio.ensure_future(
            find_group(m2.applicant, [m1.url, m2.url], 60, placed.append)
        )
        done, _ = await asyncio.wait([joining], timeout=0.3)
        assert not done
        assert nobody_is_pinned(m1, m2)
        m1.shared = KEY
        assert (await asyncio.wait_for(joining, 60)).joined is not None
    assert placed == [KEY]


def test_an_address_that_is_not_in_the_list_is_named(m1: Master, m2: Master) -> None:
    with pytest.raises(HaError, match=rf"{m1.url}, is not in the list"):
        asyncio.run(find(m1, m2))


@in_a_loop
async def test_a_master_meets_itself_under_another_name(m1: Master) -> None:
    """Its engine runs, and the list has another name for it: it is the first all the same."""
    listed = m1.url.replace("127.0.0.1", "localhost")
    async with m1.running():
        found = await find_group(m1.applicant, [listed], 0, lambda shared: None)
        assert found.joined is None
    assert nobody_is_pinned(m1)


@in_a_loop
async def test_a_new_certificate_of_the_same_name_is_not_let_in_silently(
    m1: Master, m2: Master
) -> None:
    """A container that lost its state folder: an operator has to say that the old one is gone."""
    async with m1.running():
        await let_in(m2, m1)
        m2.identity = identity.renew(m2.state_dir, "m2")
        with pytest.raises(PeerRefused, match=r"ha\.remove_peer m2"):
            await let_in(m2, m1)


def test_nobody_at_the_address(m1: Master) -> None:
    with pytest.raises(PeerUnreachable, match=rf"127\.0\.0\.1:{m1.port} refused the connection"):
        asyncio.run(shown(m1.url))
