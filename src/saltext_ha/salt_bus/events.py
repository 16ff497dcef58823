"""
The events of this master's bus: one thread listens, and hands them to the parts that use them.

Consumers get every event (``salt/…``) and keep what concerns them; they are called in that thread,
one after the other, and must be quick. A part that waits for one event subscribes to its tag
instead. Both get only what :mod:`saltext_ha.salt_bus.intake` lets in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import salt.utils.event

from saltext_ha.salt_bus import bus_socket, intake

log = logging.getLogger(__name__)

# Few events are awaited at a time; a flood must not fill our memory.
MOST_EVENTS = 1000
# Seconds between two log lines of one kind: any minion can make events that nobody can read.
SAID = 60.0

Consumer = Callable[[str, Any], None]


class EventBus:
    """
    The bus of the master with *opts*.

    :param consumers: called in this order with tag and data of every event.
    """

    def __init__(self, opts: Mapping[str, Any], consumers: Sequence[Consumer] = ()) -> None:
        self.opts = dict(opts)
        self._consumers = tuple(consumers)
        self._subscriptions: tuple[Subscription, ...] = ()
        self._over = threading.Event()
        self.refused = 0
        """How many events were malformed or too large."""
        self._said: dict[str, float] = {}

    def add(self, consumer: Consumer) -> None:
        """Add a consumer, after the others."""
        self._consumers = (*self._consumers, consumer)

    def start(self) -> None:
        """Begin to listen, in a thread that ends with the process."""
        threading.Thread(
            target=self.listen, args=(self._over,), name="ha-events", daemon=True
        ).start()

    def stop(self) -> None:
        """Tell the thread to end, without waiting for it."""
        self._over.set()

    def tell(self, tag: Any, data: Any) -> None:
        """Take in an event; from any thread."""
        if isinstance(data, Mapping) and intake.HEARD in data:
            return
        taken = intake.take(tag, data)
        if taken is None:
            self.refused += 1
            if self._is_due("refused"):
                log.warning(
                    "ha events: refused=%d the last one: tag=%s", self.refused, ascii(tag)[:100]
                )
            return
        for consumer in self._consumers:
            try:
                consumer(tag, taken)
            except Exception:
                if self._is_due("failed"):
                    log.exception("an event is left out: tag=%s", ascii(tag[:100]))
        for subscription in self._subscriptions:
            if tag.startswith(subscription.tag):
                subscription.tell(tag, taken)

    def _is_due(self, what: str) -> bool:
        """Whether a line about *what* may be logged now; a flood must not fill the disk."""
        now = time.monotonic()
        if now - self._said.get(what, -SAID) < SAID:
            return False
        self._said[what] = now
        return True

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
        Pass on every event until *stop* is set; blocks.

        Salt's blocking bus client is used because it is the same on 3006, 3007 and 3008. It raises
        at an event that it cannot read, which any minion can make, so the next attempt follows at
        once, unless the one before has just failed.
        """
        while not stop.is_set():
            began = time.monotonic()
            try:
                if bus_socket.may_be_heard(self.opts):
                    self._follow(stop)
            except Exception:
                # Passes over the store go on without the bus: changes are found, only later.
                if self._is_due("lost"):
                    log.exception("event bus lost; passes over the store find keys meanwhile")
            stop.wait(max(0.0, 1.0 - (time.monotonic() - began)))

    def _follow(self, stop: threading.Event) -> None:
        with salt.utils.event.get_event(
            "master", sock_dir=self.opts["sock_dir"], opts=self.opts, listen=True
        ) as bus:
            while not stop.is_set():
                # Seconds: Salt 3006 and 3007 start a thread for each call, even if nothing comes.
                event = bus.get_event(wait=5, tag="salt/", full=True, auto_reconnect=True)
                if event:
                    self.tell(event.get("tag", ""), event.get("data"))


class Subscription:
    """
    Waits for one event whose tag begins with *tag*; made by :meth:`EventBus.subscribe`.

    Until :meth:`until` says which event that is, only the tags of events are kept.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._loop = asyncio.get_running_loop()
        self._before: list[str] = []
        self._is_it: Callable[[str, Any], bool] | None = None
        self._came = asyncio.Event()

    def tell(self, tag: str, data: Any) -> None:
        """Take in an event with such a tag; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._add, tag, data)

    def _add(self, tag: str, data: Any) -> None:
        if self._is_it is None:
            if len(self._before) < MOST_EVENTS:
                self._before.append(tag)
        elif self._is_it(tag, data):
            self._came.set()

    async def until(self, is_it: Callable[[str, Any], bool]) -> None:
        """
        Return when *is_it* is true for the tag and data of an event. For an event that came before
        this call it gets no data.
        """
        if any(is_it(tag, {}) for tag in self._before):
            return
        # From here on each event is checked as it comes: no flood can hide the awaited one.
        self._came.clear()
        self._is_it = is_it
        await self._came.wait()
