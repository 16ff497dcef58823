"""``ha.pause`` and ``ha.resume``: does a master write its key store?"""

from __future__ import annotations

import time
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.write_mode import IS_PAUSED
from saltext_ha.sync.group import Group
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer


class Pausing:
    """Pauses this master, or all masters of the group."""

    def __init__(self, group: Group, core: Core) -> None:
        self._group, self._core = group, core

    def for_peers(self) -> dict[str, Handler]:
        async def pause(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            by = f"an operator of {peer.name}"
            return await self._enforce(payload.get("pause") is not True, by)

        return {"pause": pause}

    async def pause(self, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._everywhere(payload, enforce=False)

    async def resume(self, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._everywhere(payload, enforce=True)

    async def _everywhere(self, payload: dict[str, Any], enforce: bool) -> dict[str, Any]:
        by = str(payload.get("by", ""))[:64]
        here, everywhere = self._group.name, payload.get("all")
        notes: list[str] = []
        errors: dict[str, str] = {}
        try:
            notes.append(f"{here}: {(await self._enforce(enforce, by))['note']}")
        except HaError as exc:
            if not everywhere:
                raise
            errors[here] = str(exc)
        if everywhere:
            answers, unreached = await self._group.ask("pause", {"pause": not enforce})
            errors |= unreached
            notes += [f"{name}: {answer.get('note')}" for name, answer in sorted(answers.items())]
            notes += [f"{name}: not done: {why}" for name, why in sorted(errors.items())]
        return {"kind": "notice", "notes": notes, "retcode": 2 if errors else 0}

    async def _enforce(self, enforce: bool, by: str) -> dict[str, Any]:
        if not enforce:
            since = f"since {time.strftime('%Y-%m-%d %H:%M:%S %Z')}" + (f", by {by}" if by else "")
            await self._core.order(self._core.keeper.pause, since)
            return {"note": IS_PAUSED}
        if self._core.mode.never:
            raise HaError(f"{self._group.name} does not write: {self._core.mode.never}")
        await self._core.order(self._core.keeper.resume)
        return {"note": "resumed; what was heard meanwhile is applied"}
