"""Much from one caller: others are still served, memory, log and folders stay bounded."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import resource
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp.web_protocol import RequestHandler

from lab.engines import Place
from saltext_ha.common.errors import (
    HaError,
    InvalidRecord,
    PeerMistrust,
    PeerRefused,
    TokenError,
    TrustError,
)
from saltext_ha.keystore import minion_key
from saltext_ha.membership import admission, membership
from saltext_ha.membership.group_secret import STANDING
from saltext_ha.membership.invites import make_token
from saltext_ha.replica.replica import Replica
from saltext_ha.sync import answers, messages, retention
from saltext_ha.transport import (
    control_client,
    identity,
    peer_files,
    removals,
    succession,
    trust,
    wire,
)
from saltext_ha.transport.client import PeerClient, call_once
from saltext_ha.transport.connection import Limits
from saltext_ha.transport.peer import Peer, make_peer
from saltext_ha.transport.trust import Trust
from tests.engines import running
from tests.fixtures import named
from tests.keys import public_key
from tests.loop import in_a_loop, until
from tests.peers import Master, befriend, echo, http, raw_call

pytestmark = pytest.mark.usefixtures("no_bus")

m1, m2 = named(Master, "m1", "m2")


# -- what is malformed is refused, and no error of ours


def test_a_successor_signed_as_nobody_signs(m1: Master) -> None:
    """A certificate whose signature algorithm does not exist, behind one that is known."""
    known = m1.identity.certificate
    der = ssl.PEM_cert_to_DER_cert(known)
    ecdsa = bytes.fromhex("2a8648ce3d040302")
    assert ecdsa in der
    bent = ssl.DER_cert_to_PEM_cert(der.replace(ecdsa, bytes.fromhex("2a8648c03d040302")))
    with pytest.raises(TrustError, match="not of the kind"):
        succession.after(known, [known, bent])


@in_a_loop
async def test_a_page_that_is_nowhere(tmp_path: Path) -> None:
    place = Place(tmp_path, "m1")
    async with running(place):
        for after in ("xyz", "00"):
            with pytest.raises(HaError, match="no page"):
                await asyncio.to_thread(
                    control_client.request,
                    place.config.control_socket,
                    "knowledge",
                    {"after": after},
                )


# -- connections


@in_a_loop
async def test_one_address_only_keeps_itself_out(m1: Master) -> None:
    """A peer whose handshake takes long is not pushed out by who opens many connections."""
    async with m1.running(limits=Limits(max_handshakes=4)) as listener:
        there = listener._http.acceptor.handshakes
        slow = await asyncio.open_connection("127.0.0.1", m1.port)
        await until(lambda: len(there) == 1)
        flood = [
            await asyncio.open_connection("127.0.0.1", m1.port, local_addr=("127.0.0.66", 0))
            for _ in range(12)
        ]
        await until(lambda: listener.refused.get("too many connections", 0) == 9)
        assert sorted(one.host for one in there) == ["127.0.0.1", *["127.0.0.66"] * 3]
        for _, writer in (slow, *flood):
            writer.close()


@in_a_loop
async def test_without_descriptors_it_pauses_and_goes_on(
    m1: Master, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio's own accept logs an error for each that may wait, and again a second later."""
    async with m1.running() as listener:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.ExitStack() as callers, contextlib.ExitStack() as hogs:
            for _ in range(3):
                callers.enter_context(socket.create_connection(("127.0.0.1", m1.port)))
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            hogs.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            await until(lambda: "no file descriptor is left" in listener.refused)
            assert listener.refused == {"no file descriptor is left": 1}
            assert not listener._http.acceptor.handshakes
            hogs.close()
            await until(lambda: len(listener._http.acceptor.handshakes) == 3)
    here = [one for one in caplog.records if one.thread == threading.get_ident()]
    assert len([one for one in here if one.levelno >= logging.WARNING]) == 1


