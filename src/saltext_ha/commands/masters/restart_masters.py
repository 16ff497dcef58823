"""The engine's half of ``ha.restart_masters``: restarts the salt-master that it runs in."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saltext_ha.common.errors import HaError, PeerUnreachable
from saltext_ha.minion.restarting import detached
from saltext_ha.sync.group import Group
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler

RESTARTER = "saltext_ha.commands.restarter"
PAUSE = 10.0
"""Seconds between two restarts, so that many requests start one process at a time."""


class RestartMasters:
    """
    Restarts this master, or asks another to restart.

    :param command: ``ha: restart:``; empty: this master is not restarted by others.
    :param result: the file for the result of the command.
    """

    def __init__(self, group: Group, command: Sequence[str], result: Path) -> None:
        self._group, self._command, self._result = group, command, result
        self._start = secrets.token_hex(8)
        self._not_before = 0.0

    def for_peers(self) -> dict[str, Handler]:
        return {"restart": lambda _, asked: self._own(wire.field(asked, "begin", bool, False))}

    async def restart(self, payload: dict[str, Any]) -> dict[str, Any]:
        """
        For the master ``name``: ``start`` (a new one after each start of its engine), ``command``,
        ``problem`` (why the last restart failed). With ``begin``, restart it; if it does not
        answer then, the only value is ``unanswered``: why.
        """
        name, begin = str(payload.get("name")), payload.get("begin") is True
        if name == self._group.name:
            return await self._own(begin)
        try:
            return await self._group.call(name, "restart", {"begin": begin})
        except PeerUnreachable as exc:
            if not begin:
                raise
            return {"unanswered": str(exc)}  # it may have been ended before it could answer

    async def _own(self, begin: bool) -> dict[str, Any]:
        if not self._command:
            raise HaError("ha: restart: False: it is restarted by hand only")
        if begin:
            if time.monotonic() < self._not_before:
                raise HaError("it was asked to restart just now")
            self._not_before = time.monotonic() + PAUSE
            await asyncio.to_thread(self._begin)
        return {
            "start": self._start,
            "command": shlex.join(self._command),
            "problem": await asyncio.to_thread(self._problem),
        }

    def _begin(self) -> None:
        self._result.unlink(missing_ok=True)
        order = {"command": list(self._command), "result": str(self._result)}
        detached.start(RESTARTER, order)

    def _problem(self) -> str:
        try:
            return self._result.read_text(errors="replace")
        except FileNotFoundError:
            return ""
