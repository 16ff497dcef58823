"""
Do two masters have one key store between them: a shared folder, or a shared database?

Then there is nothing to replicate, and nothing is ever written by us. A peer's signature in our
store may also be there because the folder was copied; so the peer is asked to sign anew. What was
found is remembered: after a restart the peer may be down, and nothing is written before it has
shown that its store is another one now. A network file system may show from its cache what is no
longer so; therefore a signature that does not appear counts after ``scan_interval`` only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.provenance import OURS, UNSIGNED
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.sync.link import Link
from saltext_ha.sync.links import Links
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.trust import Peer, Trust

log = logging.getLogger(__name__)


class SharedStore:
    """
    Finds out whose store is this master's own, too; ``names`` are those masters.

    :param names: as they were found before a restart.
    :param mode: told what follows from it.
    :param patience: seconds after which a signature that does not appear counts.
    """

    def __init__(
        self,
        core: Core,
        trust: Trust,
        links: Links,
        mode: WriteMode,
        *,
        names: Iterable[str],
        patience: float,
    ) -> None:
        self.names = set(names)
        self._core, self._trust, self._links, self._mode = core, trust, links, mode
        self._patience = patience
        self._remembered = set(self.names)  # those of names that have not been asked again yet
        self._checks: dict[str, asyncio.Lock] = {}
        self._unsaved = False  # the disk was full
        self._awaited: dict[str, tuple[str, float]] = {}
        """Signatures that do not appear in our store, and since when (``time.monotonic``)."""

    @property
    def due(self) -> bool:
        """Whether a signature has not appeared for so long that it is time to look again."""
        now = time.monotonic()
        return any(now >= since + self._patience for _, since in self._awaited.values())

    def for_peers(self) -> dict[str, Handler]:
        """What a peer that suspects it may ask."""

        async def signature(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            token, signed = await self._core.run(self._sign, payload.get("anew") is True)
            return {"signature": token, "signed": signed}

        return {"signature": signature}

    async def check_all(self) -> None:
        """Look at all peers at once; those that cannot be asked are looked at another time."""
        gone = self.names - self._trust.pinned().keys()
        if gone:
            await self._end(gone)

        async def look(link: Link) -> None:
            try:
                await self.check(link)
            except HaError as exc:
                log.debug("sharing with %s is not known: %s", link.peer.name, exc)
                self._awaited.pop(link.peer.name, None)  # another time, from the beginning

        await asyncio.gather(*map(look, self._links.values()))
        if self._unsaved:
            await self._save()

    async def check(self, link: Link) -> None:
        """
        Stop writing when the peer's store is ours; go on when it was, and is no longer.

        :raises HaError: the store cannot be read, or the peer does not answer.
        """
        # One at a time: the signature that a second one asks for would be news to the first.
        async with self._checks.setdefault(link.peer.name, asyncio.Lock()):
            await self._check(link)

    async def _check(self, link: Link) -> None:
        name = link.peer.name
        if name in self.names - self._remembered:
            return
        same = await self._same(link)
        if same is None:
            return
        self._remembered.discard(name)
        if same is (name in self.names):
            return
        if not same:
            await self._end({name})
            return
        self.names.add(name)
        self._mode.shared = reason(self.names)
        log.warning("ha only reports: %s", self._mode.shared)
        await self._save()

    async def _end(self, names: set[str]) -> None:
        """The store is shared with these no longer."""
        self.names -= names
        self._remembered -= names
        for name in names:
            self._awaited.pop(name, None)
        self._mode.shared = reason(self.names)
        log.info("ha key store: no longer shared with %s", ", ".join(sorted(names)))
        await self._save()
        await self._core.apply()

    async def _same(self, link: Link) -> bool | None:
        """Whether the peer's store is ours; None: it cannot be told now."""
        if link.peer.name in self.names:
            return await self._still(link)
        # It may just be signed anew for the peer's own check: then it is to be looked at again.
        if not (await self._shown(link) or await self._shown(link)):
            return False
        answer = await link.call("signature", {"anew": True})
        if answer.get("signed") is not True:
            return None
        if await self._is(link.peer.name, answer.get("signature")):
            return True
        return await self._shown(link)

    async def _still(self, link: Link) -> bool | None:
        """Whether a store that was ours, too, still is."""
        name, now = link.peer.name, time.monotonic()
        awaited, since = self._awaited.get(name, ("", now))
        answer = await link.call("signature", {"anew": not awaited})
        token = answer.get("signature")
        if not isinstance(token, str) or not (awaited or answer.get("signed") is True):
            return None
        if await self._is(name, token):
            self._awaited.pop(name, None)
            return True
        if token != awaited:
            self._awaited[name] = token, now
            return None
        return None if now < since + self._patience else False

    async def _shown(self, link: Link) -> bool:
        """Whether our store shows the peer's signature."""
        answer = await link.call("signature", {})
        return await self._is(link.peer.name, answer.get("signature"))

    async def _is(self, name: str, token: Any) -> bool:
        store = self._core.keeper.store
        there = await self._core.run(store.signature, name)
        return bool(there) and there == token

    def _sign(self, anew: bool) -> tuple[str, bool]:
        """This master's signature, and whether it was written just now."""
        keeper = self._core.keeper
        anew = anew and (not self._mode.never or bool(self.names)) and not keeper.mode.adopting
        # Another folder may have taken the place of the one that was looked at last.
        anew = anew and keeper.holds.look() in (OURS, UNSIGNED)
        if anew:
            keeper.holds.provenance.sign()
        return keeper.holds.provenance.token, anew

    async def _save(self) -> None:
        try:
            await self._core.run(self._remember)
        except HaError as exc:
            self._unsaved = True  # until the next check of all
            log.warning("ha key store: whose it is, too, is not written down: %s", exc)
        else:
            self._unsaved = False

    def _remember(self) -> None:
        replica = self._core.replica
        with replica.transaction():
            replica.meta.shared_with = sorted(self.names)


def reason(names: Iterable[str]) -> str:
    """Why a store that is that of the masters *names*, too, is left alone; empty without any."""
    shared = " and ".join(sorted(names))
    return shared and f"its key store is that of {shared}, too; a shared store is never written to"