@in_a_loop
async def test_one_peer_does_not_take_all_connections(
    m1: Master, m2: Master, tmp_path: Path
) -> None:
    m3 = Master(tmp_path, "m3")
    befriend(m1, m2, m3)
    limits = Limits(max_connections=8, max_per_peer=3)
    async with m1.running({"echo": echo}, limits) as listener, m3.calling(m1) as honest:
        await honest.call("echo")
        held = [asyncio.ensure_future(raw_call(m1, b"", m2)) for _ in range(10)]
        await until(lambda: listener.refused.get("too many connections", 0) == 7)
        names = [one.fingerprint for one in listener._http.acceptor.authenticated]
        assert names.count(m2.identity.fingerprint) == 3
        assert names.count(m3.identity.fingerprint) == 1
        for one in held:
            one.cancel()


def in_memory(kind: type) -> int:
    """How many objects of *kind* there are."""
    return sum(isinstance(there, kind) for there in gc.get_objects())


def run_uncollected(work: Coroutine[Any, Any, None]) -> None:
    """Run *work* without the garbage collector: what is in a cycle stays."""
    gc.collect()
    gc.disable()
    try:
        asyncio.run(work)
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["is pushed out", "hangs up", "speaks no TLS", "says nothing"])
def test_a_handshake_that_is_over_holds_no_memory(m1: Master, how: str) -> None:
    """Each has 0.3 MB of buffers, and the garbage collector counts objects, not bytes."""

    async def main() -> None:
        limits = Limits(max_handshakes=2 if how == "is pushed out" else 64, handshake=0.2)
        async with m1.running(limits=limits) as listener:
            callers = []
            for _ in range(10):
                callers.append((await asyncio.open_connection("127.0.0.1", m1.port))[1])
                await until(lambda: in_memory(SSLProtocol) > 0 or bool(listener.refused))
                if how == "speaks no TLS":
                    callers[-1].write(b"GET / HTTP/1.1\r\n\r\n")
                if how == "hangs up":
                    callers[-1].close()
            await until(lambda: sum(listener.refused.values()) == 10)
            # Once more around for what asyncio does last.
            await until(lambda: in_memory(SSLProtocol) == 0)
            for caller in callers:
                caller.close()

    run_uncollected(main())


@pytest.mark.parametrize("how", ["it shows another certificate", "it trusts us no more"])
def test_a_peer_that_cannot_be_called_holds_no_memory(
    m1: Master, m2: Master, tmp_path: Path, how: str
) -> None:
    """It is tried again and again, and each try has a TLS session."""
    expected = m1.peer
    if how == "it shows another certificate":
        befriend(m1, m2)
        expected = replace(Master(tmp_path, "m3").peer, url=m1.peer.url)

    async def main() -> None:
        async with m1.running():
            client = PeerClient(m2.identity, expected)
            for _ in range(5):
                with pytest.raises(PeerMistrust):
                    await client.call("echo")
            await client.close()
            await until(lambda: in_memory(SSLProtocol) == 0)

    run_uncollected(main())


@pytest.mark.parametrize(
    "line",
    [
        "POST /v1/join HTTP/9.9",
        "POST / HTTP/1.1\r\nContent-Length: 0",
        "NOSUCH / HTTP/1.1\r\nHost: m1\r\nContent-Length: 0",
    ],
)
def test_a_request_that_is_not_http_holds_no_memory(m1: Master, line: str) -> None:
    """aiohttp keeps the error, and with it what it came through: the same buffers."""

    async def main() -> None:
        async with m1.running() as listener:
            for _ in range(5):
                assert b" 400 " in await raw_call(m1, f"{line}\r\n\r\n".encode())
            await until(lambda: in_memory(RequestHandler) == 0)
            assert sum(listener.refused.values()) == 5

    run_uncollected(main())


# -- the log


def test_broken_http_does_not_fill_the_log(m1: Master, caplog: pytest.LogCaptureFixture) -> None:
    broken = b"POST /v1/join HTTP/9.9\r\nContent-Length: 0\r\n\r\n"

    async def main() -> None:
        async with m1.running() as listener:
            for _ in range(20):
                assert b" 400 " in await raw_call(m1, broken)
            found = {k: n for k, n in listener.refused.items() if k.startswith("HTTP: ")}
            assert sum(found.values()) == 20

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())
    assert "Traceback" not in caplog.text
    assert sum("refused" in record.message for record in caplog.records) <= 2


