"""Stands for the part that finds the leader: it says what a test says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.once.leadership import Leadership
from saltext_ha.transport.listener import Handler


class Leader:
    """
    The leader as the master *name* knows it.

    :ivar follows: the name of the leader, perhaps its own; empty: nobody leads.
    :ivar refuses: raised where a run is claimed.
    :param more: further fields of its standing, such as ``fence``.
    """

    refuses: HaError | None = None

    def __init__(self, name: str, follows: str = "", **more: Any) -> None:
        self.name, self.follows, self._more = name, follows, more

    @property
    def standing(self) -> Leadership:
        why = "" if self.follows else "nobody yet"
        leads = self.follows == self.name
        return Leadership("group", self.follows, leads, why, **self._more)

    def notes(self) -> Iterator[str]:
        return iter(())

    def for_peers(self) -> dict[str, Handler]:
        return {}

    async def claim(self, name: str, within: float) -> str:
        if self.refuses:
            raise self.refuses
        return ""

    async def run(self) -> None:
        return
