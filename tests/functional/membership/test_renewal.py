"""Masters that renew their certificates: nobody is locked out, and nobody else gets in."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any

import pytest

from lab.engines import Engine, Place, free_port
from saltext_ha.common.errors import PeerMistrust, PeerRefused, PeerUnreachable, TrustError
from saltext_ha.membership import admission
from saltext_ha.membership.invites import Invites, make_token
from saltext_ha.membership.join import join
from saltext_ha.membership.renewal import Renewal
from saltext_ha.transport import identity, pinning, succession, tls
from saltext_ha.transport.client import call_once
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import make_peer
from saltext_ha.transport.removals import Removed
from saltext_ha.transport.stranger_calls import call_stranger, certificates_of, introduce
from tests.engines import join as join_group
from tests.engines import noted, run, running
from tests.fixtures import named
from tests.loop import in_a_loop, until
from tests.peers import Master, befriend, echo

pytestmark = pytest.mark.usefixtures("no_bus")

HA = {"sync_interval": 0.2, "peer_timeout": 20.0}  # those that are down refuse at once


m1, m2, m3 = named(Master, "m1", "m2", "m3")


def renew(master: Master) -> Identity:
    master.identity = identity.succeed(master.state_dir, master.name)
    return master.identity


# the identity


def test_a_renewed_identity_is_another_one_and_stays(m1: Master, tmp_path: Path) -> None:
    first = m1.identity
    second, third = renew(m1), renew(m1)
    assert len({first.fingerprint, second.fingerprint, third.fingerprint}) == 3
    assert third.chain == (first.certificate, second.certificate, third.certificate)
    assert identity.load_or_create(m1.state_dir, "m1") == third
    assert identity.existing_or_provisional(m1.state_dir, "m1", tmp_path) == third
    assert third.key_file.stat().st_mode & 0o777 == 0o600
    succession.check(third.chain)
    assert identity.renew(m1.state_dir, "m1").former == ()


@pytest.mark.parametrize("crash_at", range(4))
def test_a_crash_in_between_leaves_the_old_or_the_new_one(
    m1: Master, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    """At every write and every removal."""

    class Crash(BaseException):
        pass

    done = 0

    def step() -> None:
        nonlocal done
        if done == crash_at:
            raise Crash
        done += 1

    write, unlink = identity.write_whole, Path.unlink

    def write_whole(path: Path, data: bytes) -> None:
        step()
        write(path, data)

    def remove(path: Path, missing_ok: bool = False) -> None:
        step()
        unlink(path, missing_ok=missing_ok)

    before = m1.identity
    with monkeypatch.context() as patch:
        patch.setattr(identity, "write_whole", write_whole)
        patch.setattr(Path, "unlink", remove)
        with pytest.raises(Crash):
            identity.succeed(m1.state_dir, "m1")
    found = identity.load_or_create(m1.state_dir, "m1")
    assert (found.fingerprint == before.fingerprint) is (crash_at < 2)
    assert before.certificate in found.chain
    again = identity.succeed(m1.state_dir, "m1")
    assert again.chain == (*found.chain, again.certificate)
    succession.check(again.chain)


# who follows whom


def test_only_the_key_of_the_pinned_certificate_vouches(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    old = m2.identity.certificate
    stranger = identity.load_or_create(m1.state_dir / "stranger", "m2").certificate
    for chain in ([stranger], [old, stranger], [stranger, old], []):
        with pytest.raises(TrustError, match=r"follow|signed"):
            m1.trust.renew("m2", [*chain, stranger])
        assert m1.trust.peers()["m2"].certificate == old
    renewed = renew(m2)
    with pytest.raises(TrustError, match="signed"):
        m1.trust.renew("m2", [*renewed.chain, stranger])
    assert m1.trust.renew("m2", renewed.chain)
    assert not m1.trust.renew("m2", renewed.chain)
    assert m1.trust.peers()["m2"].certificate == renewed.certificate
    # The former key vouches for nothing any more.
    with pytest.raises(TrustError, match="follow"):
        m1.trust.renew("m2", [old, stranger])


def test_an_expired_certificate_vouches_for_nothing(
    m1: Master, m2: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(identity, "LIFETIME", datetime.timedelta(days=-1))
        expired = Master(tmp_path, "m4")
    m1.trust.pin(expired.peer)
    with pytest.raises(TrustError, match=r"expired.*ha\.leave; on another member"):
        renew(expired)
    monkeypatch.setattr(succession, "expired", lambda pem: False)
    chain = renew(expired).chain
    monkeypatch.undo()
    with pytest.raises(TrustError, match=r"ended on .* vouches for no other .* ha\.leave here"):
        m1.trust.renew("m4", chain)


@pytest.mark.parametrize("change", ["renew", "unpin"])
def test_who_pins_and_who_renews_or_unpins_wait_for_each_other(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A peer tells that it has moved, while its certificate is renewed or it is unpinned."""
    befriend(m1, m2)
    moved = replace(m2.peer, url="https://127.0.0.1:1")
    chain = renew(m2).chain
    merged, others = pinning.merged, []

    def meanwhile(*peers: Any) -> Any:
        arguments = [chain] if change == "renew" else []
        others.append(Thread(target=getattr(m1.trust, change), args=("m2", *arguments)))
        others[0].start()
        others[0].join(0.5)
        return merged(*peers)

    monkeypatch.setattr(pinning, "merged", meanwhile)
    m1.trust.pin(moved)
    others[0].join()
    there = m1.trust.pinned()
    assert {p.certificate for p in there.values()} == ({chain[-1]} if change == "renew" else set())


