"""
Runs :class:`saltext_ha.sync.link.Link` and its parts, unchanged, in simulated time: it replaces
``time``, ``asyncio``, ``random`` and ``ahead`` in their modules. Its network takes the place of
``PeerClient``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from proving.simulation.kernel import Event, Kernel, Process, Resume, suspend
from proving.simulation.network import Host, Network
from saltext_ha.common.prefetch import END
from saltext_ha.keystore import minion_key
from saltext_ha.sync import contact, link, rounds, sending
from saltext_ha.transport.peer import Peer

KEEPALIVE = 60.0  # as in saltext_ha.transport.client


class Client:
    """Like ``PeerClient``. In place of an identity it takes the calling :class:`Host`."""

    bytes_sent = bytes_received = 0  # the network counts them

    def __init__(self, caller: Any, peer: Peer, timeout: float) -> None:
        self.peer = peer
        self._caller: Host = caller
        self._network: Network = caller.network
        self._kernel: Kernel = caller.kernel
        self._target: Host = self._network.hosts[int(peer.name[1:]) - 1]
        self._timeout = timeout
        self._used = float("-inf")

    async def call(
        self, method: str, payload: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        connected = self._kernel.now - self._used < KEEPALIVE
        self._used = float("-inf")  # a call that fails ends its connection
        answer = await self._network.call(
            self._caller,
            self._target,
            method,
            payload or {},
            self._timeout if timeout is None else timeout,
            connected,
        )
        self._used = self._kernel.now
        return answer

    async def close(self) -> None:
        """Nothing is open."""


class Lock:
    """A lock without rivals: one link, one round."""

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *error: object) -> None:
        pass


class Coming:
    """The next one of *items*, while it is being made."""

    def __init__(self, items: AsyncGenerator[Any, None]) -> None:
        self._made: tuple[Any, Exception | None] | None = None
        self._resume: Resume | None = None
        self._process = Process(self._make(items))

    async def _make(self, items: AsyncGenerator[Any, None]) -> None:
        try:
            self._made = await anext(items, END), None
        except Exception as exc:
            self._made = None, exc
        if self._resume:
            self._resume(None)

    def _wait(self, resume: Resume) -> None:
        self._resume = resume

    async def get(self) -> Any:
        """The item; :data:`END` if there is none."""
        if self._made is None:
            await suspend(self._wait)
        assert self._made
        item, error = self._made
        if error:
            raise error
        return item

    def stop(self) -> None:
        """It is not needed any more."""
        if self._made is None:
            self._process.stop()


async def ahead(items: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Like the function in ``saltext_ha.common.prefetch``."""
    coming = Coming(items)
    try:
        while (item := await coming.get()) is not END:
            coming = Coming(items)
            yield item
    finally:
        coming.stop()


@contextlib.contextmanager
def on(kernel: Kernel, source: random.Random) -> Iterator[None]:
    """Inside, links run in the time of *kernel*, and draw random numbers from *source*."""

    async def wait_for(event: Event, seconds: float) -> None:
        if not await event.wait_for(kernel, seconds):
            raise asyncio.TimeoutError

    names = SimpleNamespace(
        Event=Event, Lock=Lock, TimeoutError=asyncio.TimeoutError, wait_for=wait_for
    )
    clock = SimpleNamespace(monotonic=lambda: kernel.now)
    # Whether a text is an RSA key is checked once, not by each of fifty masters.
    check = functools.lru_cache(maxsize=50_000)(minion_key.check)
    with (
        patch.multiple(link, time=clock, asyncio=names),
        patch.multiple(contact, time=clock),
        patch.multiple(sending, time=clock),
        patch.multiple(rounds, time=clock, random=source, ahead=ahead),
        patch.object(minion_key, "check", check),
    ):
        yield
