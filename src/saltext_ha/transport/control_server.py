"""The engine's end of the control socket; the runner's end is ``control_client.py``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, reason_of
from saltext_ha.common.refusals import Refusals
from saltext_ha.transport.connection import Connection, Limits
from saltext_ha.transport.control_client import BUSY
from saltext_ha.transport.http_server import HttpServer

log = logging.getLogger(__name__)

# A caller has ten seconds to send its command, and a minute to take the answer. Few callers are
# accepted at a time, the others wait: so a caller has sent its command before so many others come
# that it would be dropped.
LIMITS = Limits(header=10.0, keepalive=60.0, max_handshakes=256, max_anonymous=256, backlog=8)
# At a time; fewer than connections, so a caller whose command is being carried out is never
# dropped.
MAX_COMMANDS = 32
# Bytes in the path of a unix socket on Linux.
LONGEST_PATH = 107

PORTION = 1000
"""Items of an answer that are encoded without a pause: mostly rows about one key or minion."""

Command = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlServer:
    """
    Answers ``POST /<command>`` with JSON on the unix socket *path*, for its owner and root only.

    :param commands: name → coroutine function from request to answer; a ``HaError`` becomes an
        error answer with its message, and so does an ``OSError``, as of a full disk.
    :param limits: limits of connections. A user who may connect may do everything, but a script
        that leaks connections must not keep others out.
    """

    def __init__(
        self, path: Path, commands: Mapping[str, Command], limits: Limits = LIMITS
    ) -> None:
        self._path = path
        self._commands = commands
        self._refusals = Refusals()
        self._working = 0
        self._http = HttpServer(self._respond, self._refuse, limits)

    @property
    def refused(self) -> dict[str, int]:
        """Reason → how many connections and requests were refused since the start."""
        return dict(self._refusals.counts)

    @property
    def commands(self) -> list[str]:
        """The names of all commands."""
        return sorted(self._commands)

    async def start(self) -> None:
        """
        Begin to listen; replace a socket that a killed engine left.

        :raises HaError: the socket cannot be made.
        """
        try:
            await self._http.listen_unix(self._path)
        except OSError as exc:
            long = len(os.fsencode(self._path)) > LONGEST_PATH
            fix = f" ({LONGEST_PATH} bytes at most): set sock_dir to a shorter one" if long else ""
            raise HaError(f"{self._path}: control socket cannot be made: {exc}{fix}") from None

    async def stop(self) -> None:
        """
        Stop listening and remove the socket. A command may still take a second: one that does not
        end must not hold up the master's stop.
        """
        await self._http.stop(1.0)

    def _refuse(self, reason: str, host: str) -> None:
        self._refusals.add(reason, "the control socket")

    async def _respond(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.StreamResponse:
        response = await self._answer(request, connection)
        response.force_close()  # one command per connection, as runners have it
        return response

    async def _answer(self, request: web.BaseRequest, connection: Connection) -> web.Response:
        command = self._commands.get(request.path.strip("/"))
        if command is None or request.method != "POST":
            return _error(
                404,
                f"no command {request.path!r}: are runner and engine of the same release? Restart "
                "salt-master after an upgrade",
            )
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
            return _error(BUSY, f"{MAX_COMMANDS} commands are being carried out; try again later")
        # The command has arrived: from now on it has no deadline, and is not dropped for others.
        connection.busy()
        connection.spared = True
        self._working += 1
        try:
            text = await _encoded(await command(payload))
            return web.Response(text=text, content_type="application/json")
        except HaError as exc:
            return _error(409, str(exc))
        except OSError as exc:
            return _error(409, f"this master could not do that: {reason_of(exc)}")
        except Exception:
            log.exception("ha control: %s failed", request.path)
            return _error(500, "the engine failed; salt-master's log has the traceback")
        finally:
            self._working -= 1
            connection.spared = False


async def _encoded(answer: Mapping[str, Any]) -> str:
    """*answer* as JSON. What has many items is encoded in portions, with other work in between."""
    parts = []
    for name, value in answer.items():
        texts = []
        for portion in _portions(value):
            texts.append(json.dumps(portion)[1:-1])
            await asyncio.sleep(0)
        if texts:
            begin, end = "[]" if isinstance(value, list) else "{}"
            text = f"{begin}{', '.join(texts)}{end}"
        else:
            text = json.dumps(value)
        parts.append(f"{json.dumps(name)}: {text}")
    return f"{{{', '.join(parts)}}}"


def _portions(value: object) -> Iterator[object]:
    """The parts of a long list or mapping; none for other values."""
    if isinstance(value, list) and len(value) > PORTION:
        yield from batches(value, PORTION)
    elif isinstance(value, dict) and len(value) > PORTION:
        yield from map(dict, batches(value.items(), PORTION))


def _error(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)