def test_a_peer_cannot_make_us_log_without_end(
    m1: Master, m2: Master, caplog: pytest.LogCaptureFixture
) -> None:
    befriend(m1, m2)
    ours = m1.membership
    with caplog.at_level(logging.INFO):
        for number in range(60):
            members = [{"name": f"../{number}" + "x" * 20_000}] * 20
            ours.absorb(m2.peer, {"members": members})
    assert 0 < len(caplog.records) <= 30
    assert len(caplog.text) < 20_000


@in_a_loop
async def test_the_reasons_of_a_peer_are_fit_for_a_terminal(m1: Master, m2: Master) -> None:
    befriend(m1, m2)

    async def rude(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        raise HaError("no\n[ERROR] all is lost \x1b[2J" + "x" * 100_000)

    async with m1.running({"rude": rude}):
        with pytest.raises(PeerRefused) as caught:
            await call_once(m2.identity, m1.peer, "rude")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(("name", "url"), [("x" * 100_000, ""), ("m3", "u" * 100_000)])
def test_errors_do_not_repeat_what_was_sent_at_length(name: str, url: str) -> None:
    with pytest.raises(TrustError) as caught:
        make_peer(name, url, "")
    assert len(str(caught.value)) < 500


# -- messages that are worth much more than they weigh


def test_a_message_of_a_million_lists_is_refused() -> None:
    million = b"\xdd" + (999_999).to_bytes(4, "big") + b"\x90" * 999_999
    with pytest.raises(ValueError, match="ValueError"):
        wire.unpack(b"\x81\xa1x\x92" + million + million)
    assert (
        len(wire.unpack(b"\x81\xa1x" + million[:1] + bytes([0, 0, 0, 9]) + b"\x90" * 9)["x"]) == 9
    )


def test_a_short_question_gets_no_endless_answer() -> None:
    replica = Replica(None)
    for ask, payload in (
        (answers.answer_branches, {"tree": "records", "branches": [7] * 1000}),
        (answers.answer_placed, {"buckets": [7] * 1000, "after": [-1, ""]}),
        (answers.answer_compare, {"buckets": [[7, []]] * 1000}),
    ):
        with pytest.raises(InvalidRecord, match="stands twice"):
            ask(replica, payload)
    replica.close()


def test_a_pattern_that_would_be_matched_for_ever_is_refused() -> None:
    replica = Replica(None)
    for glob in ("*a" * 5, "?" * 300, "*" * 60_000):
        for ask in (replica.placed, replica.revoked, replica.history.lines):
            with pytest.raises(InvalidRecord, match="takes a glob"):
                ask(glob)
    assert list(replica.placed("web*.prod*")) == []
    replica.close()


@in_a_loop
async def test_large_bodies_are_carried_out_by_few_at_a_time(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    inside = most = 0
    go_on = asyncio.Event()

    async def slow(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await go_on.wait()
        inside -= 1
        return {}

    async with m1.running({"slow": slow, "echo": echo}), m2.calling(m1) as peer:
        calls = [asyncio.ensure_future(peer.call("slow", {"x": bytes(300_000)})) for _ in range(5)]
        await until(lambda: inside == 2)
        # Who asks little is not held up by them.
        assert (await peer.call("echo"))["caller"] == "m2"
        go_on.set()
        await asyncio.gather(*calls)
    assert most == 2


# -- values of the wrong kind: refused, and not an error of ours


@pytest.mark.parametrize(
    "told", [[["web1", b"k", 7]], [[7, b"k", bytes(16)]], 7, [["web1", [], bytes(16)]], {"abc": 1}]
)
def test_what_is_not_told_properly(told: object) -> None:
    with pytest.raises(InvalidRecord):
        messages.read_dropped(told)


@pytest.mark.parametrize("keys", [[7], [None], [["web1"]], ["ab"], {"a": 1}, 7])
def test_what_is_no_dropping(keys: object) -> None:
    with pytest.raises(InvalidRecord):
        retention._read({"keys": keys, "epoch": 1, "horizon": []})


@pytest.mark.parametrize("bucket", [[7, [[None, b"k", b"d"]]], [7, [["web1", 7, b"d"]]], [7, 7], 7])
def test_what_is_no_bucket(bucket: object) -> None:
    replica = Replica(None)
    with pytest.raises(InvalidRecord):
        answers.answer_compare(replica, {"buckets": [bucket]})
    replica.close()


@pytest.mark.parametrize("invite", ["token", STANDING])
def test_a_join_whose_group_is_anything(m1: Master, m2: Master, invite: str) -> None:
    m1.secret = b"s" * 40
    nested: Any = []
    for _ in range(900):
        nested = [nested]
    made = make_token(m1.state_dir, m1.identity, (m1.url,), "prod")
    request = {
        "invite": made.invite if invite == "token" else invite,
        "name": "m2",
        "url": m2.url,
        "certificate": m2.identity.certificate,
        "group": nested,
        "mac": bytes(32),
        "nonce": bytes(16),
    }
    with pytest.raises(TokenError):
        asyncio.run(m1.admission(m1.membership).join(request, "127.0.0.1"))


@in_a_loop
async def test_a_body_that_is_nested_too_deeply(m1: Master, m2: Master) -> None:
    befriend(m1, m2)

    async def deep(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        return {"text": str(payload) * 0, **await deep(peer, payload)}

    async with m1.running({"deep": deep}):
        answer = await raw_call(m1, http("/v1/deep", wire.pack({}), Connection="close"), m2)
        assert answer.startswith(b"HTTP/1.1 400")


def test_keys_that_are_more_than_a_key() -> None:
    """What stands behind a public key would be carried to every master with it."""
    secret = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
    with pytest.raises(InvalidRecord, match="exactly one"):
        minion_key.check(f"{public_key(0)}\n{secret}")


# -- hearsay


def test_removals_that_a_peer_tells_of_are_bounded(
    m1: Master, m2: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert membership.MAX_HEARSAY < membership.MAX_REMOVED
    monkeypatch.setattr(membership, "MAX_HEARSAY", 30)
    m3 = Master(tmp_path, "m3")
    befriend(m1, m2, m3)
    ours, rng = m1.membership, random.Random(1)
    for _ in range(2):
        notes = [{"fingerprint": rng.randbytes(32).hex(":")} for _ in range(20)]
        ours.absorb(m2.peer, {"removed": notes})
    assert len(m1.trust.removals.notes()) == 30
    # A member's removal is believed, and an operator's can be told, all the same.
    ours.absorb(m2.peer, {"removed": [{"fingerprint": m3.identity.fingerprint}]})
    assert set(m1.trust.peers()) == {"m2"}
    m1.trust.remove("m2")
    assert m2.identity.fingerprint in {note.fingerprint for note in m1.trust.removals.notes()}
    assert len(ours.offer()["removed"]) == 32


def test_all_removals_of_a_long_life_are_told(
    m1: Master, m2: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ``ha.leave`` is one. Beyond 4096 peers refused the whole offer."""
    befriend(m1, m2)
    m3 = Master(tmp_path, "m3")
    members = [{**m3.membership.offer()["self"], "certificate": m3.identity.certificate}]
    known = [{"fingerprint": n.to_bytes(32, "big").hex(":")} for n in range(20)]
    m1.membership.absorb(m2.peer, {"removed": known})
    writes: list[Path] = []
    monkeypatch.setattr(removals, "create_whole", lambda path, data: writes.append(path))
    learnt = m1.membership.absorb(m2.peer, {"removed": known * 1000, "members": members})
    assert learnt.adopted == ["m3"]
    # What is known is not written, and each time waited for the disk.
    assert writes == []


def test_asking_for_the_removed_again_reads_nothing_again(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    befriend(m1, m2)
    notes = [{"fingerprint": n.to_bytes(32, "big").hex(":")} for n in range(20)]
    m1.membership.absorb(m2.peer, {"removed": notes})
    os.utime(m1.state_dir / "removed", (1.0, 1.0))
    first = m1.trust.removals.notes()
    reads: list[Path] = []
    real = removals.read_plain
    monkeypatch.setattr(removals, "read_plain", lambda path: reads.append(path) or real(path))
    assert m1.trust.removals.notes() == first
    assert reads == []
    m1.trust.remove("m2")
    assert len(m1.trust.removals.notes()) == 21
    # Another change in the very same tick of the clock.
    seen = (m1.state_dir / "removed").stat().st_mtime_ns
    m1.membership.absorb(m2.peer, {"removed": [{"fingerprint": ":".join(["ab"] * 32)}]})
    os.utime(m1.state_dir / "removed", ns=(seen, seen))
    assert len(m1.trust.removals.notes()) == 22


# -- guessing


def test_who_guesses_does_not_keep_others_from_joining(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Twenty failures a minute from one address, ten times that from all: then nobody is heard. One
    host, which has a whole network of IPv6, does not get that far.
    """
    request = {
        "invite": "0" * 32,
        "name": "m2",
        "url": m2.url,
        "certificate": m2.identity.certificate,
        "group": "prod",
        "mac": bytes(32),
    }
    ours = m1.admission(m1.membership)

    def reason(host: str) -> str:
        with pytest.raises(TokenError) as caught:
            asyncio.run(ours.join(dict(request), host))
        return str(caught.value)

    for _ in range(admission.MAX_FAILED_JOINS):
        assert "not known here" in reason("192.0.2.1")
    assert "too many failed joins" in reason("192.0.2.1")
    assert "not known here" in reason("192.0.2.2")
    for number in range(admission.MAX_FAILED_ANYWHERE):
        reason(f"2001:db8::{number:x}")
    assert "too many failed joins" in reason("2001:db8::ffff")
    assert "not known here" in reason("2001:db8:0:1::1")
    for number in range(admission.MAX_FAILED_ANYWHERE):
        reason(f"198.51.100.{number}")
    assert "too many failed joins" in reason("192.0.2.3")
    monkeypatch.setattr(admission, "FAILED_JOINS_PERIOD", 0.0)
    assert "not known here" in reason("192.0.2.1")


# -- texts of others in our log


@pytest.mark.parametrize(
    "url",
    [
        "x\n[ERROR   ] all is lost",
        "\x1b[2J",
        "https://a\x1b[2J:1",
        "https://a\0:1",
        "https://a b:1",
        "https://a..b:1",
        f"https://{'a' * 64}:1",
        f"https://{'é' * 60}:1",
        "https://\u202e:1",
    ],
)
def test_an_address_that_no_resolver_or_log_should_see(m2: Master, url: str) -> None:
    with pytest.raises(TrustError) as caught:
        make_peer("m2", url, m2.identity.certificate)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("url", ["https://[fe80::1]:1", "https://büro.example:1", "https://a_b.:1"])
def test_addresses_that_are_fine(m2: Master, url: str) -> None:
    assert make_peer("m2", url, m2.identity.certificate).url == url


def test_names_of_the_removed_are_fit_for_a_log(
    m1: Master, m2: Master, caplog: pytest.LogCaptureFixture
) -> None:
    befriend(m1, m2)
    note = {"fingerprint": "ab:" * 31 + "ab", "name": "m9\n[ERROR   ] all is lost\x1b[2J"}
    with caplog.at_level(logging.INFO):
        m1.membership.absorb(m2.peer, {"removed": [note]})
    assert "removed=m9" in caplog.text
    assert all(record.message.isprintable() for record in caplog.records)
    assert m1.trust.removals.notes()[0].name.isprintable()


# -- members that a peer makes up


def strangers(root: Path, count: int) -> list[dict[str, str]]:
    """Masters as a peer introduces them."""
    found = []
    for number in range(count):
        made = identity.load_or_create(root / f"x{number}", f"x{number}")
        url = f"https://127.0.0.1:{2000 + number}"
        found.append({"name": f"x{number}", "url": url, "certificate": made.certificate})
    return found


def test_a_peer_introduces_a_few_masters_in_an_hour_and_each_has_its_name(
    m1: Master, m2: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    befriend(m1, m2)
    told = strangers(tmp_path, membership.MAX_INTRODUCED + 4)
    ours = m1.membership
    learnt = ours.absorb(m2.peer, {"members": told})
    assert len(learnt.adopted) == membership.MAX_INTRODUCED
    assert len(learnt.problems) == 4
    assert "ha.remove_peer m2" in learnt.problems[0]
    assert ours.absorb(m2.peer, {"members": told}).adopted == []
    assert ours.notes() == [
        f"members that m2 tells of are not taken: {learnt.problems[0]}; and 3 more"
    ]
    assert {m1.trust.pinned()[name].introducer for name in learnt.adopted} == {"m2"}
    monkeypatch.setattr(membership, "INTRODUCED_PERIOD", 0.0)
    assert len(ours.absorb(m2.peer, {"members": told}).adopted) == 4
    assert ours.notes() == []


def test_a_group_is_no_larger_than_configured(m1: Master, m2: Master, tmp_path: Path) -> None:
    befriend(m1, m2)
    m1.trust = Trust(m1.state_dir, most=5)
    ours = m1.membership
    learnt = ours.absorb(m2.peer, {"members": strangers(tmp_path, 6)})
    assert learnt.adopted == ["x0", "x1", "x2"]
    assert "ha: max_members" in learnt.problems[0]
    assert "ha: max_members" in ours.notes()[0]
    # It is over when both know the same, and when that peer is out.
    asyncio.run(ours.members(m2.peer, {"digest": ours.digest()}))
    assert ours.notes() == []
    ours.absorb(m2.peer, {"members": strangers(tmp_path, 6)})
    assert ours.notes()
    m1.trust.unpin("m2")
    assert ours.notes() == []
    m1.trust.pin(m2.peer)
    # What is pinned already may still move, and be removed.
    m2.url = m2.url.replace("127.0.0.1", "localhost")
    assert m1.trust.pin(m2.peer)
    m1.trust.remove("x0")
    assert m1.trust.pin(m2.peer) is False


@in_a_loop
async def test_masters_that_are_introduced_hold_nobody_up(
    m1: Master, m2: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    befriend(m1, m2)
    told = strangers(tmp_path, membership.MAX_INTRODUCED)
    pinning, go_on = threading.Event(), threading.Event()
    real = trust.create_whole

    def slow(path: Path, data: bytes) -> bool:
        pinning.set()
        assert go_on.wait(20)
        return real(path, data)

    async with m1.running({"echo": echo}), m2.calling(m1) as client:
        monkeypatch.setattr(trust, "create_whole", slow)
        tells = asyncio.ensure_future(call_once(m2.identity, m1.peer, "members", {"members": told}))
        try:
            await until(pinning.is_set)
            # A disk that takes its time, and yet the loop answers, and knows whom it trusts.
            assert (await client.call("echo", {}))["caller"] == "m2"
            assert set(m1.trust.peers()) == {"m2"}
        finally:
            go_on.set()
        await tells
    assert len(m1.trust.peers()) == 1 + len(told)


def test_one_more_pin_reads_one_more_file(
    m1: Master, m2: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    befriend(m1, m2)
    told = strangers(tmp_path, membership.MAX_INTRODUCED)
    reads: list[Path] = []
    real = peer_files.read_plain
    monkeypatch.setattr(peer_files, "read_plain", lambda path: reads.append(path) or real(path))
    m1.membership.absorb(m2.peer, {"members": told})
    assert len(m1.trust.peers()) == 1 + len(told)
    assert 0 < len(reads) <= 2 + 2 * len(told)
