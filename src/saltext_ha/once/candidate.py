"""This master as a candidate of an election; or why it, or a peer, is none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from saltext_ha.common.errors import HaError, PeerRefused
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

BEGINNING = "takes no part: "
"""So its refusal begins; masters of other releases know it by that, too."""


@dataclass(frozen=True)
class Candidate:
    """
    What the stores (:mod:`.group_leader`, :mod:`.etcd_leader`) know of this master.

    :ivar unfit: returns why it may not lead; empty when it may.
    :ivar announce: fires events.
    """

    name: str
    unfit: Callable[[], str]
    announce: Callable[[str, dict[str, Any]], None]

    def tell(self, before: str, now: str) -> None:
        """Log and announce that another master leads now; an empty name: none does."""
        log.info("ha leader: %s, before: %s", now or "nobody", before or "nobody")
        self.announce("leader", {"leader": now or None, "before": before or None})


def refusing(why: str) -> dict[str, Handler]:
    """Method → its handler, for peers: refuses to tell what this master sees, because of *why*."""

    async def refuse(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        raise HaError(f"{BEGINNING}{why}")

    return {"leader": refuse}


def why_not(refusal: PeerRefused) -> str:
    """Why the peer that refused takes no part; empty: it refused for another reason."""
    reason = refusal.reason.removeprefix(BEGINNING)
    return reason if reason != refusal.reason else ""
