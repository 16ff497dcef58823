"""
Events on this master's bus, for reactors; see docs/events.md for tags and payloads.

Keys that change by replication fire ``salt/ha/key/…``, never ``salt/key``: a reactor on that would
run once on every master.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Mapping
from typing import Any

from saltext_ha.common.refusals import Allowance
from saltext_ha.salt_bus.bus_socket import BusSocket
from saltext_ha.salt_bus.proof import Proofs

log = logging.getLogger(__name__)

PREFIX = "salt/ha/"
# A flood must not fill our memory; a dropped event loses nothing, the replica has it all.
MAX_WAITING = 20_000
# Seconds after which a bus that is not there is tried again: more each time, up to the longest.
RETRY, LONGEST = 1.0, 5.0


class Announcer:
    """
    Fires events from a thread of its own, so that a slow bus holds nothing up.

    :param proofs: marks the events as this master's own.
    """

    def __init__(self, opts: Mapping[str, Any], proofs: Proofs) -> None:
        self._opts, self._proofs = dict(opts), proofs
        self._stopping = threading.Event()
        self._lines = Allowance()
        self._waiting: queue.Queue[tuple[str, Mapping[str, Any], bool] | None] = queue.Queue(
            MAX_WAITING
        )
        self._thread = threading.Thread(target=self._work, name="ha-announce", daemon=True)
        self._thread.start()

    def __call__(self, tag: str, data: Mapping[str, Any]) -> None:
        """Fire ``salt/ha/<tag>`` soon, as this master's own; from any thread."""
        self._put(PREFIX + tag, data, True)

    def fire(self, tag: str, data: Mapping[str, Any]) -> None:
        """Fire *tag*, without prefix or mark, soon and in order; from any thread."""
        self._put(tag, data, False)

    def _put(self, tag: str, data: Mapping[str, Any], own: bool) -> None:
        try:
            self._waiting.put_nowait((tag, data, own))
        except queue.Full:
            if self._lines.take():
                log.warning("ha events: too many are waiting; tag=%s was dropped", tag)

    @property
    def waiting(self) -> int:
        """About how many events are not fired yet."""
        return self._waiting.qsize()

    def stop(self) -> None:
        """Fire what is waiting, if the bus is there, then end."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=1)
        self._thread.join(2)

    def _work(self) -> None:
        with contextlib.closing(BusSocket(self._opts)) as bus:
            while (event := self._waiting.get()) is not None:
                tag, data, own = event
                try:
                    framed = bus.framed(tag, self._proofs.mark(tag, data) if own else dict(data))
                except Exception:
                    if self._lines.take():
                        log.exception("ha events: tag=%s could not be fired", tag)
                    continue
                pause = RETRY
                while not bus.send(framed):
                    if self._stopping.wait(pause):
                        return
                    pause = min(pause * 1.5, LONGEST)
