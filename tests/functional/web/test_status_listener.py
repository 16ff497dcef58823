"""The status listener of a real engine, as a stranger meets it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.engines import Engine, Place, befriend, free_port
from proving.hostile.inputs import PAGES
from saltext_ha.common.errors import ConfigError, HaError
from saltext_ha.config.status import StatusSettings
from saltext_ha.engine.service import Service
from saltext_ha.transport.connection import Limits
from saltext_ha.web.listener import LIMITS, Page, StatusListener
from tests.certificates import self_signed
from tests.engines import running
from tests.loop import becomes, in_a_loop, until
from tests.pages import TOKEN, url_of
from tests.peers import silent
from tests.tools import program

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


def place(root: Path, name: str = "m1", **status: Any) -> Place:
    """A master with a status page."""
    port = free_port()
    return Place(root, name, {"status": {"port": port, **status}, "sync_interval": 0.1})


async def get(place: Place, path: str, **more: Any) -> tuple[int, str]:
    """Status and text of ``GET path``."""
    url = url_of(place, path)
    async with aiohttp.ClientSession() as session, session.get(url, **more) as answer:
        return answer.status, await answer.text()


async def served(engine: Engine) -> None:
    """Wait until the page is there."""
    status = engine.service._status
    await until(lambda: bool(status and status._http._server), "the status page is served")


@contextlib.asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Engine]:
    """The engine of *place*, which serves its status page."""
    async with running(place) as (engine,):
        await served(engine)
        yield engine


@contextlib.asynccontextmanager
async def listening(
    settings: StatusSettings | None = None, limits: Limits = LIMITS, **pages: Page
) -> AsyncIterator[StatusListener]:
    """A listener that serves *pages*; by default at a free port of loopback."""
    listener = StatusListener(settings or StatusSettings(port=free_port()), limits=limits)
    await listener.start({f"/{name}": page for name, page in pages.items()})
    try:
        yield listener
    finally:
        await listener.stop()


async def here(request: Any) -> Any:
    return aiohttp.web.Response(text="here")


async def raw(place: Place, words: bytes) -> bytes:
    """What is answered to *words* until it hangs up."""
    assert place.config.status
    reader, writer = await asyncio.open_connection("127.0.0.1", place.config.status.port)
    try:
        writer.write(words)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@in_a_loop
async def test_an_engine_says_that_it_lives_and_is_ready(tmp_path: Path) -> None:
    m1 = place(tmp_path)
    async with serving(m1) as engine:
        assert await get(m1, "/live") == (200, "live\n")
        assert await get(m1, "/ready") == (200, "ready\n")
        engine.parts.health.draining = True
        status, reason = await get(m1, "/ready")
        assert status == 503
        assert "drained" in reason
        url = url_of(m1, "/ready")
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.headers["Retry-After"] == "5"
        assert (await get(m1, "/nothing"))[0] == 404


@in_a_loop
async def test_not_ready_before_it_is_level_with_its_peers(tmp_path: Path) -> None:
    m1, m2, m3 = place(tmp_path), place(tmp_path, "m2"), place(tmp_path, "m3")
    befriend(m1, m2, m3)
    m2.begin()
    async with running(m2) as (_,):
        engine = Engine(m1)
        # Nobody is asked yet, and m3 is down for good.
        parts = engine.parts
        async with engine:
            await served(engine)
            ups: dict[str, bool | None] = {}

            def ready() -> bool:
                ups.update({name: contact.up for name, contact in parts.links.contacts.items()})
                return parts.health.ready()[0]

            await until(ready, "it is ready")
            assert ups == {"m2": True, "m3": False}
            # Once is enough: a peer that goes is no reason to stop serving.
            parts.links.contacts["m2"].up = None
            assert parts.health.ready() == (True, "")


@in_a_loop
async def test_what_is_waited_for_is_named(tmp_path: Path) -> None:
    m1, m2 = place(tmp_path), place(tmp_path, "m2")
    befriend(m1, m2)
    m1.begin()
    async with silent("127.0.0.1", m2.config.port), serving(m1) as engine:
        # The first question gets no answer.
        await until(lambda: "m2" in engine.parts.links.contacts, "m2 is being asked")
        status, reason = await get(m1, "/ready")
        assert status == 503
        assert "not yet in sync with m2" in reason


@pytest.mark.parametrize(
    "words",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET / HTTP/9.9\r\n\r\n",
        b"garbage\r\n\r\n",
        b"GET /" + b"a" * 10000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 10000 + b"\r\n\r\n",
        b"GET /live HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    ],
)
@in_a_loop
async def test_garbage_is_a_bad_request(tmp_path: Path, words: bytes) -> None:
    m1 = place(tmp_path)
    async with serving(m1):
        answer = await raw(m1, words)
        assert answer.startswith(b"HTTP/1.1 400 ") or answer.startswith(b"HTTP/1.0 400 ")
        assert await get(m1, "/live") == (200, "live\n")


@in_a_loop
async def test_nothing_can_be_changed(tmp_path: Path) -> None:
    m1 = place(tmp_path)
    async with serving(m1), aiohttp.ClientSession() as session:
        for path in ("/", "/ready", "/status", "/v1/push"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
                url = url_of(m1, path)
                async with session.request(method, url, data=b"x" * 100) as answer:
                    assert (method, answer.status) == (method, 405)


@in_a_loop
async def test_who_is_slow_or_idle_is_cut_off(tmp_path: Path) -> None:
    async with listening(limits=Limits(header=0.2), live=here) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)

        async def drip() -> None:
            for byte in b"GET /live HTTP/1.1\r\nX: " + b"a" * 1000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.ensure_future(drip())
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        dripping.cancel()
        assert listener.refused["no request in time"] == 1
    async with listening(limits=Limits(header=300, keepalive=0.3), live=here) as listener:
        # After an answer, too.
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert (await asyncio.wait_for(reader.read(), 60)).endswith(b"here")
    async with listening(limits=Limits(header=300, max_anonymous=4), live=here) as listener:
        # Many who say nothing do not keep out one who asks.
        crowd = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(40)]
        url = f"http://127.0.0.1:{listener.port}/live"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
        for _, each in crowd:
            each.close()


@in_a_loop
async def test_a_token_keeps_out_who_has_none(tmp_path: Path, token_file: str) -> None:
    m1 = place(tmp_path, token_file=token_file)
    async with serving(m1):

        async def look(authorization: str | None, path: str = "/nothing") -> int:
            headers = {"Authorization": authorization} if authorization else {}
            return (await get(m1, path, headers=headers))[0]

        basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
        wrong = base64.b64encode(f"{TOKEN}:".encode()).decode()
        assert await look(f"Bearer {TOKEN}") == 404
        assert await look(f"Basic {basic}") == 404
        for bad in (None, "Bearer", "Bearer x", f"Basic {wrong}", "Basic ?", f"Digest {TOKEN}"):
            assert (bad, await look(bad)) == (bad, 401)
        # Balancers ask these, and see no more than whether.
        assert await look(None, "/live") == 200
        assert await look(None, "/ready") == 200


@in_a_loop
async def test_nothing_but_live_and_ready_is_seen_without_the_token(
    tmp_path: Path, token_file: str
) -> None:
    m1 = place(tmp_path, token_file=token_file)
    async with serving(m1) as engine:
        paths = engine.made.pages.by_path().keys() - {"/live", "/ready"}
        assert len(paths) > 8
        for path in sorted(paths):
            assert (path, (await get(m1, path))[0]) == (path, 401)
        # Who knows it may call this master by any name, which may be that of a balancer.
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": "salt.example.org"}
        for path in sorted(paths - {"/events"}):
            assert (path, (await get(m1, path, headers=headers))[0]) == (path, 200)


@in_a_loop
async def test_the_name_of_the_configuration_is_ours(tmp_path: Path) -> None:
    # No name that is known to be loopback, and none that leads elsewhere.
    settings = StatusSettings(host="127.1", port=free_port())
    async with listening(settings, here=here), aiohttp.ClientSession() as session:
        for host, status in (("127.1", 200), ("127.1:80", 200), ("127.2", 421)):
            url = f"http://127.0.0.1:{settings.port}/here"
            async with session.get(url, headers={"Host": host}) as answer:
                assert (host, answer.status) == (host, status)


@in_a_loop
async def test_what_fails_is_told_by_its_kind_and_no_more(tmp_path: Path) -> None:
    async def unknown(request: Any) -> Any:
        raise HaError("not known yet")

    async def broken(request: Any) -> Any:
        raise RuntimeError("a secret")

    settings = StatusSettings(port=free_port())
    async with (
        listening(settings, unknown=unknown, broken=broken),
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"{settings.url}/unknown") as answer:
            assert (answer.status, await answer.text()) == (503, "not known yet\n")
        async with session.get(f"{settings.url}/broken") as answer:
            assert answer.status == 500
            assert await answer.text() == "failed there; salt-master's log says why\n"


@in_a_loop
async def test_browsers_send_what_other_pages_of_this_machine_gave_them() -> None:
    """Cookies know no port; on 127.0.0.1 they come to every page, also through ssh -L."""
    cookies = "; ".join(f"username-127-0-0-1-{port}={'x' * 300}" for port in range(8880, 8903))
    async with listening(here=here) as listener, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{listener.port}/here"
        for headers, status in (({"Cookie": cookies}, 200), ({"Cookie": 2 * cookies}, 400)):
            async with session.get(url, headers=headers) as answer:
                assert answer.status == status


@in_a_loop
async def test_browsers_are_told_to_keep_and_to_run_nothing_else(tmp_path: Path) -> None:
    m1 = place(tmp_path)
    async with serving(m1), aiohttp.ClientSession() as session:
        for path in ("/", "/page.js", "/status.json", "/nothing"):
            async with session.get(url_of(m1, path)) as answer:
                told = answer.headers
            assert "default-src 'none'" in told["Content-Security-Policy"], path
            assert "unsafe" not in told["Content-Security-Policy"], path
            assert told["X-Content-Type-Options"] == "nosniff", path
            assert told["Cache-Control"] == "no-store", path
            assert told["X-Frame-Options"] == "DENY", path
            assert "aiohttp" not in told["Server"], path


@in_a_loop
async def test_what_follows_a_body_is_no_request(tmp_path: Path) -> None:
    m1 = place(tmp_path)
    async with serving(m1):
        hidden = b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
        head = b"GET /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        answer = await raw(m1, head % len(hidden) + hidden)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"\r\nConnection: close\r\n" in answer


@in_a_loop
async def test_a_name_that_was_pointed_here_is_not_answered(tmp_path: Path) -> None:
    m1 = place(tmp_path)
    async with serving(m1):
        hosts = {
            "evil.example": 421,
            "evil.example:4531": 421,
            "10.0.0.1": 421,
            "localhost:9": 404,
            "127.0.0.1": 404,
            "[::1]:4531": 404,
        }
        for host, status in hosts.items():
            assert (host, (await get(m1, "/nothing", headers={"Host": host}))[0]) == (host, status)


@in_a_loop
async def test_tls(tmp_path: Path) -> None:
    crt, key = self_signed(tmp_path, "127.0.0.1")
    m1 = place(tmp_path, certificate=str(crt), key=str(key))
    async with serving(m1):
        context = ssl.create_default_context(cafile=str(crt))
        assert await get(m1, "/live", ssl=context) == (200, "live\n")
        with pytest.raises(aiohttp.ClientError):
            await get_plain(m1)


@in_a_loop
async def test_a_renewed_certificate_is_shown_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise haproxy would one day find no master ready: all their certificates have ended."""
    monkeypatch.setattr("saltext_ha.web.listener.RENEWAL", 0.02, raising=False)
    crt, key = self_signed(tmp_path, "127.0.0.1")
    (tmp_path / "new").mkdir()
    new, new_key = self_signed(tmp_path / "new", "127.0.0.1")

    async def shown(m1: Place) -> str:
        assert m1.config.status
        address = ("127.0.0.1", m1.config.status.port)
        return await asyncio.to_thread(ssl.get_server_certificate, address)

    m1 = place(tmp_path, certificate=str(crt), key=str(key))
    async with serving(m1):
        old = await shown(m1)
        # The new key is not there yet, or not to be read.
        key.write_text("no key")
        crt.write_text(new.read_text())
        await until(lambda: "server.crt cannot be used" in caplog.text, "it is said")
        assert await shown(m1) == old
        key.write_text(new_key.read_text())
        await becomes(lambda: shown(m1), new.read_text())
        context = ssl.create_default_context(cafile=str(new))
        assert await get(m1, "/live", ssl=context) == (200, "live\n")


