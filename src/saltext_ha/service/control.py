"""The engine's end of the control socket; the runner's end is :mod:`saltext_ha.control`."""

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

from saltext_ha.errors import HaError
from saltext_ha.peering.refusals import HttpLog, Refusals

log = logging.getLogger(__name__)

Command = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlServer:
    """
    Answers ``POST /<command>`` with JSON on the unix socket *path*, for its owner and root only.

    :param commands: name → coroutine function from request to answer; a ``HaError`` is answered
        as an error with its message.
    """

    def __init__(self, path: Path, commands: Mapping[str, Command]) -> None:
        self._path = path
        self._commands = commands
        self._runner: web.ServerRunner | None = None

    @property
    def commands(self) -> list[str]:
        """The names of all commands."""
        return sorted(self._commands)

    async def start(self) -> None:
        """
        Begin to listen; a socket that a killed engine left behind is replaced.

        :raises HaError: the socket cannot be made.
        """
        quiet = HttpLog(Refusals().add)
        self._runner = web.ServerRunner(web.Server(self._respond, access_log=None, logger=quiet))
        await self._runner.setup()
        try:
            self._path.unlink(missing_ok=True)
            # The socket must not be open to others even for an instant.
            mask = os.umask(0o177)
            try:
                await web.UnixSite(self._runner, str(self._path)).start()
            finally:
                os.umask(mask)
        except OSError as exc:
            raise HaError(f"{self._path}: control socket cannot be made: {exc}") from None

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._runner:
            # A command that hangs does not hold up the end of the master.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._runner.cleanup(), 2)
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        command = self._commands.get(request.path.strip("/"))
        if command is None or request.method != "POST":
            return _error(404, f"no command {request.path!r}; runner and engine of one release?")
        try:
            raw = await asyncio.wait_for(request.read(), 10)
            payload = json.loads(raw or b"{}")
            if not isinstance(payload, dict):
                raise ValueError("not a mapping")
        except (ValueError, RecursionError, asyncio.TimeoutError) as exc:
            return _error(400, f"malformed request: {exc}")
        try:
            return web.json_response(await command(payload))
        except HaError as exc:
            return _error(409, str(exc))
        except Exception:
            log.exception("ha control: %s failed", request.path)
            return _error(500, "the engine failed; salt-master's log has the traceback")


def _error(status: int, reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=status)
