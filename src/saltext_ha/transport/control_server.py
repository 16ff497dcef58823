"""The engine's end of the control socket; the runner's end is ``control_client.py``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.common.refusals import HttpLog, Refusals
from saltext_ha.transport.connection import Acceptor, Connection, Limits, wind_up

log = logging.getLogger(__name__)

# Who asks has ten seconds to say what, and a minute to take the answer.
LIMITS = Limits(header=10.0, keepalive=60.0, max_handshakes=256, max_anonymous=256)
# At a time. Fewer than connections: who has to go when these are too many is never one of them.
MAX_COMMANDS = 32
# So many are let in at a time, the others wait. Few beside the connections: whoever is let in has
# time to say what it wants before so many others have come that it would have to go.
BACKLOG = 8

Command = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlServer:
    """
    Answers ``POST /<command>`` with JSON on the unix socket *path*, for its owner and root only.

    :param commands: name → coroutine function from request to answer; a ``HaError`` is answered
        as an error with its message.
    :param limits: of connections and their time; whoever may connect may do all there is, but a
        script of that user's that leaks connections is to keep nobody else out.
    """

    def __init__(
        self, path: Path, commands: Mapping[str, Command], limits: Limits = LIMITS
    ) -> None:
        self._path = path
        self._commands = commands
        self._limits = limits
        self._refusals = Refusals()
        self._working = 0
        self._http: web.Server | None = None
        self._acceptor: Acceptor | None = None
        self._server: asyncio.Server | None = None

    @property
    def refused(self) -> dict[str, int]:
        """Reason → how many connections and requests were refused for it since the start."""
        return dict(self._refusals.counts)

    @property
    def commands(self) -> list[str]:
        """The names of all commands."""
        return sorted(self._commands)

    async def start(self) -> None:
        """
        Begin to listen; a socket that a killed engine left behind is replaced.

        :raises HaError: the socket cannot be made.
        """
        self._http = web.Server(
            self._respond,
            access_log=None,
            keepalive_timeout=86400.0,  # connections end by our own deadlines
            lingering_time=1.0,
            logger=HttpLog(self._refuse),
        )
        self._acceptor = Acceptor(lambda: None, self._http, self._refuse, self._limits)
        try:
            self._path.unlink(missing_ok=True)
            # The socket must not be open to others even for an instant.
            mask = os.umask(0o177)
            try:
                self._server = await asyncio.get_running_loop().create_unix_server(
                    asyncio.Protocol, str(self._path), start_serving=False
                )
            finally:
                os.umask(mask)
            self._acceptor.listen(self._server, BACKLOG)
        except OSError as exc:
            raise HaError(f"{self._path}: control socket cannot be made: {exc}") from None

    async def stop(self, grace: float = 1.0) -> None:
        """
        Stop listening and remove the socket.

        :param grace: seconds that a command may still take: one that hangs does not hold up the
            end of the master.
        """
        listened = self._server is not None
        await wind_up(self._server, self._http, self._acceptor, grace)
        self._server = self._http = self._acceptor = None
        if listened:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _refuse(self, reason: str, host: str) -> None:
        self._refusals.add(reason, "the control socket")

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self._acceptor and self._acceptor.by_requests.get(request.protocol)
        if not connection:
            return _error(408, "too late")  # hung up meanwhile; nobody hears this
        try:
            response = await self._answer(request, connection)
        finally:
            connection.idle()
        response.force_close()  # what runners do in any case: a connection is one command
        return response

    async def _answer(self, request: web.BaseRequest, connection: Connection) -> web.Response:
        command = self._commands.get(request.path.strip("/"))
        if command is None or request.method != "POST":
            return _error(404, f"no command {request.path!r}; runner and engine of one release?")
        try:
            payload = json.loads(await request.read() or b"{}")
            if not isinstance(payload, dict):
                raise ValueError("not a mapping")
        except (ValueError, RecursionError, web.RequestPayloadError) as exc:
            return _error(400, f"malformed request: {reason_of(exc)}")
        except web.HTTPRequestEntityTooLarge:
            return _error(413, "the request is too large, at most 1 MB; name fewer at a time")
        if self._working >= MAX_COMMANDS:
            self._refuse("too many commands", "")
            return _error(503, f"{MAX_COMMANDS} commands are being carried out; try again later")
        # All of it is here: its deadline is over, and it gives way to nobody.
        connection.busy()
        connection.spared = True
        self._working += 1
        try:
            return web.json_response(await command(payload))
        except HaError as exc:
            return _error(409, str(exc))
        except Exception:
            log.exception("ha control: %s failed", request.path)
            return _error(500, "the engine failed; salt-master's log has the traceback")
        finally:
            self._working -= 1
            connection.spared = False


def _error(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)
