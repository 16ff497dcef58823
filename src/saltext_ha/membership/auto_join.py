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
from saltext_ha.membership.reaching import Reach
from saltext_ha.membership.unattended import Applicant, apply
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
        self._found: dict[str, str] = {}
        self._delays: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._reasons: dict[str, str] = {}

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
                missing = [url for url in config.masters if not self._is_member(url)]
                now = time.monotonic()
                due = [url for url in missing if now >= self._due.get(url, 0.0)]
                await asyncio.gather(*(self._try(url) for url in due))
                self._note({url: self._reasons[url] for url in missing if url in self._reasons})
            await asyncio.sleep(LOOK_AGAIN)

    def _is_member(self, url: str) -> bool:
        fingerprint = self._found.get(url)
        if fingerprint in self._identity().fingerprints or url == self._config.url:
            return True
        peers = self._trust.peers().values()
        return any(peer.url == url or fingerprint in peer.fingerprints for peer in peers)

    async def _try(self, url: str) -> None:
        try:
            await self._join(url)
        except HaError as exc:
            reason = str(exc)
            if reason != self._reasons.get(url):
                # When a group begins, nobody answers.
                level = logging.INFO if isinstance(exc, PeerUnreachable) else logging.WARNING
                log.log(level, "ha masters: not joined url=%s reason=%s", url, reason)
            self._reasons[url] = reason
            delay = min(2 * self._delays.get(url, FIRST_RETRY / 2), LAST_RETRY)
            self._delays[url] = delay
            # Avoid the moments when other masters try, which began when this one did.
            self._due[url] = time.monotonic() + delay * random.uniform(0.7, 1.0)  # nosec B311
        else:
            for known in (self._reasons, self._delays, self._due):
                known.pop(url, None)

    async def _join(self, url: str) -> None:
        config = self._config
        server = await shown(url, config.peer_timeout)
        self._found[url] = server
        if self._is_member(url):
            return
        for removed in self._trust.removals.notes():
            if removed.fingerprint == server:
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
        joined = await apply(applicant, url, server)
        log.info("ha masters: joined url=%s members=%s", url, ",".join(joined.members))

    def _note(self, reasons: dict[str, str]) -> None:
        notes = self._notes
        if reasons:
            notes[SOURCE] = "; ".join(
                f"{url} of ha: masters is not in the group: {why}" if url else why
                for url, why in reasons.items()
            )
        else:
            notes.pop(SOURCE, None)
