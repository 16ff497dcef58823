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
from saltext_ha.sync.hello import Greeting
from saltext_ha.sync.line import Line
from saltext_ha.sync.rounds import Rounds
from saltext_ha.sync.sending import Sender
from saltext_ha.transport.peer import Peer

log = logging.getLogger(__name__)

AGAIN = 1.0  # seconds until the next round, if one left something to other peers or to pushes


class Link:
    """
    The connection to one peer, by *line*: when it is met, told, compared with, and tried again.

    :param greeting: returns what to say in ``hello``; :attr:`Line.greeting` keeps the answer.
    :param met: called after every ``hello``, before anything else is exchanged.
    :param mistrusted: called if one of the two masters does not know the other's certificate;
        returns whether both do now.
    :ivar line: how the peer is asked, and whether it is up.
    """

    def __init__(
        self,
        line: Line,
        sender: Sender,
        rounds: Rounds,
        *,
        greeting: Callable[[], dict[str, Any]],
        met: Callable[[Line], Awaitable[None]],
        mistrusted: Callable[[Peer], Awaitable[bool]],
    ) -> None:
        self.line = line
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
        down = self.line.up is False
        self._sender.put(records, down)
        if not down:
            self._wake.set()

    def heard(self) -> None:
        """The peer called us: if it was down, try it once now."""
        if self.line.called():
            self._wake.set()

    async def run(self) -> None:
        """Run until :meth:`close` or cancellation."""
        line, outbox = self.line, self._sender.outbox
        due = 0.0
        # Cancelling alone is not enough: before Python 3.12 asyncio.wait_for loses a cancellation
        # that comes in the same turn as the answer it waits for (gh-96764 rewrote it).
        while not self._closing:
            self._wake.clear()
            try:
                if outbox and line.up:
                    await self._sender.flush()
                if time.monotonic() >= due or not line.up:
                    done = await self.exchange(shared=True)
                    wait = min(line.interval, AGAIN) if done.left else line.interval
                    due = time.monotonic() + wait
            except (ReplicaError, StoreError) as exc:
                # Our own disk fails, not the peer: the status says so.
                log.debug("link to %s: %s", line.peer.name, exc)
                due = time.monotonic() + line.interval
            except PeerMistrust:
                if await self._mistrusted(line.peer):
                    self._wake.set()
            except PeerUnreachable:
                pass  # the line has noted it
            except HaError as exc:
                line.failed(exc)
            except Exception as exc:
                log.exception("link to %s failed", line.peer.name)
                line.failed(exc)
            if not (outbox and line.up):
                wait = max(0.0, due - time.monotonic()) if line.up else line.pause
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), wait)

    async def close(self) -> None:
        """End :meth:`run` and close the connections."""
        self._closing = True
        self._wake.set()
        await self.line.client.close()

    async def exchange(self, shared: bool = False) -> Exchanged:
        """
        Make one round of anti-entropy now: see :meth:`.Rounds.make`. A peer that was down is met
        first.

        :raises PeerError: the peer cannot be asked, or refuses. :raises InvalidRecord: it answers
            nonsense. :raises ReplicaError, StoreError: our own disk fails.
        """
        async with self._round:
            if not self.line.up:
                await self._meet()
            done = await self._rounds.make(shared)
            self.line.works()
            return done

    async def _meet(self) -> None:
        line, outbox = self.line, self._sender.outbox
        if line.up is False:
            outbox.forget_knocks()  # decisions stay, and are sent first
        line.up = None  # from now on all changes are kept for the peer
        answer = await line.call("hello", self._greeting())
        line.met(Greeting.read(answer))
        await self._rounds.begin(answer.get("vouched"))
        await self._met(line)
        while outbox.has_decisions():
            await self._sender.flush()
