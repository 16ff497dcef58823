"""
Which masters are drained. Each knows it of itself (:attr:`.Watcher.draining`, until its engine
ends); the others ask it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.common.tasks import answers_of
from saltext_ha.health.watcher import Watcher
from saltext_ha.sync.group import Group
from saltext_ha.sync.summary import MasterSummary
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer


class DrainedMasters:
    """:param health: of this master; a drained one is not ready."""

    def __init__(self, group: Group, health: Watcher) -> None:
        self._group, self._health = group, health

    def for_peers(self) -> dict[str, Handler]:
        async def draining(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            self._note(payload)
            return {}

        return {"draining": draining}

    def _note(self, payload: Mapping[str, Any]) -> None:
        if payload.get("name") in ("", self._group.name):
            self._health.draining = payload.get("draining") is True

    async def mark(self, name: str, draining: bool = True) -> None:
        """
        Tell the master *name* that it is drained, or not any more: the others ask it.

        :raises HaError: it may not know.
        """
        payload = {"name": name, "draining": draining}
        try:
            if name == self._group.name:
                self._note(payload)
            else:
                await self._group.call(name, "draining", payload)
        except HaError as exc:
            raise HaError(
                f"nothing was moved: {name} could not be told that it is "
                f"{'drained' if draining else 'not drained any more'}: {exc}. If salt-run "
                "ha.status shows it as drained, salt-run ha.rebalance ends that"
            ) from None

    async def unmark_all(self) -> dict[str, str]:
        """Tell all masters that they are not drained any more; master → why it was not told."""
        payload = {"name": "", "draining": False}
        self._note(payload)
        return (await self._group.ask("draining", payload))[1]

    async def healths(self) -> dict[str, Mapping[str, Any]]:
        """What each master that answers says of its health (:meth:`.health.Watcher.told`)."""
        told, _ = await self._group.summaries()
        healths = {name: each.health for name, each in told.items()}
        return {**healths, self._group.name: self._health.told()}

    async def among(self, names: Collection[str]) -> set[str]:
        """Those of *names* that say that they are drained; minions themselves see who answers."""

        async def drained(name: str) -> bool:
            if name == self._group.name:
                return self._health.draining
            contact = self._group.contacts.get(name)
            told = await contact.call("summary", {}) if contact and contact.up is not False else {}
            return MasterSummary.read(told).health.get("draining") is True

        found, _ = await answers_of(names, drained)
        return {name for name, yes in found.items() if yes}
