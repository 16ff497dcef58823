"""One bounded HTTP server for peers, the control socket and the status page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from saltext_ha.common.addresses import to_bind
from saltext_ha.common.refusals import HttpLog, Refuse
from saltext_ha.transport.connection import Acceptor, Connection, Limits

Answer = Callable[[web.BaseRequest, Connection], Awaitable[web.StreamResponse]]


class HttpServer:
    """
    Listens on one address, and calls *answer* for each request.

    :param answer: takes the request and its connection. It calls the connection's ``busy()`` when
        the limit for unfinished requests no longer applies.
    :param refuse: called for every caller that is turned away.
    :param context: called for each new connection; returns its TLS context, or None for no TLS.
    """

    def __init__(
        self,
        answer: Answer,
        refuse: Refuse,
        limits: Limits,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self._answer = answer
        self._refuse = refuse
        self._limits = limits
        self.acceptor = Acceptor(context, self._requests, refuse, limits)
        self._http: web.Server | None = None
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def listen(self, host: str, port: int) -> int:
        """
        Begin to listen on *host*:*port*; 0 takes a free port.

        :returns: the port.
        :raises OSError: the address cannot be bound. Likewise ValueError for a name that cannot be
            encoded, and OverflowError for a number that is no port.
        """
        loop = asyncio.get_running_loop()
        # This only binds: the acceptor accepts callers.
        server = await loop.create_server(
            asyncio.Protocol, to_bind(host), port, reuse_address=True, start_serving=False
        )
        await self._begin(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_unix(self, path: Path) -> None:
        """
        Begin to listen on the unix socket *path*, for its owner and root only. A socket that a
        killed process left behind is replaced.

        :raises OSError: the socket cannot be made.
        """
        path.unlink(missing_ok=True)
        # The socket must not be open to others, even for an instant.
        mask = os.umask(0o177)
        try:
            server = await asyncio.get_running_loop().create_unix_server(
                asyncio.Protocol, str(path), start_serving=False
            )
        finally:
            os.umask(mask)
        self._path = path
        await self._begin(server)

    async def stop(self, grace: float) -> None:
        """Stop listening; requests that are being answered get *grace* seconds to finish."""
        self.acceptor.stop_listening()
        if self._server is not None:
            self._server.close()
        if self._http is not None:
            for idle in self._http.connections:
                idle.close()
            await self._http.shutdown(grace)
        self.acceptor.close()
        if self._server is not None:
            await self._server.wait_closed()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._http = self._server = self._path = None

    async def _begin(self, server: asyncio.Server) -> None:
        self._server = server
        self._http = web.Server(
            self._respond,
            access_log=None,
            auto_decompress=False,
            # Connections end by our own deadlines, independent of aiohttp's release.
            keepalive_timeout=86400.0,
            lingering_time=1.0,
            max_line_size=self._limits.max_line,
            max_field_size=self._limits.max_line,
            logger=HttpLog(self._refuse),
        )
        try:
            self.acceptor.listen(server)
        except OSError:
            await self.stop(0)
            raise

    def _requests(self) -> asyncio.Protocol:
        assert self._http is not None
        return self._http()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self.acceptor.by_requests.get(request.protocol)
        if connection is None:
            return web.Response(status=408)  # disconnected meanwhile; this is never received
        try:
            return await self._answer(request, connection)
        finally:
            connection.idle()
