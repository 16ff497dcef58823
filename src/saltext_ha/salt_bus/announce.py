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
from pathlib import Path
from typing import Any

import salt.utils.event

from saltext_ha.common.refusals import Allowance
from saltext_ha.salt_bus.proof import Proofs

log = logging.getLogger(__name__)

PREFIX = "salt/ha/"
# A flood must not fill our memory; a dropped event loses nothing, the replica has it all.
MAX_WAITING = 20_000
# In salt.utils.event and salt.transport.base, 3006 to 3008.
SOCKET = "master_event_pull.ipc"
# Seconds: Salt tries without a pause for that long, so it is given little and asked seldom.
CONNECT = 0.05
RETRY = 1.0


class Announcer:
    """
    Fires events from a thread of its own, so that a slow bus holds nothing up.

    :param proofs: mark each as this master's own.
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
        """Fire *tag* as it is, soon and in order; from any thread."""
        self._put(tag, data, False)

    def _put(self, tag: str, data: Mapping[str, Any], own: bool) -> None:
        try:
            self._waiting.put_nowait((tag, data, own))
        except queue.Full:
            if self._lines.take():
                log.warning("ha events: too many are waiting; tag=%s was dropped", tag)

    def stop(self) -> None:
        """Fire what is waiting, if the bus is there, then end."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=1)
        self._thread.join(2)

    def _work(self) -> None:
        with salt.utils.event.get_event(
            "master", sock_dir=self._opts["sock_dir"], opts=self._opts, listen=False
        ) as bus:
            while (event := self._waiting.get()) is not None:
                tag, data, own = event
                while not (self._may_be_there() and bus.connect_pull(timeout=CONNECT)):
                    if self._stopping.wait(RETRY):
                        return
                try:
                    bus.fire_event(self._proofs.mark(tag, data) if own else dict(data), tag)
                except Exception:
                    if self._lines.take():
                        log.exception("ha events: tag=%s could not be fired", tag)

    def _may_be_there(self) -> bool:
        """Whether connecting is worth a try: Salt takes long over a socket that does not exist."""
        if self._opts.get("ipc_mode") == "tcp":
            return True
        try:
            return (Path(self._opts["sock_dir"]) / SOCKET).exists()
        except OSError:
            return True  # Salt is to say what is wrong