@in_a_loop
async def test_calls_in_both_directions_after_a_renewal(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}), m2.running({"echo": echo}):
        await call_once(m1.identity, m2.peer, "echo")
    pinned = m1.trust.peers()["m2"]
    renew(m2)
    renew(m2)
    async with m1.running({"echo": echo}), m2.running({"echo": echo}):
        with pytest.raises(PeerUnreachable, match="has it pinned"):
            await call_once(m2.identity, m1.peer, "echo")
        with pytest.raises(PeerMistrust, match="another certificate"):
            await call_once(m1.identity, pinned, "echo")
        assert m1.trust.renew("m2", await certificates_of(pinned))
        renewed = m1.trust.peers()["m2"]
        assert await call_once(m1.identity, renewed, "echo")
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"


@in_a_loop
async def test_a_renewed_master_introduces_itself(m1: Master, m2: Master, m3: Master) -> None:
    """It may be the only one of the two that can reach the other."""
    befriend(m1, m2)
    renewed = renew(m2)
    renew(m3)

    async with m1.running({"echo": echo}):
        for who, name in ((m3, "m2"), (m3, "m3"), (m2, "m1"), (m2, "../m2")):
            with pytest.raises(PeerRefused, match="follow from none"):
                await introduce(who.identity, m1.peer, name)
        assert m1.trust.peers()["m2"].fingerprint != renewed.fingerprint
        await introduce(m2.identity, m1.peer, "m2")
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"
        await introduce(m2.identity, m1.peer, "m2")


