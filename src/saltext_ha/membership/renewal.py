"""Renews this master's certificate: when that is due, and how peers learn of the new one."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable
from pathlib import Path

from saltext_ha.common.errors import HaError
from saltext_ha.transport import identity, succession
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.peer import Peer
from saltext_ha.transport.stranger_calls import certificates_of, introduce
from saltext_ha.transport.trust import Trust

log = logging.getLogger(__name__)

EXPIRES_SOON = datetime.timedelta(days=60)


class Renewal:
    """
    Renews this master's certificate, and learns the present certificates of its peers.

    :param made: this master's identity.
    :param state_dir: the folder of its files. :param name: the name in a new certificate.
    :param timeout: seconds that a peer may take.
    :ivar identity: the present identity.
    :ivar shown_by: called with each new identity, by which all parts show it to others.
    """

    def __init__(
        self, made: Identity, state_dir: Path, name: str, trust: Trust, timeout: float
    ) -> None:
        self.identity = made
        self.shown_by: list[Callable[[Identity], None]] = []
        self._state_dir, self._name = state_dir, name
        self._trust, self._timeout = trust, timeout

    async def renew(self) -> Identity:
        """
        Take a new certificate and show it from now on.

        :raises TrustError: the present one cannot vouch for it.
        :raises DiskHangs: the file system hangs; the new one may be shown when it responds.
        """
        return await self._take(identity.succeed)

    async def begin_anew(self) -> Identity:
        """Take a new identity, which no peer knows. :raises DiskHangs: as :meth:`renew`."""
        return await self._take(identity.renew)

    async def _take(self, make: Callable[[Path, str], Identity]) -> Identity:
        loop = asyncio.get_running_loop()

        def made() -> Identity:
            new = make(self._state_dir, self._name)
            # Also when nobody waits any more: the files of the former one are gone.
            loop.call_soon_threadsafe(self._show, new)
            return new

        return await self._trust.disk(made)

    def _show(self, made: Identity) -> None:
        self.identity = made
        for show in self.shown_by:
            show(made)

    def notes(self) -> list[str]:
        """A note, well before it happens, that the certificate expires."""
        end = succession.expiry(self.identity.certificate)
        left = end - datetime.datetime.now(datetime.timezone.utc)
        if left > EXPIRES_SOON:
            return []
        if left > datetime.timedelta():
            return [f"its certificate ends on {end:%Y-%m-%d}; run there: salt-run ha.renew"]
        return [f"its certificate ended on {end:%Y-%m-%d}: {identity.ANEW}"]

    async def reconcile(self, peer: Peer) -> bool:
        """
        Call this when *peer* or this master does not know the other's certificate: either may have
        renewed its own.

        :return: whether both know each other now, so that another call makes sense.
        """
        try:
            shown = await certificates_of(peer, self._timeout)
            if await self._trust.disk(self._trust.renew, peer.name, shown):
                log.info("ha peer renewed its certificate: name=%s", peer.name)
            known = self._trust.peers().get(peer.name)
            if known is None or not self.identity.former:
                return False  # it was removed meanwhile; or there is nothing to show
            await introduce(self.identity, known, self._name, self._timeout)
        except HaError as exc:
            log.debug("ha peer %s stays unknown, or we to it: %s", peer.name, exc)
            return False
        return True