@in_a_loop
async def test_nothing_is_taken_before_the_handshake_is_over(tmp_path: Path) -> None:
    """
    What is sent early, with a resumed session, could be sent once more by anybody who saw it.
    Python's ssl sends nothing early.
    """
    crt, key = self_signed(tmp_path, "127.0.0.1")
    request = tmp_path / "request"
    request.write_bytes(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    session = tmp_path / "session"

    async def client(port: int, *more: object) -> str:
        called = await asyncio.create_subprocess_exec(
            program("openssl"),
            *("s_client", "-tls1_3", "-ign_eof", "-connect", f"127.0.0.1:{port}"),
            *map(str, more),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        return (await called.communicate(request.read_bytes()))[0].decode(errors="replace")

    m1 = place(tmp_path, certificate=str(crt), key=str(key))
    async with serving(m1):
        assert m1.config.status
        port = m1.config.status.port
        said = await client(port, "-sess_out", session)
        assert "200 OK" in said
        assert set(re.findall(r"Max Early Data: (\d+)", said)) == {"0"}
        again = await client(port, "-sess_in", session, "-early_data", request)
        assert "200 OK" in again
        assert "Early data was accepted" not in again
        assert "Early data was" in again
        # Of peers not even a session is resumed.
        peers = await client(m1.config.port)
        assert "TLSv1.3" in peers
        assert "Max Early Data" not in peers


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@in_a_loop
async def test_tls_that_is_too_old(tmp_path: Path) -> None:
    crt, key = self_signed(tmp_path, "127.0.0.1")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    settings = StatusSettings(port=free_port(), certificate=crt, key=key)
    async with listening(settings) as listener:
        assert listener._context is not None
        # Otherwise many an OpenSSL refuses the old versions by itself, whatever we say.
        listener._context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", listener.port, ssl=old)
        await until(lambda: listener.refused == {"TLS too old": 1}, "it is refused")


async def get_plain(place: Place) -> None:
    assert place.config.status
    url = f"http://127.0.0.1:{place.config.status.port}/live"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        await answer.text()


def test_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("no certificate")
    m1 = place(tmp_path, certificate=str(tmp_path / "c.pem"))
    with pytest.raises(ConfigError, match=r"ha: status: certificate: .*c\.pem cannot be used"):
        Service(m1.opts, m1.config)


@pytest.mark.parametrize(("host", "port"), [("a..b", 4531), ("127.0.0.1", 65536), ("a\0b", 4531)])
def test_what_cannot_be_bound_is_an_error_that_ends_no_engine(host: str, port: int) -> None:
    with pytest.raises(HaError, match="status page: cannot listen on http://"):
        asyncio.run(StatusListener(StatusSettings(host=host, port=port)).start({}))


def test_who_is_stopped_while_it_starts_leaves_the_port_free() -> None:
    async def scene(steps: int) -> bool:
        settings = StatusSettings(port=free_port())
        listener = StatusListener(settings)
        start = asyncio.ensure_future(listener.start({}))
        for _ in range(steps):
            await asyncio.sleep(0)
        begun = not start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await start
        await listener.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(settings.host, settings.port)
        return begun

    # After each number of steps, until it has been started wholly.
    assert any(asyncio.run(scene(steps)) for steps in range(100))


@in_a_loop
async def test_a_port_that_is_taken_stops_nothing_but_the_page(tmp_path: Path) -> None:
    m1 = place(tmp_path)
    assert m1.config.status
    port = m1.config.status.port
    taken = await asyncio.start_server(lambda r, w: None, "127.0.0.1", port)
    async with running(m1) as (engine,):
        notes = engine.parts.notes
        await until(lambda: "status page" in notes, "it says so")
        assert f"cannot listen on http://127.0.0.1:{port}" in notes["status page"]
        taken.close()
        await taken.wait_closed()
        await until(lambda: "status page" not in notes, "the page is there")
        assert await get(m1, "/live") == (200, "live\n")


@in_a_loop
async def test_whatever_is_asked_is_answered_or_refused(tmp_path: Path) -> None:
    """Every page of a real engine, asked oddly."""
    paths = st.sampled_from([*PAGES, "/nothing"]) | st.text(max_size=20).map("/{}".format)
    values = st.text(max_size=20) | st.sampled_from(["*", "[", "web*", "-1", "9" * 30, "0", "7"])
    queries = st.dictionaries(st.sampled_from(["glob", "limit", "x"]), values, max_size=3)
    # Of Latin-1, and with line ends: whoever writes HTTP by hand may send those.
    texts = st.text(st.characters(max_codepoint=255), max_size=30)
    headers = st.dictionaries(
        st.sampled_from(["Host", "Authorization", "Accept", "Range", "Expect", "Content-Length"]),
        texts,
        max_size=3,
    )

    def ask_oddly(there: Place) -> None:
        status = there.config.status
        assert status is not None

        @settings(max_examples=250)
        @given(st.sampled_from(["GET", "HEAD", "PUT", "x"]), paths, queries, headers, st.booleans())
        def check(
            verb: str, path: str, query: dict[str, str], more: dict[str, str], escaped: bool
        ) -> None:
            asked = "&".join(f"{key}={value}" for key, value in query.items())
            shown = f"{path}?{asked}"
            if escaped:
                shown = f"{quote(path)}?{urlencode(query)}"
            more = {"Host": "127.0.0.1", **more}
            lines = "".join(f"{key}: {value}\r\n" for key, value in more.items())
            request = f"{verb} {shown} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode()
            with socket.create_connection(("127.0.0.1", status.port), 20) as sock:
                sock.sendall(request)
                try:
                    answer = sock.recv(65536)
                except ConnectionResetError:
                    answer = b""
            assert not answer or answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 "))
            assert answer[9:12] != b"500"
            seen.add(answer[9:12])

        seen: set[bytes] = set()
        check()
        assert {b"200", b"400", b"404", b"405"} <= seen

    m1 = place(tmp_path)
    async with serving(m1):
        await asyncio.to_thread(ask_oddly, m1)
