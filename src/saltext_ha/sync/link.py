"""The link to one peer: pushes changes to it at once; rounds of anti-entropy find the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from saltext_ha.common.errors import (
    HaError,
    PeerMistrust,
    PeerUnreachable,
    ReplicaError,
    StoreError,
)
from saltext_ha.replication.record import Record
from saltext_ha.sync.antientropy import Exchanged
from saltext_ha.sync.contact import Contact
from saltext_ha.sync.hello import Greeting
from saltext_ha.sync.rounds import Rounds
from saltext_ha.sync.sending import Sender
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

AGAIN = 1.0  # seconds until the next round, if one left something to other peers or to pushes


class Link:
    """
    The connection to one peer, by *contact*: when it is met, told, compared with, and tried again.

    :param greeting: returns what to say in ``hello``; :attr:`Contact.greeting` keeps the answer.
    :param met: called after every ``hello``, before anything else is exchanged.
    :param mistrusted: called if one of the two masters does not know the other's certificate;
        returns whether both do now.
    :ivar contact: how the peer is asked, and whether it is up.
    """

    def __init__(
        self,
        contact: Contact,
        sender: Sender,
        rounds: Rounds,
        *,
        greeting: Callable[[], dict[str, Any]],
        met: Callable[[Contact], Awaitable[None]],
        mistrusted: Callable[[Peer], Awaitable[bool]],
    ) -> None:
        self.contact = contact
        self._sender, self._rounds = sender, rounds
        self._greeting, self._met, self._mistrusted = greeting, met, mistrusted
        self._wake = asyncio.Event()
        self._closing = False
        self._round = asyncio.Lock()

    @property
    def trouble(self) -> str:
        """Why the peer refuses something, though it is up; empty if it takes everything."""
        return self._sender.trouble

    def push(self, records: Iterable[Record]) -> None:
        """
        Send *records* as soon as possible. For a peer that is down, decisions are kept and sent
        first when it is back; anti-entropy finds the rest.
        """
        down = self.contact.up is False
        self._sender.put(records, down)
        if not down:
            self._wake.set()

    def heard(self) -> None:
        """The peer called us: if it was down, try it once now."""
        if self.contact.called():
            self._wake.set()

    async def run(self) -> None:
        """Run until :meth:`close` or cancellation."""
        contact, outbox = self.contact, self._sender.outbox
        due = 0.0
        # Cancelling alone is not enough: before Python 3.12 asyncio.wait_for loses a cancellation
        # that comes in the same turn as the answer it waits for (gh-96764 rewrote it).
        while not self._closing:
            self._wake.clear()
            try:
                if outbox and contact.up:
                    await self._sender.flush()
                if time.monotonic() >= due or not contact.up:
                    done = await self.exchange(shared=True)
                    wait = min(contact.interval, AGAIN) if done.left else contact.interval
                    due = time.monotonic() + wait
            except (ReplicaError, StoreError) as exc:
                # Our own disk fails, not the peer: the status says so.
                log.debug("link to %s: %s", contact.peer.name, exc)
                due = time.monotonic() + contact.interval
            except PeerMistrust:
                if await self._mistrusted(contact.peer):
                    self._wake.set()
            except PeerUnreachable:
                pass  # the contact has noted it
            except HaError as exc:
                contact.failed(exc)
            except Exception as exc:
                log.exception("link to %s failed", contact.peer.name)
                contact.failed(exc)
            if not (outbox and contact.up):
                wait = max(0.0, due - time.monotonic()) if contact.up else contact.pause
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait)

    async def close(self) -> None:
        """End :meth:`run` and close the connections."""
        self._closing = True
        self._wake.set()
        await self.contact.client.close()

    async def exchange(self, shared: bool = False) -> Exchanged:
        """
        Make one round of anti-entropy now: see :meth:`.Rounds.make`. A peer that was down is met
        first.

        :raises PeerError: the peer cannot be asked, or refuses. :raises InvalidRecord: it answers
            nonsense. :raises ReplicaError, StoreError: our own disk fails.
        """
        async with self._round:
            if not self.contact.up:
                await self._meet()
            done = await self._rounds.make(shared)
            self.contact.works()
            return done

    async def _meet(self) -> None:
        contact, outbox = self.contact, self._sender.outbox
        if contact.up is False:
            outbox.forget_knocks()  # decisions stay, and are sent first
        contact.up = None  # from now on all changes are kept for the peer
        answer = await contact.call("hello", self._greeting())
        contact.met(Greeting.read(answer))
        await self._rounds.begin(answer.get("vouched"))
        await self._met(contact)
        while outbox.has_decisions():
            await self._sender.flush()
