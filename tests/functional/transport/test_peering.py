"""Calls between masters: who gets through, who does not, and what both sides learn of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from saltext_ha.common import refusals
from saltext_ha.common.errors import (
    DiskHangs,
    HaError,
    InvalidRecord,
    NobodyListens,
    PeerRefused,
    PeerUnreachable,
    ReplicaError,
    StoreError,
)
from saltext_ha.common.refusals import RENEWED
from saltext_ha.transport import connection, identity, tls, wire
from saltext_ha.transport.client import MAX_ANSWER, call_once
from saltext_ha.transport.connection import Limits
from saltext_ha.transport.peer import Peer, make_peer
from tests.fixtures import named
from tests.loop import in_a_loop, until
from tests.peers import Master, befriend, echo, http, raw_call

m1, m2 = named(Master, "m1", "m2")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def content(answer: bytes) -> dict[str, object]:
    return wire.unpack(answer.partition(b"\r\n\r\n")[2])


@in_a_loop
async def test_a_pinned_peer_is_answered(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener, m2.calling(m1) as client:
        payload = {"n": 1, "data": b"\x00\xff", "list": [None, True, "ü"]}
        assert await client.call("echo", payload) == {"caller": "m2", "payload": payload}
        assert (await client.call("echo"))["payload"] == {}
        assert listener.refused == {}
        assert 100 < client.bytes_received < 2000
        assert 100 < client.bytes_sent < 2000


@in_a_loop
async def test_calls_share_one_connection(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener, m2.calling(m1) as client:
        for _ in range(5):
            await client.call("echo")
        assert len(listener._http.acceptor.authenticated) == 1


@in_a_loop
async def test_a_kept_connection_that_was_closed_is_replaced(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m2.calling(m1) as client:
        for _ in range(2):
            async with m1.running({"echo": echo}):
                assert (await client.call("echo"))["caller"] == "m2"


@in_a_loop
async def test_a_client_that_was_closed_opens_nothing_any_more(m1: Master, m2: Master) -> None:
    """An engine that ends closes its links first, and some task of it may still be asking."""
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener, m2.calling(m1) as client:
        await client.call("echo")
        await client.close()
        with pytest.raises(PeerUnreachable, match=r"127\.0\.0\.1:\d+ is not called any more"):
            await client.call("echo")
        await until(lambda: not listener._http.acceptor.authenticated)


@in_a_loop
async def test_a_kept_connection_that_ends_under_a_call_is_replaced(m1: Master, m2: Master) -> None:
    """As when the peer restarts just then; but a peer that always hangs up is not asked again."""
    requests: list[int] = []
    patient = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = wire.pack({"connection": len(set(requests)) + 1})
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for answered in range(2):
            await reader.readuntil(b"\r\n\r\n")
            requests.append(id(writer))
            if answered or not patient:
                break
            writer.write(head + body)
        writer.close()

    context = tls.server_context(m1.identity, [m2.identity.certificate])
    async with (
        await asyncio.start_server(serve, "127.0.0.1", m1.port, ssl=context),
        m2.calling(m1) as client,
    ):
        assert await client.call("echo") == {"connection": 1}
        assert await client.call("echo") == {"connection": 2}
        assert len(requests) == 3
        patient = False
        requests.clear()
        with pytest.raises(PeerUnreachable, match="hung up"):
            await client.call("echo")
        assert len(requests) == 2


@in_a_loop
async def test_unpinned_certificate_is_refused_and_counted(m1: Master, m2: Master) -> None:
    async with m1.running({"echo": echo}) as listener:
        with pytest.raises(PeerUnreachable, match=rf"127\.0\.0\.1:{m1.port} hung up"):
            await call_once(m2.identity, m1.peer, "echo")
        await until(lambda: listener.refused.get("certificate not pinned", 0) > 0)
        # Pinned while listening: the very next handshake succeeds.
        m1.trust.pin(m2.peer)
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"


@in_a_loop
async def test_who_is_pinned_while_its_handshake_fails_is_told_of_no_more(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a renewed certificate is learnt just then."""
    failure = connection._handshake_failure

    def pinned_meanwhile(exc: Exception) -> str:
        m1.trust.pin(m2.peer)
        m1.trust.generation()
        return failure(exc)

    async with m1.running({"echo": echo}) as listener:
        monkeypatch.setattr(connection, "_handshake_failure", pinned_meanwhile)
        # The client tries a second time by itself.
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"
        assert listener.refused == {"certificate not pinned": 1}
        assert listener._refusals.lately() == []


