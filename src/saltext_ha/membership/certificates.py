"""This master's certificate towards its peers: when it ends, and how a new one gets known."""

from __future__ import annotations

import datetime
import logging
from typing import TYPE_CHECKING

from saltext_ha.common.errors import HaError
from saltext_ha.transport import identity, succession
from saltext_ha.transport.client import certificates_of, introduce
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.trust import Peer

if TYPE_CHECKING:
    from saltext_ha.engine.service import Service

log = logging.getLogger(__name__)

EXPIRES_SOON = datetime.timedelta(days=60)


class Certificates:
    """Of the master that *service* runs on."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def renew(self) -> Identity:
        """
        Take a new certificate and show it from now on.

        :raises TrustError: the present one cannot vouch for it.
        """
        config = self._service.config
        return self._show(identity.succeed(config.state_dir, config.name))

    def begin_anew(self) -> Identity:
        """Be another one from now on, whom nobody knows; see :func:`.identity.renew`."""
        config = self._service.config
        return self._show(identity.renew(config.state_dir, config.name))

    def _show(self, made: Identity) -> Identity:
        service = self._service
        service.identity = service.membership.identity = made
        service.listener.show(made)
        return made

    def notes(self) -> list[str]:
        """That the certificate ends soon, in good time."""
        end = succession.expiry(self._service.identity.certificate)
        left = end - datetime.datetime.now(datetime.timezone.utc)
        if left > EXPIRES_SOON:
            return []
        if left > datetime.timedelta():
            return [f"its certificate ends on {end:%Y-%m-%d}; run there: salt-run ha.renew"]
        return [f"its certificate ended on {end:%Y-%m-%d}: {identity.ANEW}"]

    async def reconcile(self, peer: Peer) -> bool:
        """
        A peer and this master do not know each other's certificates: each may have renewed its.

        :return: whether that was all, and another call is worth while.
        """
        service = self._service
        timeout = service.config.peer_timeout
        try:
            if service.trust.renew(peer.name, await certificates_of(peer, timeout)):
                log.info("ha peer renewed its certificate: name=%s", peer.name)
                peer = service.trust.peers()[peer.name]
            if not service.identity.former:
                return False
            await introduce(service.identity, peer, service.config.name, timeout)
        except HaError as exc:
            log.debug("ha peer %s stays unknown, or we to it: %s", peer.name, exc)
            return False
        return True
