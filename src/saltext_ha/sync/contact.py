"""The contact to one peer: asks it, knows whether it is up, and when to try it again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from saltext_ha.common.errors import InvalidRecord, PeerUnreachable, reason_of
from saltext_ha.sync.hello import Greeting
from saltext_ha.sync.messages import Limit
from saltext_ha.transport.client import PeerClient

log = logging.getLogger(__name__)

LARGE = 60.0  # seconds for a message of thousands of records
MAX_BACKOFF = 30.0
# Reasons that are logged while a peer is down.
MAX_REASONS = 5


class Asking(Protocol):
    """
    How one peer is asked. Both ways raise PeerUnreachable if no usable answer comes in time, and
    PeerRefused if the peer refuses; see :meth:`.PeerClient.call`.
    """

    @property
    def limit(self) -> Limit:
        """How large a message the peer takes."""

    async def call(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Ask what needs no work, within ``peer_timeout``."""

    async def call_large(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Ask with, or for, thousands of records, and wait long enough for them."""


class Contact:
    """
    The contact to one peer.

    :param announce: called when the peer comes up or goes down.
    :param interval: seconds between two rounds of anti-entropy. A peer that is down is tried less
        and less often, but at least every 30 s.
    :ivar client: asks without noting whether the peer is up.
    """

    def __init__(
        self,
        client: PeerClient,
        announce: Callable[[str, dict[str, Any]], None],
        interval: float,
    ) -> None:
        self.client, self.peer, self.interval = client, client.peer, interval
        self.limit = Limit()
        self.up: bool | None = None
        """None until the first round has ended, and during the first round after a failure."""
        self.error = "not asked yet"
        self.seen: float | None = None
        """When the peer last answered, in ``time.monotonic`` seconds."""
        self.since = time.monotonic()
        self.greeting = Greeting()
        """What the peer said when it was last met."""
        self.pause = interval
        """Seconds until the next try while the peer is down."""
        self._announce = announce
        self._told: bool | None = None
        self._reasons: set[str] = set()
        """Reasons that were logged since the peer is down."""
        self._called = self._retried = float("-inf")

    def follows(self, former: Contact) -> None:
        """This replaces *former*: the peer moved, or one of both renewed its certificate."""
        self.seen, self.since = former.seen, former.since

    @property
    def tried(self) -> bool:
        """Whether the peer has answered, or failed to answer, since this contact was made."""
        return self._told is not None

    @property
    def why_down(self) -> str:
        """Why the peer does not answer; empty before it was tried, and once it answers again."""
        return self.error if self.up is False else ""

    def ago(self) -> float | None:
        """
        Seconds since the peer last answered or called; None if it does not answer and has not
        called lately.
        """
        now = time.monotonic()
        answered = self.seen if self.up and self.seen is not None else float("-inf")
        last = max(answered, self._called)
        return now - last if self.up or now - last <= 2 * self.interval else None

    async def call(
        self, method: str, payload: dict[str, Any], timeout: float | None = None
    ) -> dict[str, Any]:
        """
        Ask the peer, and note whether it is up. Raises as :meth:`PeerClient.call`.

        :param timeout: seconds; ``peer_timeout`` if not given.
        """
        try:
            answer = await self.client.call(method, payload, timeout)
        except PeerUnreachable as exc:
            self.failed(exc)
            raise
        self.seen = time.monotonic()
        return answer

    async def call_large(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The same for a message of thousands of records: within 60 s."""
        return await self.call(method, payload, LARGE)

    def within(self, seconds: float) -> Asking:
        """The same peer, for somebody who waits at most *seconds* for an answer to a large call."""
        return _Within(self, seconds)

    def met(self, greeting: Greeting) -> None:
        """The peer was met, and said *greeting*: it may run another release now."""
        self.greeting, self.limit = greeting, Limit()

    def called(self) -> bool:
        """The peer called us; returns whether to try it once now, as it was down."""
        now = time.monotonic()
        self._called = now
        if self.up or now < self._retried + self.interval:
            return False
        self._retried = now
        return True

    def works(self) -> None:
        """A whole round was made with the peer: it is up."""
        self.pause = self.interval
        self.up, self.error = True, ""
        self._tell(True)

    def failed(self, exc: Exception) -> None:
        """Note that a call failed; log it if that is news, and wait longer before the next try."""
        if isinstance(exc, InvalidRecord):
            reason = f"{self.peer.address} answers nonsense: {exc}"
        else:
            reason = reason_of(exc)
        self._tell(False, reason)
        if self.up is not False:  # several calls of one round may fail
            self.pause = min(self.pause * 2, MAX_BACKOFF)
        self.up, self.error = False, reason

    def _tell(self, up: bool, reason: str = "") -> None:
        """Log and announce that the peer comes up or goes down; log each new reason for down."""
        if up and self._told is not True:
            log.info("ha peer up: name=%s url=%s", self.peer.name, self.peer.url)
            self._announce("peer/up", {"name": self.peer.name, "url": self.peer.url})
        elif not up and self._told is not False:
            log.warning("ha peer down: name=%s reason=%s", self.peer.name, reason)
            self._announce("peer/down", {"name": self.peer.name, "reason": reason})
            self._reasons = {reason}
        elif not up and reason not in self._reasons and len(self._reasons) < MAX_REASONS:
            # Two of them may alternate for days, as a router does not always answer.
            log.warning("ha peer still down: name=%s reason=%s", self.peer.name, reason)
            self._reasons.add(reason)
        self._told = up


class _Within:
    def __init__(self, contact: Contact, seconds: float) -> None:
        self.limit = Limit()
        self._contact, self._seconds = contact, seconds

    async def call(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._contact.call(method, payload)

    async def call_large(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._contact.call(method, payload, self._seconds)