@in_a_loop
async def test_who_is_refused_by_the_present_trust_stays_told_of(
    m1: Master, m2: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its own handshake was the first to notice that it was removed."""
    monkeypatch.setattr(refusals, "UNDERWAY", 0)
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener:
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"
        Master(m1.state_dir.parent, "m1").trust.unpin("m2")
        assert await raw_call(m1, http("/v1/echo", b""), m2) == b""
        await until(lambda: bool(listener._refusals.lately()))
        listener._refusals.admitted("127.0.0.1")  # another one calls from there
        assert listener._refusals.lately() != []


@in_a_loop
async def test_a_pin_set_by_another_process_counts_at_once(m1: Master, m2: Master) -> None:
    async with m1.running({"echo": echo}):
        Master(m1.state_dir.parent, "m1").trust.pin(m2.peer)
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"


@in_a_loop
async def test_unpinning_ends_open_connections(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener, m2.calling(m1) as client:
        await client.call("echo")
        m1.trust.unpin("m2")
        with pytest.raises(PeerRefused, match="not pinned here any more"):
            await client.call("echo")
        assert listener.refused == {"not pinned": 1}
        await until(lambda: not listener._http.acceptor.authenticated)


@in_a_loop
async def test_who_calls_with_the_certificate_from_before_its_renewal_is_no_stranger(
    m1: Master, m2: Master
) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener, m2.calling(m1) as client:
        await client.call("echo")
        m1.trust.renew("m2", identity.succeed(m2.state_dir, "m2").chain)
        with pytest.raises(PeerRefused, match="not pinned here any more"):
            await client.call("echo")
        assert (listener.refused, listener._refusals.lately()) == ({RENEWED: 1}, [])


@in_a_loop
@pytest.mark.parametrize(
    ("error", "told"),
    [(ReplicaError, []), (StoreError, []), (DiskHangs, []), (HaError, ["refused"])],
)
async def test_whose_message_cannot_be_stored_here_is_not_turned_away(
    m1: Master, m2: Master, error: type[HaError], told: list[str]
) -> None:
    async def push(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        raise error("disk is full")

    befriend(m1, m2)
    async with m1.running({"push": push}) as listener, m2.calling(m1) as client:
        with pytest.raises(PeerRefused, match="disk is full"):
            await client.call("push")
        assert [each["reason"] for each in listener._refusals.lately()] == told
        assert sum(listener.refused.values()) == 1


@in_a_loop
async def test_a_session_of_before_lets_no_removed_peer_in(m1: Master, m2: Master) -> None:
    """A resumed session shows no certificate: so nobody gets a ticket for one."""
    befriend(m1, m2)
    context = tls.client_context(m2.identity, m1.identity.certificate)

    def ask(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None, bool | None]:
        with (
            socket.create_connection(("127.0.0.1", m1.port), 60) as plain,
            context.wrap_socket(plain, session=session) as stream,
        ):
            stream.sendall(http("/v1/echo", wire.pack({})))
            # Tickets come with the first answer.
            return stream.recv(65536), stream.session, stream.session_reused

    async with m1.running({"echo": echo}) as listener:
        answer, session, _ = await asyncio.to_thread(ask, None)
        assert status(answer) == 200
        assert session is not None
        assert not session.has_ticket
        answer, _, reused = await asyncio.to_thread(ask, session)
        assert (status(answer), reused) == (200, False)
        m1.trust.unpin("m2")
        with pytest.raises((OSError, IndexError)):
            status((await asyncio.to_thread(ask, session))[0])
        await until(lambda: listener.refused.get("certificate not pinned", 0) > 0)


@in_a_loop
async def test_a_certificate_signed_by_a_pinned_one_is_no_peer(
    m1: Master, m2: Master, tmp_path: Path
) -> None:
    """Even when m2's certificate vouches for it, only m2's own is pinned."""
    befriend(m1, m2)
    m3 = Master(tmp_path, "m3")

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    theirs = x509.load_pem_x509_certificate(m3.identity.certificate_file.read_bytes())
    signer = x509.load_pem_x509_certificate(m2.identity.certificate_file.read_bytes())
    key = serialization.load_pem_private_key(m2.identity.key_file.read_bytes(), None)
    forged = (
        x509.CertificateBuilder()
        .subject_name(theirs.subject)
        .issuer_name(signer.subject)
        .public_key(theirs.public_key())
        .serial_number(1)
        .not_valid_before(theirs.not_valid_before_utc)
        .not_valid_after(theirs.not_valid_after_utc)
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    pem = forged.public_bytes(serialization.Encoding.PEM)
    m3.identity.certificate_file.write_bytes(pem)

    async with m1.running({"echo": echo}) as listener:
        with pytest.raises((PeerUnreachable, PeerRefused)):
            await call_once(m3.identity, m1.peer, "echo")
        await until(lambda: sum(listener.refused.values()) > 0)


@in_a_loop
async def test_without_a_certificate_only_join_is_answered(m1: Master) -> None:
    async with m1.running({"echo": echo}) as listener:
        answer = await raw_call(m1, http("/v1/echo", wire.pack({})))
        assert status(answer) == 401
        assert content(answer)["error"] == "no_certificate"
        # join is reached, and says itself what it thinks of the request.
        answer = await raw_call(m1, http("/v1/join", wire.pack({})))
        assert status(answer) == 403
        assert listener.refused == {"no certificate": 1, "not trusted": 1}


@in_a_loop
async def test_tls_1_2_is_refused_and_counted(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener:
        old = {"minimum_version": ssl.TLSVersion.TLSv1_2, "maximum_version": ssl.TLSVersion.TLSv1_2}
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await raw_call(m1, b"", m2, **old)
        await until(lambda: listener.refused == {"TLS too old": 1})


@in_a_loop
async def test_plain_http_is_refused_and_counted(m1: Master) -> None:
    async with m1.running({"echo": echo}) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", m1.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await until(lambda: listener.refused == {"not TLS": 1})


@in_a_loop
async def test_a_silent_connection_is_dropped_at_the_handshake_deadline(m1: Master) -> None:
    async with m1.running({}, Limits(handshake=0.2)) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", m1.port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        await until(lambda: listener.refused == {"handshake timed out": 1})


@in_a_loop
async def test_silent_connections_do_not_keep_peers_out(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}, Limits(max_handshakes=4)) as listener:
        silent = [await asyncio.open_connection("127.0.0.1", m1.port) for _ in range(10)]
        assert (await call_once(m2.identity, m1.peer, "echo"))["caller"] == "m2"
        assert listener.refused["too many connections"] >= 6
        assert len(listener._http.acceptor.handshakes) <= 4
        for _, writer in silent:
            writer.close()


@in_a_loop
async def test_a_slow_header_is_cut_off(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}, Limits(header=0.3)) as listener:
        started = time.monotonic()
        assert await raw_call(m1, b"POST /v1/echo HTTP/1.1\r\nHost: ", m2) == b""
        assert 0.2 < time.monotonic() - started < 20
        assert listener.refused == {"no request in time": 1}


@in_a_loop
async def test_a_slow_second_header_is_cut_off_too(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}, Limits(keepalive=0.3)):
        first = http("/v1/echo", wire.pack({}))
        answer = await raw_call(m1, first + b"POST /v1/echo HTTP/1.1\r\nHost: ", m2)
        assert answer.count(b"HTTP/1.1 200") == 1


@in_a_loop
async def test_a_slow_body_is_cut_off(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}, Limits(body=0.3)) as listener:
        answer = await raw_call(m1, http("/v1/echo", b"\x81", Content_Length="100"), m2)
        assert status(answer) == 408
        assert listener.refused == {"too slow": 1}


@in_a_loop
async def test_too_large_a_body_is_refused(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    request = http("/v1/echo", b"x" * 2000, Connection="close")
    async with m1.running({"echo": echo}, Limits(max_body=1000)) as listener:
        assert status(await raw_call(m1, request, m2)) == 413
        assert listener.refused == {"too large": 1}


@in_a_loop
async def test_too_large_an_answer_is_not_read_and_said_to_be_too_large(
    m1: Master, m2: Master
) -> None:
    async def much(peer: Peer, payload: dict[str, object]) -> dict[str, object]:
        return {"data": b"x" * MAX_ANSWER}

    befriend(m1, m2)
    async with m1.running({"much": much, "echo": echo}), m2.calling(m1) as client:
        with pytest.raises(PeerUnreachable, match="answers much with more than 16 MB"):
            await client.call("much", timeout=60)
        assert (await client.call("echo"))["caller"] == "m2"


@in_a_loop
async def test_a_join_request_has_a_limit_of_its_own(m1: Master) -> None:
    async with m1.running():
        answer = await raw_call(m1, http("/v1/join", b"x" * 20_000))
        assert status(answer) == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x93\x01\x02\x03",
        wire.pack({"a": 1})[:-1],
        wire.pack({"a": 1}) + b"\x00",
        b"\x81\x01\x02",
        b"\x81\xa1a\xc7\x01\x05x",
        b"\x81\xa1a" + b"\x91" * 5000,
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1\xff\x01",
    ],
    ids=[
        "empty",
        "reserved byte",
        "list",
        "cut",
        "trailing",
        "number as key",
        "extension",
        "deep",
        "huge list claimed",
        "not UTF-8",
    ],
)
@in_a_loop
async def test_malformed_bodies_are_refused(m1: Master, m2: Master, body: bytes) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener:
        answer = await raw_call(m1, http("/v1/echo", body, Connection="close"), m2)
        assert status(answer) == 400
        assert listener.refused == {"malformed": 1}


@in_a_loop
async def test_other_requests_are_refused(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    body = wire.pack({})
    async with m1.running({"echo": echo}):
        close = {"Connection": "close"}
        for request, expected in (
            (http("/v1/nope", body, **close), 404),
            (http("/echo", body, **close), 404),
            (http("/v1/echo", body, **close).replace(b"POST", b"PUT", 1), 405),
            (http("/v1/echo", body, Content_Type="text/plain", **close), 415),
            (http("/v1/echo", body, Content_Encoding="gzip", **close), 415),
        ):
            assert status(await raw_call(m1, request, m2)) == expected


@pytest.mark.parametrize("version", ["2", "", "1.0"])
@in_a_loop
async def test_an_unknown_protocol_is_told_what_is_spoken(
    m1: Master, m2: Master, version: str
) -> None:
    befriend(m1, m2)
    request = http("/v1/echo", wire.pack({}), X_HA_Protocol=version, Connection="close")
    async with m1.running({"echo": echo}):
        answer = await raw_call(m1, request, m2)
        assert status(answer) == 426
        assert content(answer)["supported"] == [1]


@in_a_loop
async def test_errors_of_handlers(m1: Master, m2: Master, caplog: pytest.LogCaptureFixture) -> None:
    befriend(m1, m2)

    async def invalid(peer: object, payload: object) -> dict[str, object]:
        raise InvalidRecord("minion id is none")

    async def broken(peer: object, payload: object) -> dict[str, object]:
        raise RuntimeError("the innermost secret")

    async with (
        m1.running({"invalid": invalid, "broken": broken, "echo": echo}),
        m2.calling(m1) as client,
    ):
        with pytest.raises(PeerRefused, match="refused invalid: minion id is none") as refused:
            await client.call("invalid")
        assert refused.value.reason == "minion id is none"
        with pytest.raises(PeerRefused) as caught:
            await client.call("broken")
        assert "secret" not in str(caught.value)
        assert (await client.call("echo"))["caller"] == "m2"
    assert "the innermost secret" in caplog.text


@in_a_loop
async def test_a_dead_peer_is_unreachable(m1: Master, m2: Master) -> None:
    with pytest.raises(NobodyListens, match=rf"^127\.0\.0\.1:{m1.port} refused the conn"):
        await call_once(m2.identity, m1.peer, "echo")


@in_a_loop
async def test_a_hung_peer_times_out_at_the_deadline(m1: Master, m2: Master) -> None:
    """A kernel that accepts while the process does not: what a stopped master looks like."""
    with socket.create_server(("127.0.0.1", m1.port)):
        started = time.monotonic()
        with pytest.raises(PeerUnreachable, match=rf"^127\.0\.0\.1:{m1.port} timed out$"):
            await call_once(m2.identity, m1.peer, "echo", timeout=0.4)
        assert 0.35 < time.monotonic() - started < 20


@in_a_loop
async def test_a_hung_handler_times_out_at_the_deadline(m1: Master, m2: Master) -> None:
    befriend(m1, m2)

    async def hang(peer: object, payload: object) -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    async with m1.running({"hang": hang, "echo": echo}), m2.calling(m1) as client:
        started = time.monotonic()
        with pytest.raises(PeerUnreachable, match="timed out"):
            await client.call("hang", timeout=0.4)
        assert 0.35 < time.monotonic() - started < 20
        assert (await client.call("echo"))["caller"] == "m2"


@in_a_loop
async def test_a_server_with_another_certificate_gets_nothing(
    m1: Master, m2: Master, tmp_path: Path
) -> None:
    impostor = Master(tmp_path, "impostor")
    befriend(impostor, m2)
    reached = []

    async def note(peer: object, payload: dict[str, object]) -> dict[str, object]:
        reached.append(payload)
        return {}

    async with impostor.running({"echo": note}):
        expected = make_peer("m1", impostor.url, m1.identity.certificate)
        with pytest.raises(PeerUnreachable, match="another certificate than the expected"):
            await call_once(m2.identity, expected, "echo", {"secret": 1})
    assert reached == []


@in_a_loop
async def test_a_taken_port_is_named(m1: Master, tmp_path: Path) -> None:
    said = rf"cannot listen on https://127\.0\.0\.1:{m1.port}"
    with (
        socket.create_server(("127.0.0.1", m1.port)),
        pytest.raises(HaError, match=said),
    ):
        await m1.running().__aenter__()


@in_a_loop
async def test_stopping_with_open_connections_is_quick(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m2.calling(m1) as client, m1.running({"echo": echo}) as listener:
        await client.call("echo")
        _, writer = await asyncio.open_connection("127.0.0.1", m1.port)
        started = time.monotonic()
        await listener.stop()
        assert time.monotonic() - started < 20
        writer.close()


@in_a_loop
async def test_stopping_while_a_connection_is_being_closed(m1: Master, m2: Master) -> None:
    """asyncio of Python 3.11.2 cannot abort a TLS transport that was closed twice."""
    befriend(m1, m2)
    async with m1.running({"echo": echo}) as listener, m2.calling(m1) as client:
        await client.call("echo")
        (connection,) = listener._http.acceptor.authenticated
        assert connection._transport is not None
        connection._transport.close()
        connection._transport.close()
        connection.drop()
        assert not listener._http.acceptor.authenticated


@in_a_loop
async def test_many_calls_at_once(m1: Master, m2: Master) -> None:
    befriend(m1, m2)
    async with m1.running({"echo": echo}), m2.calling(m1) as client:
        answers = await asyncio.gather(*(client.call("echo", {"n": n}) for n in range(100)))
        assert [answer["payload"]["n"] for answer in answers] == list(range(100))
