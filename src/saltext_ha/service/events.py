"""
The events of this master's bus: one thread listens, and tells them to whoever takes them in.

Consumers take every event (``salt/…``) and keep what concerns them; they are called in that thread,
one after the other, and must be quick. Who waits for one event subscribes to its tag instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import salt.utils.event

log = logging.getLogger(__name__)

FROM_PEER = "__peer_id"
"""Beside the data of an event that Salt's own cluster brought from another of its members."""
# What is waited for at a time is little; a bus that is flooded must not fill our memory.
MOST_EVENTS = 1000

Consumer = Callable[[str, Any], None]


class EventBus:
    """
    The bus of the master with *opts*.

    :param consumers: take in tag and data of every event, in this order.
    """

    def __init__(self, opts: Mapping[str, Any], consumers: Sequence[Consumer] = ()) -> None:
        self.opts = dict(opts)
        self._consumers = tuple(consumers)
        self._subscriptions: tuple[Subscription, ...] = ()
        self._over = threading.Event()

    def add(self, consumer: Consumer) -> None:
        """One more, after the others."""
        self._consumers = (*self._consumers, consumer)

    def start(self) -> None:
        """Begin to listen, in a thread that ends with the process."""
        threading.Thread(
            target=self.listen, args=(self._over,), name="ha-events", daemon=True
        ).start()

    def stop(self) -> None:
        """Have the thread end; nobody waits for it."""
        self._over.set()

    def tell(self, tag: Any, data: Any) -> None:
        """An event came; from any thread."""
        if not isinstance(tag, str):
            return
        for consumer in self._consumers:
            try:
                consumer(tag, data)
            except Exception:
                log.exception("an event is left out: tag=%s", ascii(tag[:100]))
        for subscription in self._subscriptions:
            if tag.startswith(subscription.tag):
                subscription.tell(tag, data)

    @contextlib.contextmanager
    def subscribe(self, tag: str) -> Iterator[Subscription]:
        """Keep the events whose tag begins with *tag* from now on; inside the event loop."""
        made = Subscription(tag)
        self._subscriptions = (*self._subscriptions, made)
        try:
            yield made
        finally:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not made)

    def listen(self, stop: threading.Event) -> None:
        """
        Tell every event until *stop* is set; blocks.

        Salt's blocking bus client is used because it is the same on 3006, 3007 and 3008.
        """
        while not stop.is_set():
            try:
                with salt.utils.event.get_event(
                    "master", sock_dir=self.opts["sock_dir"], opts=self.opts, listen=True
                ) as bus:
                    while not stop.is_set():
                        event = bus.get_event(wait=1, tag="salt/", full=True, auto_reconnect=True)
                        if event:
                            self.tell(event.get("tag", ""), event.get("data"))
            except Exception:
                # Whatever the bus does, passes over the store go on; only the speed is lost.
                log.exception("event bus lost; keys are found by passes over the store meanwhile")
                stop.wait(1)


class Subscription:
    """Waits for one event whose tag begins with *tag*; made by :meth:`EventBus.subscribe`."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._loop = asyncio.get_running_loop()
        self._before: list[tuple[str, Any]] = []
        self._is_it: Callable[[str, Any], bool] | None = None
        self._came = asyncio.Event()

    def tell(self, tag: str, data: Any) -> None:
        """An event with such a tag came; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._add, tag, data)

    def _add(self, tag: str, data: Any) -> None:
        if self._is_it is None:
            if len(self._before) < MOST_EVENTS:
                self._before.append((tag, data))
        elif self._is_it(tag, data):
            self._came.set()

    async def until(self, is_it: Callable[[str, Any], bool]) -> None:
        """Return when an event came since the beginning of which *is_it* says so."""
        if any(is_it(tag, data) for tag, data in self._before):
            return
        # From here on each is looked at as it comes: no flood can hide the one that is awaited.
        self._came.clear()
        self._is_it = is_it
        await self._came.wait()
