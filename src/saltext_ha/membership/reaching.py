"""
Finds out whether the group can reach a joining master: the member that admits it tries its address.

``ha.join`` may run before the engine of that master ever ran. So while it asks, it listens at its
own address itself, and shows only its certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from saltext_ha.common.addresses import to_bind
from saltext_ha.common.errors import PeerUnreachable
from saltext_ha.transport import tls
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.stranger_calls import shown

ANSWER_WITHIN = 5.0
REQUIRED, TOLD = "required", "told"
"""The wishes of a joining master: to be refused if it is not reached, or only to be told."""


@dataclass(frozen=True)
class Reach:
    """Where a joining master listens, or will; ``required``: it joins only if it is reached."""

    host: str
    port: int
    required: bool = True


def wish(reach: Reach | None) -> dict[str, str]:
    """The fields of *reach* in a join request."""
    return {} if reach is None else {"reach": REQUIRED if reach.required else TOLD}


@contextlib.asynccontextmanager
async def answering(reach: Reach | None, identity: Identity) -> AsyncIterator[None]:
    """Meanwhile show the certificate of *identity* to callers, unless the engine does."""

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    if reach is None:
        yield
        return
    server = None
    # On an error the engine has the port; or nothing can listen there, which the member finds.
    with contextlib.suppress(OSError):
        server = await asyncio.start_server(
            hang_up,
            to_bind(reach.host),
            reach.port,
            ssl=tls.server_context(identity, ()),
            ssl_handshake_timeout=ANSWER_WITHIN,
        )
    try:
        yield
    finally:
        if server is not None:
            server.close()


async def unreached(url: str, fingerprint: str) -> str:
    """Why *url* does not reach the master with the certificate *fingerprint*; empty: it does."""
    try:
        server = await shown(url)
    except PeerUnreachable as exc:
        return str(exc).removeprefix(f"{urlsplit(url).netloc} ")
    if server != fingerprint:
        return "another master answers there"
    return ""