@in_a_loop
async def test_a_renewed_master_may_be_removed_just_then(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task failed, and the engine ended: a master that was down hears of both at once."""
    befriend(m1, m2)
    # Renewed as well, it would introduce itself to the one that is gone.
    renewal = Renewal(renew(m1), m1.state_dir, "m1", m1.trust, 20.0)
    known, take_over = m1.trust.peers()["m2"], m1.trust.renew

    def removed_too(name: str, chain: Sequence[str]) -> bool:
        news = take_over(name, chain)
        m1.trust.remove("m2")
        return news

    monkeypatch.setattr(m1.trust, "renew", removed_too)
    renew(m2)
    async with m2.running():
        assert not await renewal.reconcile(known)
    assert m1.trust.peers() == {}


@in_a_loop
async def test_as_many_certificates_as_there_may_be_fit_into_a_request(
    m1: Master, m2: Master
) -> None:
    befriend(m1, m2)
    for _ in range(succession.MAX_FORMER):
        renew(m2)
    with pytest.raises(TrustError, match="too many"):
        renew(m2)
    async with m1.running({"echo": echo}):
        await introduce(m2.identity, m1.peer, "m2")
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"


@in_a_loop
async def test_certificates_that_strangers_show_keep_nobody_waiting(
    m1: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty fit into one request; to read them would take the event loop 15 ms."""
    read: list[bool] = []

    def reading(pem: object) -> tuple[str, str]:
        read.append(current_thread() is main_thread())
        return tls.read_certificate(pem)

    monkeypatch.setattr(admission, "read_certificate", reading)
    async with m1.running():
        for many, seen in ((20, []), (2, [False, False])):
            shown = {"name": "m2", "certificates": [m1.identity.certificate] * many}
            with pytest.raises(PeerRefused, match="follow from none"):
                await call_stranger(m1.url, None, "renewed", shown, 20)
            assert read == seen


def test_members_tell_each_other(m1: Master, m2: Master, m3: Master) -> None:
    befriend(m1, m2, m3)
    old = m2.membership.offer()
    renewed = renew(m2)
    m1.trust.renew("m2", renewed.chain)
    assert m3.membership.absorb(m1.peer, m1.membership.offer()).problems == []
    assert m3.trust.peers()["m2"].certificate == renewed.certificate
    # Nor does who has not heard take it back, or complain.
    stale = {"members": [{**old["self"], "certificate": renewed.former[0]}]}
    learnt = m1.membership.absorb(m3.peer, stale)
    assert (learnt.problems, learnt.adopted) == ([], [])
    assert m1.trust.peers()["m2"].certificate == renewed.certificate
    assert m2.membership.absorb(m1.peer, m1.membership.offer()).problems == []
    assert set(m2.trust.peers()) == {"m1", "m3"}


@pytest.mark.parametrize("remover_knows", ["old", "new"])
@pytest.mark.parametrize("other_knows", ["old", "new"])
def test_removal_bars_all_certificates(
    m1: Master, m2: Master, m3: Master, remover_knows: str, other_knows: str
) -> None:
    befriend(m1, m2, m3)
    old = m2.peer
    renewed = renew(m2)
    for master, knows in ((m1, remover_knows), (m3, other_knows)):
        if knows == "new":
            master.trust.renew("m2", renewed.chain)
    m1.trust.remove("m2")
    m3.membership.absorb(m1.peer, m1.membership.offer())
    m1.membership.absorb(m3.peer, m3.membership.offer())
    present = make_peer("m2", m2.url, renewed.certificate, former=renewed.former)
    later = renew(m2)
    last = make_peer("m2", m2.url, later.certificate, former=later.former)
    for master in (m1, m3):
        assert "m2" not in master.trust.peers()
        for peer in (old, present, last):
            with pytest.raises(TrustError, match="was removed from this group"):
                master.trust.pin(peer)
        offer = {
            "members": [
                {
                    "name": "m2",
                    "url": m2.url,
                    "certificate": later.certificate,
                    "former": list(later.former),
                }
            ]
        }
        assert master.membership.absorb(m2.peer, offer).adopted == []


def test_hearing_of_the_removal_of_a_former_certificate_of_ours(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    note = Removed(m1.identity.fingerprint, "m1")
    renew(m1)
    assert m1.membership.absorb(m2.peer, {"removed": [note.__dict__]}).removed_ourselves
    assert m1.trust.removals.notes() == []


@in_a_loop
async def test_a_renewed_master_joins_again(m1: Master, m2: Master) -> None:
    """Its old certificate is pinned still: the chain comes with the others that are introduced."""
    befriend(m1, m2)
    renew(m1)
    async with m1.running():
        token = make_token(m1.state_dir, m1.identity, (m1.url,), "prod").encode()
        await join(m2.applicant, token)
        assert await call_once(m2.identity, m2.trust.peers()["m1"], "members", {})
    assert m2.trust.peers()["m1"].certificate == m1.identity.certificate


@in_a_loop
async def test_a_pinned_certificate_serves_whatever_its_dates_say(
    m1: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(identity, "LIFETIME", datetime.timedelta(days=-1))
        m4 = Master(tmp_path, "m4")
    befriend(m1, m4)
    async with m4.running({"echo": echo}), m1.running({"echo": echo}) as listener:
        await call_once(m1.identity, m4.peer, "echo")
        await call_once(m4.identity, m1.peer, "echo")
        assert listener.refused == {}


# engines


def both_up(*engines: Engine) -> bool:
    return all(contact.up for engine in engines for contact in engine.parts.links.contacts.values())


@in_a_loop
async def test_ha_renew_while_both_run(tmp_path: Path) -> None:
    p1, p2 = Place(tmp_path, "m1", HA), Place(tmp_path, "m2", HA)
    async with running(p1, p2) as (one, two):
        await join_group(p1, p2)
        await one.meets(two)
        await two.meets(one)
        before = one.parts.identity.fingerprint
        assert "valid until" in str((await run(p1, "renew", test=True))["notes"])
        assert one.parts.identity.fingerprint == before
        done = await run(p1, "renew")
        assert "m2 knows it" in done["notes"], done
        now = one.parts.identity.fingerprint
        assert now != before
        assert two.parts.trust.peers()["m1"].fingerprint == now
        assert (await run(p1, "peers"))["self"]["fingerprint"] == now
        await until(lambda: both_up(one, two), "they have met again")


@pytest.mark.parametrize("command", ["renew", "leave"])
@in_a_loop
async def test_open_invitations_end_with_the_certificate_that_they_name(
    tmp_path: Path, command: str
) -> None:
    """Otherwise who joins by such a token is told that another master answers."""
    p1, p2 = Place(tmp_path, "m1", HA), Place(tmp_path, "m2", HA)
    async with running(p1, p2):
        await join_group(p1, p2)
        made = await run(p1, "invite")
        name, invites = made["invitation"], Invites(p1.config.state_dir)
        if command == "renew":
            planned = await run(p1, "renew", test=True)
            assert f"invitation {name} would be withdrawn" in str(planned["notes"])
        assert list(invites.open()) == [name]
        done = await run(p1, command)
        assert f"invitation {name} is withdrawn" in str(done["notes"])
        assert (done["retcode"], invites.open()) == (0, {})
        assert not Path(made["token_file"]).exists()


@in_a_loop
async def test_ha_renew_on_each_while_the_other_is_down(tmp_path: Path) -> None:
    """The hardest case of two: neither has heard of the other's new certificate when they meet."""
    p1, p2 = Place(tmp_path, "m1", HA), Place(tmp_path, "m2", HA)
    async with running(p1, p2) as (one, two):
        await join_group(p1, p2)
        await one.meets(two)
    for place, other in ((p1, "m2"), (p2, "m1"), (p1, "m2")):
        async with running(place) as (engine,):
            former = engine.parts.identity
            done = await run(place, "renew")
            assert done["retcode"] == 0
            ends = succession.expiry(former.certificate)
            later = f"{other} has not taken it over yet, and will by itself when it is back before"
            assert f"{later} {ends:%Y-%m-%d}" in str(done["notes"])
    async with running(p1, p2) as (one, two):
        await until(lambda: len(one.parts.links) == 1 and both_up(one, two), "they have met again")
        for engine, other in ((one, two), (two, one)):
            peer = engine.parts.trust.peers()[other.place.name]
            assert peer.fingerprint == other.parts.identity.fingerprint


@in_a_loop
async def test_a_renewal_does_not_forget_when_a_peer_was_seen(tmp_path: Path) -> None:
    p1, p2 = Place(tmp_path, "m1", HA), Place(tmp_path, "m2", HA)
    async with running(p1) as (one,):
        async with running(p2) as (two,):
            await join_group(p1, p2)
            await one.meets(two)
        before = one.parts.links.contacts["m2"]
        await run(p1, "renew")
        await until(lambda: one.parts.links.contacts["m2"] is not before, "another contact")
        (peer,) = (await run(p1, "peers"))["peers"]
        assert peer["state"] == "unknown"
        assert peer["seen"] is not None


@in_a_loop
async def test_ha_renew_and_another_address_while_the_other_is_down(tmp_path: Path) -> None:
    """m1 cannot call m2 where it was, and does not know the certificate that m2 shows."""
    p1, p2 = Place(tmp_path, "m1", HA), Place(tmp_path, "m2", HA)
    async with running(p1, p2) as (one, two):
        await join_group(p1, p2)
        await one.meets(two)
    p3 = Place(tmp_path, "m2", HA, port=free_port())
    async with running(p3):
        await run(p3, "renew")
    async with running(p1, p3) as (one, two):
        await one.meets(two)
        await two.meets(one)


@in_a_loop
async def test_status_tells_in_good_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "LIFETIME", datetime.timedelta(days=59))
    p1 = Place(tmp_path, "m1", HA)
    monkeypatch.setattr(identity, "LIFETIME", datetime.timedelta(days=61))
    p2 = Place(tmp_path, "m2", HA)
    for place in (p1, p2):
        days = 59 if place is p1 else 61
        monkeypatch.setattr(identity, "LIFETIME", datetime.timedelta(days=days))
        identity.load_or_create(place.config.state_dir, place.name)

    async with running(p1, p2) as (one, two):
        await join_group(p1, p2)
        await one.meets(two)
        await two.meets(one)
        status = await noted(p2, "m1")
        notes = {row["name"]: row["note"] for row in status["masters"]}
        assert "ends on" in notes["m1"]
        assert "salt-run ha.renew" in notes["m1"]
        assert notes["m2"] == ""


@in_a_loop
async def test_the_way_back_with_an_ended_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``ha.status`` and ``ha.renew`` say is done in that order, without a restart."""
    p1, p2 = Place(tmp_path, "m1", HA), Place(tmp_path, "m2", HA)
    with monkeypatch.context() as patch:
        patch.setattr(identity, "LIFETIME", datetime.timedelta(days=-1))
        identity.load_or_create(p1.config.state_dir, p1.name)
    async with running(p1, p2) as (one, two):
        await join_group(p1, p2)
        await one.meets(two)
        await two.meets(one)
        rows = (await run(p2, "status"))["masters"]
        note = next(row["note"] for row in rows if row["name"] == "m1")
        assert identity.ANEW in note
        for test in (True, False):
            refused = await run(p1, "renew", test=test)
            assert identity.ANEW in refused["error"]
            assert refused["retcode"] == 2
        assert "restart" not in identity.ANEW
        left = await run(p1, "leave")
        assert left["retcode"] == 0, left
        await until(lambda: not one.parts.links and not two.parts.links, "both are alone")
        await join_group(p2, p1)
        await one.meets(two)
        await two.meets(one)
        notes = [row["note"] for row in (await run(p2, "status"))["masters"]]
        assert notes == ["", ""]
