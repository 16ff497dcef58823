"""``ha.lint`` over all masters: each looks at its own files, the one that is asked compares."""

from __future__ import annotations

import asyncio
from typing import Any

from saltext_ha.sync.group import SLOW, Command, Group, PeerHandler
from saltext_ha.transport.trust import Peer


class Linting:
    """Asks this master and its peers for the traps in their configuration."""

    def __init__(self, group: Group) -> None:
        self._group = group
        # One at a time: whoever asks often must not take all threads.
        self._turn = asyncio.Lock()

    def commands(self) -> dict[str, Command]:
        """What the control socket answers of this."""
        return {"lint": self.lint}

    def for_peers(self) -> dict[str, PeerHandler]:
        """What peers may ask."""
        return {"lint": self.answer}

    async def lint(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``ha.lint``."""
        from saltext_ha.lint import ask

        service = self._group.service
        answers, errors = await self._group.ask("lint", {}, SLOW)
        return await self._in_thread(
            ask.group, service.config.name, service.opts, answers, errors, payload
        )

    async def answer(self, peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        """This master's part, for a peer."""
        from saltext_ha.lint import ask

        service = self._group.service
        return await self._in_thread(ask.for_peer, service.config.name, service.opts)

    async def _in_thread(self, work: Any, *args: Any) -> dict[str, Any]:
        # It reads files, and whatever an sdb:// in the configuration asks.
        async with self._turn:
            loop = asyncio.get_running_loop()
            found: dict[str, Any] = await loop.run_in_executor(None, work, *args)
            return found
