"""A master that takes no part in leading: how it says so to peers that ask, and how they know."""

from __future__ import annotations

from typing import Any

from saltext_ha.common.errors import HaError, PeerRefused
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer

BEGINNING = "takes no part: "
"""So its refusal begins; masters of other releases know it by that, too."""


def refusing(why: str) -> dict[str, Handler]:
    """Method → its handler, for peers: refuses to tell what this master sees, because of *why*."""

    async def refuse(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        raise HaError(f"{BEGINNING}{why}")

    return {"leader": refuse}


def why_not(refusal: PeerRefused) -> str:
    """Why the peer that refused takes no part; empty: it refused for another reason."""
    reason = refusal.reason.removeprefix(BEGINNING)
    return reason if reason != refusal.reason else ""
