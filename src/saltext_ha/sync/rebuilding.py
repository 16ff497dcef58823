"""Rebuilds a lost replica: from the peers, and from the key store."""

from __future__ import annotations

import contextlib
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
        self._said = ""

    async def met(self) -> None:
        """
        A peer answers. If nothing in the key store can be taken for a decision, it is adopted now,
        so that the peers' keys are written as they come, and not once all have come.
        """
        core = self._core
        if not core.mode.adopting:  # mostly
            return
        # An error of our own disk is no reason not to hear the peer; :meth:`rebuild` tells it.
        with contextlib.suppress(HaError):
            await core.work(core.keeper.adopt_undecided, asked=True)

    async def rebuild(self) -> None:
        """Rebuild if that is needed and possible now; if not, later."""
        core, mode = self._core, self._core.mode
        if not mode.lost:
            return
        links = self._links.values()
        up = [link for link in links if link.up]
        if self._trust.peers() and (not up or not all(link.tried for link in links)):
            return  # no peer answers, or one that was not tried yet may know more
        asked: list[str] = []
        try:
            asked = await self._pull_from(up)
            if mode.adopting:
                await core.work(core.keeper.adopt, asked=True)
            else:
                await core.run(core.keeper.rebuilt)
        except HaError as exc:
            if str(exc) != self._said:
                self._said = str(exc)
                log.warning("ha replica: not rebuilt yet: %s", exc)
        if not mode.lost:
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
