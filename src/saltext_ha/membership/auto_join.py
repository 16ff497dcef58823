"""Joins with those of ``ha: masters`` that are not in the group yet, by the secret."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, MutableMapping

from saltext_ha.common.errors import HaError, PeerUnreachable
from saltext_ha.config import secret
from saltext_ha.config.mapping import HaConfig
from saltext_ha.membership import group_secret
from saltext_ha.membership.join import Applicant
from saltext_ha.membership.reaching import Reach
from saltext_ha.membership.unattended import Address, apply
from saltext_ha.transport.identity import Identity
from saltext_ha.transport.stranger_calls import shown
from saltext_ha.transport.trust import Trust

log = logging.getLogger(__name__)

LOOK_AGAIN = 1.0
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
SOURCE = "masters"
"""The key of the note that says why masters are not in the group."""


class AutoJoin:
    """
    Tries every address of ``ha: masters`` until a pinned peer, or this master itself, is there.

    Two masters may join each other at the same time: each pins the same, whichever asked.

    :param identity: returns this master's present identity.
    :param notes: receive the reasons why masters are not joined.
    """

    def __init__(
        self,
        config: HaConfig,
        trust: Trust,
        identity: Callable[[], Identity],
        notes: MutableMapping[str, str],
    ) -> None:
        self._config, self._trust = config, trust
        self._identity, self._notes = identity, notes
        self._others = [Address(url) for url in config.masters if url != config.url]

    async def run(self) -> None:
        """Run as long as the engine does; end at once if ``ha: masters`` is not set."""
        config = self._config
        if not config.masters:
            return
        if config.secret is None:
            self._notes[SOURCE] = (
                "ha: masters is set, but there is no secret to join them by: set ha: secret_file, "
                f"or {secret.VARIABLE} in the environment of salt-master"
            )
            return
        while True:
            # In a thread: a file system may hang.
            since = await asyncio.to_thread(group_secret.left_since, config.state_dir)
            if since:
                again = "salt-run ha.join force=True joins it again"
                self._note({"": f"left its group ({since}); {again}"})
            else:
                missing = [there for there in self._others if not self._is_member(there)]
                now = time.monotonic()
                await asyncio.gather(*(self._try(there) for there in missing if now >= there.due))
                self._note({there.url: there.reason for there in missing if there.reason})
            await asyncio.sleep(LOOK_AGAIN)

    def _is_member(self, there: Address) -> bool:
        peers = self._trust.peers().values()
        return there.server in self._identity().fingerprints or any(
            peer.url == there.url or there.server in peer.fingerprints for peer in peers
        )

    async def _try(self, there: Address) -> None:
        try:
            await self._join(there)
        except HaError as exc:
            reason = str(exc)
            if reason != there.reason:
                # When a group begins, nobody answers.
                level = logging.INFO if isinstance(exc, PeerUnreachable) else logging.WARNING
                log.log(level, "ha masters: not joined url=%s reason=%s", there.url, reason)
            there.failed(reason, min(2 * there.pause or FIRST_RETRY, LAST_RETRY))
            # Avoid the moments when other masters try, which began when this one did.
            there.due -= there.pause * random.uniform(0.0, 0.3)  # nosec B311
        else:
            there.reason, there.pause = "", 0.0

    async def _join(self, there: Address) -> None:
        config = self._config
        there.server = await shown(there.url, config.peer_timeout)
        if self._is_member(there):
            return
        for removed in self._trust.removals.notes():
            if removed.fingerprint == there.server:
                raise HaError(
                    f"{removed.name} was removed from this group and stays out; take it from ha: "
                    "masters, or run ha.leave and then ha.join force=True there"
                )
        assert config.secret is not None
        applicant = Applicant(
            self._identity(),
            self._trust,
            config.name,
            config.url,
            config.group,
            config.secret,
            Reach(config.listen_host, config.port),
        )
        joined = await apply(applicant, there.url, there.server)
        log.info("ha masters: joined url=%s members=%s", there.url, ",".join(joined.members))

    def _note(self, reasons: dict[str, str]) -> None:
        notes = self._notes
        if reasons:
            notes[SOURCE] = "; ".join(
                f"{url} of ha: masters is not in the group: {why}" if url else why
                for url, why in reasons.items()
            )
        else:
            notes.pop(SOURCE, None)
