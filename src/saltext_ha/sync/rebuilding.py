"""Rebuilds a lost replica: first from the peers, then from the key store."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.link import Link
from saltext_ha.sync.links import Links
from saltext_ha.transport.trust import Trust

log = logging.getLogger(__name__)


class Rebuilding:
    """
    Rebuilds the replica of *core* when needed.

    :param pull: learns all that the peer behind a link knows. :raises HaError: it cannot be asked.
    """

    def __init__(
        self, core: Core, trust: Trust, links: Links, pull: Callable[[Link], Awaitable[None]]
    ) -> None:
        self._core, self._trust, self._links, self._pull = core, trust, links, pull
        self._ahead = False
        """Whether the store was adopted before the peers' records were pulled."""
        self._said = ""

    async def met(self) -> None:
        """
        A peer answers. If nothing in the key store can be taken for a decision, it is adopted now,
        so that the peers' keys are written as they come, and not once all have come.

        :raises HaError: the store cannot be read, or the replica not be written.
        """
        core, keeper = self._core, self._core.keeper
        if keeper.mode.adopting and not await core.run(keeper.shows_decisions):
            await core.work(keeper.adopt, asked=True)
            self._ahead = True

    async def rebuild(self) -> None:
        """Rebuild if that is needed and possible now; if not, later."""
        mode = self._core.keeper.mode
        if not (mode.adopting or self._ahead):
            return
        links = self._links.values()
        up = [link for link in links if link.up]
        if self._trust.peers() and (not up or not all(link.tried for link in links)):
            return  # no peer answers, or one that was not tried yet may know more
        asked: list[str] = []
        try:
            asked = await self._pull_from(up)
            self._ahead = False
            if mode.adopting:
                await self._core.work(self._core.keeper.adopt, asked=True)
        except HaError as exc:
            if str(exc) != self._said:
                self._said = str(exc)
                log.warning("ha replica: not rebuilt yet: %s", exc)
        if not (mode.adopting or self._ahead):
            log.info("ha replica: rebuilt from %s and the key store", ", ".join(asked) or "no peer")

    async def _pull_from(self, links: Sequence[Link]) -> list[str]:
        """
        Pull all that the peers behind *links* know; one of them may have lost its replica, too.

        :return: the names of those that answered. :raises HaError: there are peers, and none
            answered.
        """
        asked: list[str] = []
        for link in links:
            try:
                await self._pull(link)
            except HaError:
                if link is links[-1] and not asked:
                    raise
            else:
                asked.append(link.peer.name)
        return asked
