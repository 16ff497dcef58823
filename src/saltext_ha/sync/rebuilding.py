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

    :param pull: learns all that the peer behind a link knows; returns whether that peer's own
        replica is whole. :raises HaError: it cannot be asked.
    """

    def __init__(
        self, core: Core, trust: Trust, links: Links, pull: Callable[[Link], Awaitable[bool]]
    ) -> None:
        self._core, self._trust, self._links, self._pull = core, trust, links, pull
        self._problem = ""

    def notes(self) -> list[str]:
        """What keeps the replica from being whole."""
        return [f"not rebuilt yet: {self._problem}"] if self._problem else []

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
            await core.work(core.keeper.rebuilt, asked=True)
        except HaError as exc:
            if str(exc) != self._problem:
                self._problem = str(exc)
                log.warning("ha replica: not rebuilt yet: %s", exc)
        if not mode.lost:
            self._problem = ""
            log.info("ha replica: rebuilt from %s and the key store", ", ".join(asked) or "no peer")

    async def _pull_from(self, links: Sequence[Link]) -> list[str]:
        """
        Pull all that the peers behind *links* know.

        :return: the names of those that answered.
        :raises HaError: none of them has all: they have lost their replicas, too, and others that
            may know more do not answer.
        """
        whole: list[str] = []
        lost: list[str] = []
        problem: HaError | None = None
        for link in links:
            try:
                found = whole if await self._pull(link) else lost
            except HaError as exc:
                problem = exc
            else:
                found.append(link.peer.name)
        silent = sorted(self._trust.peers().keys() - {*whole, *lost})
        if silent and not whole:
            if problem and not lost:
                raise problem
            raise HaError(
                f"{', '.join(lost)} lost what the group knows, too, and {', '.join(silent)} does "
                "not answer: start it there, or, if it is gone for good, salt-run ha.remove_peer"
            )
        return [*whole, *lost]
