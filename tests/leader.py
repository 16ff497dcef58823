"""Stands for the part that finds who leads: it says what a test says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from saltext_ha.once.leadership import Leadership
from saltext_ha.transport.listener import Handler


class Leader:
    """
    As *name* has it.

    :ivar follows: who leads, itself perhaps; empty: nobody.
    :param more: what its standing says besides, as ``fence``.
    """

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
        return ""

    async def run(self) -> None:
        return
