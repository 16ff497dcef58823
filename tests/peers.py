"""Masters that talk over real sockets on loopback, for the tests of peering."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from lab.engines import free_port
from saltext_ha.membership.admission import Admission
from saltext_ha.membership.group_secret import GroupSecret
from saltext_ha.membership.invites import Invite, Invites
from saltext_ha.membership.join import Applicant
from saltext_ha.membership.membership import Membership
from saltext_ha.transport import identity, tls
from saltext_ha.transport.client import PeerClient
from saltext_ha.transport.connection import Limits
from saltext_ha.transport.listener import Handler, PeerListener
from saltext_ha.transport.peer import Peer, make_peer
from saltext_ha.transport.trust import Trust


def some_peer(tmp_path: Path, name: str = "m2") -> Peer:
    """A peer with a certificate of its own, which does not run."""
    made = identity.load_or_create(tmp_path / f"of-{name}", name)
    return make_peer(name, "https://10.0.0.2:4530", made.certificate)


class Master:
    """One master: identity, trust, and a listener while it runs."""

    def __init__(self, root: Path, name: str, group: str = "prod") -> None:
        self.name = name
        self.group = group
        self.state_dir = root / name
        self.identity = identity.load_or_create(self.state_dir, name)
        self.trust = Trust(self.state_dir)
        self.url = f"https://127.0.0.1:{free_port()}"
        self.listener: PeerListener | None = None
        self.shared: dict[str, Any] = {}
        self.handed: list[dict[str, Any]] = []
        self.secret: bytes | None = None
        self.share_master_key = False

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def peer(self) -> Peer:
        """This master as others pin it."""
        return make_peer(self.name, self.url, self.identity.certificate)

    @property
    def membership(self) -> Membership:
        return Membership(self.identity, self.trust, self.name, self.url, self.group)

    def admission(self, membership: Membership) -> Admission:
        return Admission(
            membership,
            self.trust,
            Invites(self.state_dir),
            share=self._share,
            secret=GroupSecret(self.state_dir, self.group, self.share_master_key, self.secret)
            if self.secret
            else None,
        )

    def _share(self, invite: Invite) -> dict[str, Any]:
        """The values that it hands over in addition; keeps *invite* in ``handed``."""
        self.handed.append(self.shared if invite.share_master_key else {})
        return self.handed[-1]

    @property
    def applicant(self) -> Applicant:
        """This master as one that asks for admission, by the secret if it has that."""
        secret = self.secret or b""
        return Applicant(self.identity, self.trust, self.name, self.url, self.group, secret)

    @contextlib.asynccontextmanager
    async def running(
        self, handlers: Mapping[str, Handler] | None = None, limits: Limits | None = None
    ) -> AsyncIterator[PeerListener]:
        membership = self.membership
        listener = PeerListener(
            self.identity,
            self.trust,
            {**membership.for_peers(), **(handlers or {})},
            "127.0.0.1",
            self.port,
            strangers=self.admission(membership).handlers(),
            limits=limits,
        )
        await listener.start()
        self.listener = listener
        try:
            yield listener
        finally:
            await listener.stop()

    @contextlib.asynccontextmanager
    async def calling(self, other: Master) -> AsyncIterator[PeerClient]:
        client = PeerClient(self.identity, other.peer, 20.0)
        try:
            yield client
        finally:
            await client.close()


def befriend(*masters: Master) -> None:
    """Have all pin each other."""
    for one in masters:
        for other in masters:
            if one is not other:
                one.trust.pin(other.peer)


async def echo(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
    """A handler that says who called, and with what."""
    return {"caller": peer.name, "payload": payload}


@contextlib.asynccontextmanager
async def silent(host: str, port: int) -> AsyncIterator[None]:
    """A server at *host* and *port* that accepts connections, and never sends a byte."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), host, port)
    try:
        yield
    finally:
        server.close()
        # Since Python 3.12, waiting for the end of a server waits for its last connection.
        for writer in held:
            writer.close()
        await server.wait_closed()


async def raw_call(
    master: Master, request: bytes, caller: Master | None = None, **context: Any
) -> bytes:
    """Send bytes over TLS, as *caller* or nobody; returns the bytes until the other side closes."""
    ctx = tls.joining_context()
    if caller is not None:
        ctx.load_cert_chain(caller.identity.certificate_file, caller.identity.key_file)
    for key, value in context.items():
        setattr(ctx, key, value)
    reader, writer = await asyncio.open_connection("127.0.0.1", master.port, ssl=ctx)
    try:
        writer.write(request)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            return await asyncio.wait_for(reader.read(), 60)
        return b""
    finally:
        writer.transport.abort()


def http(path: str, body: bytes, **headers: str) -> bytes:
    """The bytes of a POST; *headers* have underscores in place of hyphens."""
    shown = {
        "Host": "x",
        "Content-Type": "application/msgpack",
        "X-HA-Protocol": "1",
        "Content-Length": str(len(body)),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    head = "".join(f"{key}: {value}\r\n" for key, value in shown.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
