"""The engine's half of ``salt-ha lock``."""

from __future__ import annotations

from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.once.leader import Leader
from saltext_ha.once.locks import Locks, Wish


class LockCommand:
    def __init__(self, name: str, leader: Leader, locks: Locks) -> None:
        self._name, self._leader, self._locks = name, leader, locks

    async def lock(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Take a lock, or prolong it by its ``token``: see :meth:`.GroupLocks.hold`."""
        return await self._locks.hold(self._wish(payload))

    async def unlock(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Give it back."""
        await self._locks.release(self._wish(payload))
        return {}

    def _wish(self, payload: dict[str, Any]) -> Wish:
        if not self._leader.standing.store:
            raise HaError(self._leader.standing.why)
        name, by, token = (str(payload.get(each) or "") for each in ("name", "by", "token"))
        return Wish(name, f"{by[:60]} on {self._name}"[:100], token)
