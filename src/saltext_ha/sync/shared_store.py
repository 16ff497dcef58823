"""
Finds out whether masters share one key store: a shared folder, or a shared database.

Then there is nothing to replicate, and we never write. A peer's signature may also be in our store
because the folder was copied, so we ask the peer to sign again. The result is remembered: after a
restart the peer may be down, and we write nothing until the peer shows that its store is now
another one. A network file system may show an old state from its cache, so a missing signature
counts only after ``scan_interval``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.sync.contact import Contact
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.pins import Pins

log = logging.getLogger(__name__)


class SharedStore:
    """
    Finds out which masters (``names``) share this master's store; a shared store is not written.

    :param names: the masters that shared the store before a restart.
    :param patience: seconds after which a missing signature counts.
    """

    def __init__(
        self,
        core: Core,
        pins: Pins,
        contacts: Mapping[str, Contact],
        *,
        names: Iterable[str],
        patience: float,
    ) -> None:
        self.names = set(names)
        self._core, self._pins, self._contacts = core, pins, contacts
        self._patience = patience
        self._remembered = set(self.names)  # not asked again since the restart
        self._checks: dict[str, asyncio.Lock] = {}
        self._unsaved = False  # the disk was full
        self._awaited: dict[str, tuple[str, float]] = {}
        """Master → its signature that our store lacks, and since when (``time.monotonic``)."""

    @property
    def due(self) -> bool:
        """Whether a signature has been missing long enough to look again."""
        now = time.monotonic()
        return any(now >= since + self._patience for _, since in self._awaited.values())

    def for_peers(self) -> dict[str, Handler]:
        """The methods for a peer that suspects a shared store."""

        async def signature(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
            token, signed = await self._core.run(self._sign, payload.get("anew") is True)
            return {"signature": token, "signed": signed}

        return {"signature": signature}

    async def check_all(self) -> None:
        """Check all peers at once; peers that cannot be asked are checked later."""
        gone = self.names - self._pins.pinned().keys()
        if gone:
            await self._end(gone)

        async def look(contact: Contact) -> None:
            try:
                await self.check(contact)
            except HaError as exc:
                log.debug(
                    "ha key store: not known whether %s shares it: %s", contact.peer.name, exc
                )
                self._awaited.pop(contact.peer.name, None)  # later, from the beginning

        await asyncio.gather(*map(look, self._contacts.values()))
        if self._unsaved:
            await self._save()

    async def check(self, contact: Contact) -> None:
        """
        Stop writing if the peer shares our store; resume if it no longer does.

        :raises HaError: the store cannot be read, or the peer does not answer.
        """
        # One at a time: a second check would change the signature that the first one waits for.
        async with self._checks.setdefault(contact.peer.name, asyncio.Lock()):
            await self._check(contact)

    async def _check(self, contact: Contact) -> None:
        name = contact.peer.name
        if name in self.names - self._remembered:
            return
        same = await self._same(contact)
        if same is None:
            return
        self._remembered.discard(name)
        if same is (name in self.names):
            return
        if not same:
            await self._end({name})
            return
        self.names.add(name)
        self._core.mode.shared = reason(self.names)
        log.warning("ha key store: only compared, not written: %s", self._core.mode.shared)
        await self._save()

    async def _end(self, names: set[str]) -> None:
        """Note that the masters *names* no longer share the store."""
        self.names -= names
        self._remembered -= names
        for name in names:
            self._awaited.pop(name, None)
        self._core.mode.shared = reason(self.names)
        log.info("ha key store: no longer shared with %s", ", ".join(sorted(names)))
        await self._save()
        await self._core.apply()

    async def _same(self, contact: Contact) -> bool | None:
        """Whether the peer shares our store; None: unknown for now."""
        if contact.peer.name in self.names:
            return await self._still(contact)
        # The peer may have just signed again because of its own check: then look again.
        if not (await self._shown(contact) or await self._shown(contact)):
            return False
        answer = await contact.call("signature", {"anew": True})
        if answer.get("signed") is not True:
            return None
        if await self._is(contact.peer.name, answer.get("signature")):
            return True
        return await self._shown(contact)

    async def _still(self, contact: Contact) -> bool | None:
        """Whether the peer still shares our store; None: unknown for now."""
        name, now = contact.peer.name, time.monotonic()
        awaited, since = self._awaited.get(name, ("", now))
        answer = await contact.call("signature", {"anew": not awaited})
        signed = time.monotonic()  # at the latest: the answer may have taken long
        token = answer.get("signature")
        if not isinstance(token, str) or not (awaited or answer.get("signed") is True):
            return None
        if await self._is(name, token):
            self._awaited.pop(name, None)
            return True
        if token != awaited:
            self._awaited[name] = token, signed
            return None
        return None if now < since + self._patience else False

    async def _shown(self, contact: Contact) -> bool:
        """Whether our store shows the peer's signature."""
        answer = await contact.call("signature", {})
        return await self._is(contact.peer.name, answer.get("signature"))

    async def _is(self, name: str, token: Any) -> bool:
        store = self._core.keeper.store
        there = await self._core.run(store.signature, name)
        return bool(there) and there == token

    def _sign(self, anew: bool) -> tuple[str, bool]:
        """This master's signature, and whether it was just written."""
        keeper = self._core.keeper
        anew = anew and (not self._core.mode.never or bool(self.names)) and not keeper.mode.adopting
        # The store may have been replaced since the last look.
        anew = anew and keeper.holds.is_ours()
        if anew:
            keeper.holds.provenance.sign()
        return keeper.holds.provenance.token, anew

    async def _save(self) -> None:
        try:
            await self._core.run(self._remember)
        except HaError as exc:
            self._unsaved = True  # until the next check of all
            log.warning("ha key store: cannot remember which masters share it: %s", exc)
        else:
            self._unsaved = False

    def _remember(self) -> None:
        replica = self._core.replica
        with replica.transaction():
            replica.meta.shared_with = sorted(self.names)


def reason(names: Iterable[str]) -> str:
    """Why a store shared with the masters *names* is not written; empty without any."""
    shared = " and ".join(sorted(names))
    return shared and f"its key store is that of {shared}, too; a shared store is never written to"
