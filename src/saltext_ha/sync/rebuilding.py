"""Rebuilds a lost replica from the peers and from the key store."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.link import Link
from saltext_ha.sync.links import Links
from saltext_ha.transport.pins import Pins

log = logging.getLogger(__name__)

AGAIN = 5.0  # seconds until peers that were asked in vain are asked again


class Rebuilding:
    """
    Rebuilds the replica of *core* when needed.

    :param pull: learns all that the peer of a link knows; returns whether that peer's own replica
        is whole; raises HaError if the peer cannot be asked.
    """

    def __init__(
        self, core: Core, pins: Pins, links: Links, pull: Callable[[Link], Awaitable[bool]]
    ) -> None:
        self._core, self._pins, self._links, self._pull = core, pins, links, pull
        self._problem = ""
        self._asked: frozenset[str] = frozenset()
        self._again = float("-inf")
        """When those that were asked in vain are asked again, in ``time.monotonic`` seconds."""

    def notes(self) -> list[str]:
        """What keeps the replica from being whole."""
        return [f"not rebuilt yet: {self._problem}"] if self._problem else []

    async def met(self) -> None:
        """
        A peer answers. If the key store shows nothing that can be a decision, adopt it now, so that
        the peers' keys are written as they come, and not only when all have come.
        """
        core = self._core
        if not core.mode.adopting:  # mostly
            return
        # If our own disk fails, still hear the peer; :meth:`rebuild` reports the error.
        with contextlib.suppress(HaError):
            await core.work(core.keeper.reconciler.adopt_undecided, asked=True)

    async def rebuild(self) -> None:
        """Rebuild, if that is needed and possible now; if not, call again later."""
        core, mode = self._core, self._core.mode
        if not mode.lost:
            return
        links = list(self._links.values())
        up = [link for link in links if link.contact.up]
        if self._pins.peers() or self._pins.problems():
            if not up:
                self._problem = ""  # the status says so of each peer
                return
            if any(link.contact.up is None or not link.contact.tried for link in links):
                return  # it may know more
        now, names = time.monotonic(), frozenset(link.contact.peer.name for link in up)
        if names == self._asked and now < self._again:
            return
        self._asked, self._again = names, now + AGAIN
        whole: list[str] = []
        lost: list[str] = []
        try:
            await self._pull_from(up, whole, lost)
            rebuilt = partial(core.keeper.reconciler.rebuilt, told_all=bool(whole))
            await core.work(rebuilt, asked=True)
        except HaError as exc:
            if str(exc) != self._problem:
                self._problem = str(exc)
                log.warning("ha replica: not rebuilt yet: %s", exc)
        if not mode.lost:
            self._problem, self._asked = "", frozenset()
            asked = ", ".join([*whole, *lost])
            log.info("ha replica: rebuilt from %s and the key store", asked or "no peer")

    async def _pull_from(self, links: Sequence[Link], whole: list[str], lost: list[str]) -> None:
        """
        Pull all that the peers of *links* know.

        :param whole: receives the names of peers that have all. :param lost: of those that lost
            their replica, too.
        :raises HaError: no peer that answers has all, and others that may know more do not answer.
        """
        problems: dict[str, str] = {}
        for link in links:
            name = link.contact.peer.name
            try:
                (whole if await self._pull(link) else lost).append(name)
            except HaError as exc:
                problems[name] = str(exc)
        for name in self._pins.peers().keys() - {*whole, *lost, *problems}:
            contact = self._links.contacts.get(name)
            problems[name] = contact.error if contact else "not asked yet"
        unread = list(self._pins.problems().values())
        if (problems or unread) and not whole:
            said = [f"{name}: {why}" for name, why in sorted(problems.items())] + unread
            said += [f"{name}: lost its replica.db, too" for name in lost]
            raise HaError(
                f"{'; '.join(said)}. Start the masters that do not answer; for one that is gone "
                "for good: salt-run ha.remove_peer"
            )
