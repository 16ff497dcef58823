"""
The real haproxy and nginx with what ``ha.proxy_config`` writes, before salt-apis that do as they
are told and count what reaches them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import re
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest
import requests

from lab import wait_for
from lab.network import Network
from saltext_ha.balancer.render import MOST_OF_NGINX, render, wishes
from saltext_ha.balancer.servers import Address, Server
from tests.api_server import Listener, respond
from tests.balancer import Balancer, From, pem
from tests.certificates import self_signed
from tests.loop import in_a_loop

KINDS = ["haproxy", "nginx"]
SOON = 120.0
TIMEOUT = 3  # seconds that one call may take; event streams may take longer
PASSWORDS = ("/run", "/token", "/keys")  # beside /login; here they are all wrong
NOTHING = b"[]"  # a call that asks for nothing; it must be JSON and take JSON, as salt-api has it


class Backend:
    """
    One master: a salt-api, and a status listener that is ``ready`` or not.

    :ivar calls: path and token of what came in; ``callers``: from whom, as the balancer says.
    :ivar ran: what calls with a token of its own asked for; ``hosts``: whom calls were for;
        ``names``: by which name its certificate was asked for; ``hurried``: a call came with word
        that the connection ends behind it; ``smuggled``: a header of that name came in.
    :ivar does: what becomes of a call: ``answer``, ``drop`` (the connection, once it was read),
        ``hang``, ``refuse`` (401, after a part of it was done), or a number: that HTTP status.
    """

    def __init__(
        self, name: str, address: str, network: Network, context: ssl.SSLContext | None = None
    ) -> None:
        self.name, self.does, self.ready, self._context = name, "answer", True, context
        self.calls: list[tuple[str, str]] = []
        self.callers: list[str] = []
        self.ran: list[bytes] = []
        self.hosts: set[str] = set()
        self.names: set[str | None] = set()
        self.smuggled = False
        self.hurried = False
        self.asked = 0
        self.more, self.over = threading.Event(), threading.Event()
        self._tokens: set[str] = set()
        self._at = (address, network.ports.api), (address, network.ports.status)
        self._servers: list[ThreadingHTTPServer] = []
        if context:
            context.sni_callback = lambda _, name, __: self.names.add(name)
        self.start()

    @property
    def server(self) -> Server:
        api, status = self._at
        tls = self._context is not None
        return Server(self.name, Address(*api, tls), Address(*status, tls))

    def start(self) -> None:
        for at, handler in zip(self._at, (self._api(), self._status()), strict=True):
            server = Listener(at, handler)
            server.daemon_threads = True
            if self._context:
                # Not in accept(), where one that says nothing would keep all others out.
                server.socket = self._context.wrap_socket(
                    server.socket, server_side=True, do_handshake_on_connect=False
                )
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self._servers.append(server)

    def die(self) -> None:
        """As a host that was switched off: its ports refuse connections."""
        while self._servers:
            server = self._servers.pop()
            server.shutdown()
            server.server_close()

    def close(self) -> None:
        """The end of everything that waits."""
        self.more.set()
        self.over.set()
        self.die()

    def count(self, path: str) -> int:
        return sum(called == path for called, _ in self.calls)

    def _status(self) -> type[BaseHTTPRequestHandler]:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                backend.asked += 1
                respond(self, {}, 200 if backend.ready and self.path == "/ready" else 503)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _api(self) -> type[BaseHTTPRequestHandler]:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                token = self._token()
                backend.callers.append(self.headers["X-Forwarded-For"] or "")
                backend.calls.append((self.path, token))
                backend.hosts.add(self.headers["Host"].partition(":")[0])
                backend.smuggled |= "Smuggled" in self.headers
                backend.hurried |= self.headers["Connection"] == "close" and body != NOTHING
                json = [self.headers[name] for name in ("Content-Type", "Accept")]
                if body == NOTHING and json != ["application/json"] * 2:
                    respond(self, {}, 406)
                    return
                if backend.does == "drop":
                    self.close_connection = True
                elif backend.does == "hang":
                    backend.over.wait()
                    self.close_connection = True
                elif backend.does.isdigit():
                    respond(self, {}, int(backend.does))
                elif self.path == "/login":
                    token = f"{len(backend._tokens)}-of-{backend.name}"
                    backend._tokens.add(token)
                    respond(self, {}, X_Auth_Token=token)
                elif self.path in PASSWORDS or token not in backend._tokens:
                    self._unknown()
                else:
                    if body != NOTHING:
                        backend.ran.append(body)
                    status = 401 if backend.does == "refuse" and body != NOTHING else 200
                    # As salt-api says it to whose token it knows.
                    respond(self, {"on": backend.name}, status, Cache_Control="private")

            def do_GET(self) -> None:
                backend.calls.append((self.path, self._token()))
                backend.hosts.add(self.headers["Host"].partition(":")[0])
                backend.smuggled |= "Smuggled" in self.headers
                backend.callers.append(self.headers["X-Forwarded-For"] or "")
                if self.path.startswith("/ws/"):
                    self._websocket()
                    return
                if self._token() not in backend._tokens:
                    self._unknown()
                    return
                if self.path == "/keys/":  # as CherryPy says it
                    host = self.headers["Host"]
                    respond(self, {}, 303, Location=f"http://{host}/keys?client=wheel")
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self._chunk(f"first of {backend.name}\n".encode())
                backend.more.wait()
                self._chunk(b"second\n")
                self._chunk(b"")

            def _token(self) -> str:
                cookie = re.search("session_id=([^;]+)", self.headers["Cookie"] or "")
                return self.headers["X-Auth-Token"] or (cookie[1] if cookie else "")

            def _unknown(self) -> None:
                respond(self, {"unknown to": backend.name}, 401, X_Said_By=backend.name)

            def _websocket(self) -> None:
                """Greet by what came, and once more much later; to whom has no token: 401."""
                if self.path[4:] not in backend._tokens:
                    self._unknown()
                    return
                assert self.headers["Upgrade"] == "websocket", self.headers
                assert self.headers["Connection"].lower() == "upgrade", self.headers
                assert self.request_version == "HTTP/1.1"
                key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
                self.send_response(101)
                self.send_header("Upgrade", "websocket")
                self.send_header("Connection", "Upgrade")
                accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
                self.send_header("Sec-WebSocket-Accept", accept)
                self.end_headers()
                length = self.rfile.read(2)[1] & 0x7F
                mask, said = self.rfile.read(4), self.rfile.read(length)
                said = bytes(byte ^ mask[n % 4] for n, byte in enumerate(said))
                self._text(f"{backend.name} heard ".encode() + said)
                backend.more.wait()
                self._text(b"second")
                self.close_connection = True

            def _text(self, data: bytes) -> None:
                self.wfile.write(bytes((0x81, len(data))) + data)

            def _chunk(self, data: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


class Site:
    """Masters behind a balancer; two, if not said otherwise."""

    def __init__(self, kind: str, balancer: Balancer, ca: Path, *masters: Backend) -> None:
        self.kind, self.balancer, self.ca, self.masters = kind, balancer, ca, masters
        self.m1, self.m2 = masters[:2]
        self._sources = itertools.count(1)

    def source(self) -> str:
        """An address that nobody came from yet."""
        return f"127.88.0.{next(self._sources)}"

    @contextmanager
    def client(self, source: str = "") -> Iterator[requests.Session]:
        """A caller with an address of its own; nothing of an earlier one is reused."""
        source = source or self.source()
        with requests.Session() as session:
            session.verify, session.trust_env = str(self.ca), False
            for scheme in ("https://", "http://"):
                session.mount(scheme, From(source))
            yield session

    def login(self, session: requests.Session) -> str:
        answer = session.post(f"{self.balancer.url}/login", json={}, timeout=SOON)
        answer.raise_for_status()
        return answer.headers["X-Auth-Token"]

    def call(self, session: requests.Session, token: str) -> requests.Response:
        headers = {"X-Auth-Token": token}
        return session.post(self.balancer.url, json=[{}], headers=headers, timeout=SOON)

    def count(self, path: str) -> int:
        return sum(master.count(path) for master in self.masters)

    @property
    def ran(self) -> list[bytes]:
        """What was done on all of them."""
        return [body for master in self.masters for body in master.ran]

    def maker(self, token: str) -> Backend:
        """The master that made it."""
        (made,) = (master for master in self.masters if token.endswith(f"-of-{master.name}"))
        return made

    def on(self, name: str) -> tuple[str, str]:
        """An address that comes to that master, and a token that it got there."""
        for _ in range(200):
            source = self.source()
            with self.client(source) as session:
                token = self.login(session)
            if self.maker(token).name == name:
                return source, token
        raise AssertionError(f"nobody comes to {name}")

    def both_are_in(self) -> None:
        """Wait until haproxy has looked at all; nginx never does."""
        if self.kind == "haproxy":
            wait_for(lambda: all(m.asked for m in self.masters), SOON, "all are asked")


@contextmanager
def site_of(
    kind: str,
    folder: Path,
    timeout: int = TIMEOUT,
    name: str = "",
    of: str = "",
    count: int = 2,
    prefix: str = "",
    blind: tuple[str, ...] = (),
) -> Iterator[Site]:
    """
    A balancer before *count* masters, m1 and so on.

    :param of: the name in the masters' certificates; without, they speak plain HTTP.
    :param name: what the balancer takes for it.
    :param prefix: below which callers find salt-api, then by plain HTTP.
    :param blind: the masters whose status listener the balancer cannot ask.
    """
    network = Network()
    address, port = network.address(), network.ports.api
    masters: list[Backend] = []
    authorities = folder / "authorities.pem"
    with ExitStack() as stack:
        stack.callback(network.close)
        for master in (f"m{n}" for n in range(1, count + 1)):
            own = network.address()
            context = tls(folder / master, authorities, own, of) if of else None
            masters.append(Backend(master, own, network, context))
            stack.callback(masters[-1].close)
        cert, ca = pem(folder, address)
        wanted = wishes(
            kind=kind,
            listen=f"{address}:{port}",
            timeout=timeout,
            ca=str(authorities),
            name=name,
            **({"prefix": prefix, "tls": False} if prefix else {"cert": str(cert)}),
        )
        base = f"http://{address}:{port}{prefix.rstrip('/')}" if prefix else ""
        servers = [
            replace(master.server, status=None) if master.name in blind else master.server
            for master in masters
        ]
        text = render(wanted, "prod", "m1", servers)
        balancer = Balancer(kind, text, folder, address, port, base)
        balancer.check()
        with balancer:
            yield Site(kind, balancer, ca, *masters)


def tls(folder: Path, authorities: Path, address: str, name: str) -> ssl.SSLContext:
    """With a certificate for *name*, which is added to *authorities*."""
    folder.mkdir()
    certificate, key = self_signed(folder, address, name)
    with authorities.open("ab") as file:
        file.write(certificate.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with site_of(request.param, tmp_path) as site:
        site.both_are_in()
        yield site


def test_a_token_comes_back_to_the_master_that_made_it(site: Site) -> None:
    used = set[str]()
    for turn in range(200):  # nginx goes by the callers' addresses
        if turn >= 12 and len(used) == 2:
            break
        with site.client() as session:
            token = site.login(session)
            for _ in range(3):
                answer = site.call(session, token)
                assert answer.status_code == 200, token
                used.add(answer.json()["on"])
    assert used == {"m1", "m2"}, "it is no balancer"


@pytest.mark.parametrize(
    ("blind", "of"), [(("m1", "m2"), ""), (("m1",), ""), (("m1", "m2"), "salt-api.example.org")]
)
def test_without_ready_a_master_is_up_while_it_can_be_connected_to(
    tmp_path: Path, blind: tuple[str, ...], of: str
) -> None:
    """So it is by default: the status page is on loopback. Salt-api has no /ready."""
    with site_of("haproxy", tmp_path, name=of, of=of, blind=blind) as site:
        site.m1.die()
        wait_for(lambda: "salt_api/m1 is DOWN" in site.balancer.log(), SOON, "m1 is down")
        site.m1.start()
        wait_for(lambda: "salt_api/m1 is UP" in site.balancer.log(), SOON, "m1 is up")
        assert "salt_api/m2 is DOWN" not in site.balancer.log()
        for name in ("m1", "m2"):
            source, token = site.on(name)
            with site.client(source) as session:
                assert site.call(session, token).json() == {"on": name}


def test_nginx_refuses_it_beside_a_server_that_would_get_its_calls(tmp_path: Path) -> None:
    """Debian has such a one at port 80. Without a word, callers would meet its welcome page."""
    wanted = wishes(kind="nginx", listen="127.0.0.1:8080", tls=False)
    text = render(wanted, "prod", "m1", [Server("m1", Address("127.0.0.1", 8000, False))])
    Balancer("nginx", text, tmp_path, "127.0.0.1", 8080).check()
    text += "\nserver { listen 127.0.0.1:8080 default_server; server_name _; return 404; }"
    beside = tmp_path / "beside"
    beside.mkdir()
    with pytest.raises(AssertionError, match="duplicate default server"):
        Balancer("nginx", text, beside, "127.0.0.1", 8080).check()


def test_a_call_that_was_sent_is_not_sent_again(site: Site) -> None:
    for does in ("drop", "503", "hang"):
        with site.client() as session:
            token = site.login(session)
            before = site.count("/")
            site.m1.does = site.m2.does = does
            answer = site.call(session, token)
            assert answer.status_code in (502, 503, 504), does
            assert site.count("/") == before + 1, does
        site.m1.does = site.m2.does = "answer"


def test_a_login_is_tried_on_the_other_master(site: Site) -> None:
    source, _ = site.on("m1")
    before = site.m1.count("/login")
    for does in ("drop", "503"):
        site.m1.does = does
        for other in (source, *("" for _ in range(5))):
            with site.client(other) as session:
                assert site.login(session).endswith("of-m2")
    assert site.m1.count("/login") > before, "it was never asked"


def test_masters_may_be_restarted_one_after_the_other(site: Site) -> None:
    """nginx takes each for dead for a while; while it takes all for dead, it must try them."""
    source, token = site.on("m1")
    with site.client(source) as session:
        for restarted, other in ((site.m1, site.m2), (site.m2, site.m1)):
            restarted.does = "503"
            assert site.maker(site.login(session)) is other
            restarted.does = "answer"
        assert site.call(session, token).json() == {"on": "m1"}
        assert site.call(session, "").status_code == 401


def test_masters_are_told_who_calls(site: Site) -> None:
    sources = [site.source() for _ in range(4)]
    for source in sources:
        with site.client(source) as session:
            site.login(session)
    assert sorted(site.m1.callers + site.m2.callers) == sources


def test_a_dead_master_costs_no_call(site: Site) -> None:
    site.m1.die()
    for _ in range(6):
        with site.client() as session:
            token = site.login(session)
            assert site.call(session, token).json() == {"on": "m2"}


def test_a_master_that_nobody_can_connect_to_costs_no_call(site: Site) -> None:
    source, _ = site.on("m1")
    at = site.m1.server.api
    assert at
    site.m1.die()
    with ExitStack() as stack:
        # As a host that is off: packets to it are lost, once the queue of the port is full.
        port = stack.enter_context(socket.create_server((at.host, at.port), backlog=0))
        for _ in range(2):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(port.getsockname())
        with site.client(source) as session:
            token = site.login(session)
            assert site.maker(token) is site.m2
            assert site.call(session, token).json() == {"on": "m2"}


def test_events_pass_at_once_and_outlive_the_limit_of_calls(site: Site) -> None:
    (one, token), (other, _) = site.on("m1"), site.on("m2")
    # As a browser asks.
    headers = {"X-Auth-Token": token, "Accept": "text/event-stream"}
    url = f"{site.balancer.url}/events"
    with ExitStack() as stack:
        streams = []
        for source in (one, other):
            session = stack.enter_context(site.client(source))
            answer = session.get(url, headers=headers, stream=True, timeout=SOON)
            streams.append(stack.enter_context(answer).iter_lines(chunk_size=1))
        assert [next(lines) for lines in streams] == [b"first of m1"] * 2, "kept back"
        # Silent for longer than a call may be.
        threading.Timer(TIMEOUT + 1.5, site.m1.more.set).start()
        assert [next(lines) for lines in streams] == [b"second"] * 2


@pytest.mark.parametrize("home", [True, False])
@in_a_loop
async def test_websockets_pass_and_outlive_the_limit_of_calls(site: Site, home: bool) -> None:
    tokens = []

    async def talk(source: str, token: str) -> None:
        on = site.maker(token)
        here = aiohttp.TCPConnector(
            local_addr=(source, 0), ssl=ssl.create_default_context(cafile=site.ca)
        )
        async with (
            aiohttp.ClientSession(connector=here) as web,
            web.ws_connect(f"{site.balancer.url}/ws/{token}") as socket,
        ):
            await socket.send_str("ready")
            # Its token is in the path: it comes to the master that made it.
            assert await socket.receive_str(timeout=SOON) == f"{on.name} heard ready"
            # Silent for longer than a call may be.
            threading.Timer(TIMEOUT + 1.5, on.more.set).start()
            assert await socket.receive_str(timeout=SOON) == "second"

    talks = []
    for name, other in (("m1", "m2"), ("m2", "m1")):
        source, token = site.on(name)
        tokens.append(token)
        talks.append(talk(source if home else site.on(other)[0], token))
    await asyncio.gather(*talks)
    logins = site.count("/login")
    with site.client() as session:
        site.login(session)
    # Both write a line when a call has ended.
    wait_for(lambda: site.balancer.calls().count("/login") > logins, SOON, "logins are logged")
    assert not any(token in site.balancer.calls() for token in tokens)


@pytest.mark.parametrize("home", [True, False], ids=["from-home", "from-another"])
def test_the_log_says_which_master_a_call_went_to(site: Site, home: bool) -> None:
    for name, other in (("m1", "m2"), ("m2", "m1")):
        source, token = site.on(name)
        path = f"/minions/{name}"
        with site.client(source if home else site.on(other)[0]) as session:
            at, headers = f"{site.balancer.url}{path}", {"X-Auth-Token": token}
            session.post(at, json=[{}], headers=headers, timeout=SOON).raise_for_status()
        wait_for(lambda path=path: path in site.balancer.calls(), SOON, "the call is logged")
        (line,) = [line for line in site.balancer.calls().splitlines() if path in line]
        netloc = site.maker(token).server.api.netloc
        assert (f" {netloc}" if site.kind == "nginx" else f"/{name} ") in line
        assert site.kind == "haproxy" or line.endswith(netloc)


def test_a_token_in_a_path_is_not_in_the_log_of_errors(site: Site) -> None:
    (_, token), (home, _) = site.on("m1"), site.on("m2")
    site.m2.die()
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "x"}
    with site.client(home) as session:
        session.get(f"{site.balancer.url}/ws/{token}", headers=headers, stream=True, timeout=SOON)
        site.m1.close()  # behind an open one
        site.call(session, "0-of-nobody")
    wait_for(lambda: site.balancer.log(), SOON, "an error is logged")
    assert token not in site.balancer.log() + site.balancer.calls()


def test_a_token_is_good_from_every_address(site: Site) -> None:
    url, low = site.balancer.url, b'[{"client": "local_async"}]'
    sources = [site.on("m1")[0], site.on("m2")[0]]
    for n in range(4):
        with site.client() as session:
            token = site.login(session)
        for source in sources:
            # As a browser has it, too, also where it shows another one.
            for headers in (
                {"X-Auth-Token": token},
                {"Cookie": f"a=b; session_id={token}"},
                {"X-Auth-Token": token, "Cookie": "session_id=0-of-nobody"},
            ):
                before = len(site.ran)
                with site.client(source) as session:
                    # Too large for memory: nginx puts it on disk.
                    data = low + b" " * 200_000 * n
                    kind = {"Content-Type": "application/x-yaml", "Accept": "application/x-yaml"}
                    answer = session.post(url, data=data, headers=headers | kind, timeout=SOON)
                assert answer.status_code == 200
                assert answer.json() == {"on": site.maker(token).name}
                assert site.maker(token).ran[-1] == data
                assert len(site.ran) == before + 1
    assert site.m1.hosts == site.m2.hosts == {url.split(":")[1].strip("/")}
    if site.kind == "nginx":
        # A salt-api that is to hang up does not read the rest of a call that it refuses (cheroot,
        # HTTPRequest.send_headers); nginx that cannot write it does not look for the answer.
        assert not any(master.hurried for master in site.masters)


def test_a_call_for_very_many_minions_passes(site: Site) -> None:
    """salt-api takes 100 MiB, and has no setting for that which has an effect."""
    source, token = site.on("m1")
    data = b'[{"tgt": "' + b"x" * 5_000_000 + b'"}]'
    for address in (source, site.on("m2")[0]):
        with site.client(address) as session:
            headers = {"X-Auth-Token": token, "Content-Type": "application/json"}
            answer = session.post(site.balancer.url, data=data, headers=headers, timeout=SOON)
        assert (answer.status_code, site.m1.ran[-1] == data) == (200, True)


def test_a_password_is_tried_once(site: Site) -> None:
    _, token = site.on("m1")
    sources = [site.on("m1")[0], site.on("m2")[0]]
    for path in (*PASSWORDS, "/run/", "/token?a=b", "//run"):
        for source in sources:
            before = sum(len(master.calls) for master in site.masters)
            with site.client(source) as session:
                url, headers = site.balancer.url + path, {"X-Auth-Token": token}
                answer = session.post(url, json={"password": "x"}, headers=headers, timeout=SOON)
            assert answer.status_code in (200, 401)
            assert sum(len(master.calls) for master in site.masters) == before + 1, path


def test_who_has_no_token_is_refused_by_one_master(site: Site) -> None:
    for path in ("/", "/events", "/ws", "/minions"):
        before = sum(len(master.calls) for master in site.masters)
        with site.client() as session:
            answer = session.post(site.balancer.url + path, json=[{}], timeout=SOON)
        assert answer.status_code == 401
        assert answer.json() == {"unknown to": answer.headers["X-Said-By"]}
        assert sum(len(master.calls) for master in site.masters) == before + 1


def test_a_token_that_nobody_knows_is_refused_by_a_master(site: Site) -> None:
    for source in (site.on("m1")[0], site.on("m2")[0]):
        with site.client(source) as session:
            answer = site.call(session, "0-of-nobody")
            assert answer.status_code == 401
            assert answer.json() == {"unknown to": answer.headers["X-Said-By"]}
    assert site.ran == []


def test_a_path_is_no_header(site: Site) -> None:
    _, token = site.on("m1")
    for source in (site.on("m1")[0], site.on("m2")[0]):
        for known in (token, "0-of-nobody"):
            with site.client(source) as session:
                path = f"/ws/{known}%0d%0aSmuggled:%20yes"
                assert session.get(site.balancer.url + path, timeout=SOON).status_code == 401
    assert not any(master.smuggled for master in site.masters)


def test_a_call_that_its_master_refuses_is_not_sent_again(site: Site) -> None:
    (home, token), (other, _) = site.on("m1"), site.on("m2")
    site.m1.does = "refuse"
    for source in (home, other):
        before = len(site.ran)
        with site.client(source) as session:
            headers = {"X-Auth-Token": token}
            url = site.balancer.url
            answer = session.post(url, json=[{}, {}], headers=headers, timeout=SOON)
        assert answer.status_code == 401
        assert len(site.ran) == before + 1, "a part of it was done twice"
        # By this, SaltApiPool tells it from a token that is not known.
        assert answer.headers["Cache-Control"] == "private"
        if site.kind == "nginx" and source == home:
            assert "Refused by the master that made this token" in answer.text
            assert answer.headers["Content-Type"] == "text/plain"
        else:
            assert answer.json() == {"on": "m1"}


@pytest.mark.parametrize("site", ["haproxy"], indirect=True)
def test_haproxy_sends_nobody_to_a_master_that_is_not_ready(site: Site) -> None:
    site.m1.ready = False
    with site.client() as session:

        def only_m2() -> bool:
            return all(site.login(session).endswith("of-m2") for _ in range(4))

        wait_for(only_m2, SOON, "m1 gets nobody")
        site.m1.ready = True
        wait_for(lambda: site.login(session).endswith("of-m1"), SOON, "m1 is back")


def test_haproxy_lets_nobody_wait_for_a_master_that_went_down(tmp_path: Path) -> None:
    with site_of("haproxy", tmp_path, timeout=600) as site, site.client() as session:
        token = site.login(session)
        on = site.m1 if token.endswith("m1") else site.m2
        on.does, on.ready = "hang", False
        assert site.call(session, token).status_code in (502, 503)
        assert on.count("/") == 1


@pytest.mark.parametrize("site", ["haproxy"], indirect=True)
def test_haproxy_knows_after_a_reload_who_made_which_token(site: Site) -> None:
    """As after a renewed certificate. No call fails meanwhile, either."""
    over, codes = threading.Event(), list[int]()

    def call_on_and_on() -> None:
        with site.client() as session:
            token = site.login(session)
            while not over.is_set():
                codes.append(site.call(session, token).status_code)

    def knows_them() -> bool:
        tokens = [site.on(name)[1] for name in ("m1", "m2")]
        site.balancer.reload()
        with site.client() as session:
            # Not in turn, or every second call would come to its master anyhow.
            return all(site.call(session, token).ok for token in tokens for _ in range(3))

    with open("/proc/net/unix") as sockets:
        assert "@salt_api" not in sockets.read(), "every local user could connect to that"
    (handover,) = site.balancer.chroot.glob("*.sock")
    assert stat.S_IMODE(handover.stat().st_mode) == 0o600
    # In its first ten seconds a process waits to be told, and does not tell its successor.
    wait_for(knows_them, SOON, "tokens are known after a reload", poll=12)
    with ThreadPoolExecutor(1) as pool:
        caller = pool.submit(call_on_and_on)
        try:
            wait_for(lambda: len(codes) > 5, SOON, "it calls")
            assert knows_them()
        finally:
            over.set()
        caller.result(SOON)  # raises what a call raised
    assert set(codes) == {200}


@pytest.mark.parametrize("kind", KINDS)
def test_salt_api_below_a_prefix_by_plain_http(kind: str, tmp_path: Path) -> None:
    with site_of(kind, tmp_path, prefix="/salt-api/") as site:
        site.both_are_in()
        tokens = {name: site.on(name) for name in ("m1", "m2")}
        for name, (source, token) in tokens.items():
            with site.client(source) as session:
                assert site.call(session, token).json() == {"on": name}
        # Where nginx has to ask which master knows the token.
        with site.client(tokens["m1"][0]) as session:
            token = tokens["m2"][1]
            assert site.call(session, token).json() == {"on": "m2"}
            moved = session.get(
                f"{site.balancer.url}/keys/",
                headers={"X-Auth-Token": tokens["m1"][1]},
                allow_redirects=False,
                timeout=SOON,
            )
            where = moved.headers["Location"].removeprefix(site.balancer.url.rpartition("/")[0])
            assert (moved.status_code, where) == (303, "/salt-api/keys?client=wheel")
            seen = site.count("/") + site.count("/login")
            outside = site.balancer.url.removesuffix("/salt-api")
            for path in ("/", "/login", "/events", "/ws/a-token", "/salt-apix/"):
                answer = session.post(f"{outside}{path}", json={}, timeout=SOON)
                assert answer.status_code == 404, path
        came = {path for master in site.masters for path, _ in master.calls}
        assert came == {"/", "/login", "/keys/"}
        assert site.count("/") + site.count("/login") == seen, "it came to a master all the same"
        wait_for(lambda: "/salt-apix/" in site.balancer.calls(), SOON, "the last call is logged")
        assert "a-token" not in site.balancer.calls()


@pytest.mark.parametrize("kind", KINDS)
def test_masters_with_tls_are_known_by_their_name(kind: str, tmp_path: Path) -> None:
    with site_of(kind, tmp_path, name="salt-api.test", of="salt-api.test") as site:
        site.both_are_in()
        tokens = [site.on(name)[1] for name in ("m1", "m2")]
        for token in tokens * 2:
            with site.client() as session:
                assert site.call(session, token).status_code == 200
        if kind == "nginx":
            assert site.m1.names == site.m2.names == {"salt-api.test"}


@pytest.mark.parametrize("kind", KINDS)
def test_masters_with_another_name_get_nobody(kind: str, tmp_path: Path) -> None:
    # haproxy answers nothing to who is waiting for a master at the moment it is found to be down.
    refused = (requests.HTTPError, requests.ConnectionError)
    with (
        site_of(kind, tmp_path, name="salt-api.test", of="another.test") as site,
        site.client() as session,
        pytest.raises(refused, match=r"502|503|closed connection without response"),
    ):
        site.login(session)
    assert site.count("/login") == 0, "the password was sent"


@pytest.mark.parametrize("does", ["hang", "drop", "503", "302", "400", "die"])
def test_nginx_passes_over_who_cannot_say_whose_token_it_is(does: str, tmp_path: Path) -> None:
    # A call may take long; the question whose token it is may not.
    with site_of("nginx", tmp_path, timeout=600, count=3) as site:
        (source, _), (_, lost), (_, token) = (site.on(name) for name in ("m1", "m2", "m3"))
        if does == "die":
            site.m2.die()
        else:
            site.m2.does = does
        with site.client(source) as session:
            assert site.call(session, token).json() == {"on": "m3"}
            answer = site.call(session, lost)
            assert (answer.status_code, answer.json()) == (401, {"unknown to": "m1"})


def test_nginx_finds_the_last_of_as_many_as_it_takes(tmp_path: Path) -> None:
    with site_of("nginx", tmp_path, count=MOST_OF_NGINX) as site:
        source, _ = site.on("m1")
        last = f"m{MOST_OF_NGINX}"
        _, token = site.on(last)
        with site.client(source) as session:
            assert site.call(session, token).json() == {"on": last}
            assert site.call(session, "0-of-nobody").status_code == 401
