"""``ha.lint`` over all masters: each reads its own files; the one that is asked compares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from saltext_ha.sync.group import SLOW, Group
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer


class Lint:
    """Asks this master and its peers for the traps in their configuration."""

    def __init__(self, group: Group, opts: Mapping[str, Any]) -> None:
        self._group, self._opts = group, opts
        # One question at a time: many must not take all threads.
        self._turn = asyncio.Lock()

    def for_peers(self) -> dict[str, Handler]:
        return {"lint": self.answer}

    async def lint(self, payload: dict[str, Any]) -> dict[str, Any]:
        from saltext_ha.lint import ask

        answers, errors = await self._group.ask("lint", {}, SLOW)
        return await self._in_thread(
            ask.group, self._group.name, self._opts, answers, errors, payload
        )

    async def answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """This master's part, for a peer."""
        from saltext_ha.lint import ask

        return await self._in_thread(ask.for_peer, self._group.name, self._opts)

    async def _in_thread(self, work: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
        # It reads files, and resolves sdb:// URLs in the configuration.
        async with self._turn:
            return await asyncio.to_thread(work, *args)
