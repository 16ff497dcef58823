"""The loop that follows which masters belong to the group, for as long as the engine runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from saltext_ha.common.beat import rest
from saltext_ha.membership.membership import Membership
from saltext_ha.sync.links import Links
from saltext_ha.sync.rebuilding import Rebuilding
from saltext_ha.sync.shared_store import SharedStore

log = logging.getLogger(__name__)

MEMBERS_INTERVAL = 60.0
TURN = 1.0


async def follow_members(
    look: Callable[[], object],
    links: Links,
    rebuilding: Rebuilding,
    membership: Membership,
    shared_store: SharedStore,
) -> None:
    """
    Follow the pinned peers and tell members of each other, until cancelled.

    :param look: looks at the state folder, the pinned peers included; others use its answer, too.
    """
    loop = asyncio.get_running_loop()
    # Tell them at once, too: a crash may have come before peers were told of a removal.
    due = float("-inf")
    while True:
        try:
            look()
            await links.follow()
            await rebuilding.rebuild()
            if loop.time() >= due:
                await membership.exchange(brief=True)
                await shared_store.check_all()
                due = loop.time() + MEMBERS_INTERVAL
            elif shared_store.due:
                await shared_store.check_all()
        except OSError as exc:
            # For instance no file descriptor is left. The peers pinned before are still asked.
            log.debug("ha members: %s", exc)
        await rest(TURN)
