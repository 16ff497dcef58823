"""
What runs in the process of one engine: the product as salt-master would start it.

Three things are put in place of what a salt-master gives it: events of Salt's bus come from a
datagram socket, the engine's own events go into a file, and the clock may be wrong. A mutant, when
one is asked for, takes a guard out of the product.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp.web  # noqa: F401  # imported once, before engines are forked
import salt.key  # noqa: F401

from lab.engines import Place
from proving.torture import clock, mutants
from proving.torture.mutants import vars_of
from saltext_ha.engine import service, startup
from saltext_ha.engines import ha
from saltext_ha.keystore import open_store
from saltext_ha.keystore.base import KeyStore
from saltext_ha.reconciler import scanner, work_queue
from saltext_ha.salt_bus.events import EventBus
from saltext_ha.sync import retention

BUS = "bus.sock"
EVENTS = "events.jsonl"
AUDITOR = "auditor"
LEGACY = "legacy"
"""The key store of 3006 and 3007; on 3008 it is what its file driver keeps, read otherwise."""
DRIVER_OPTION = "keys.cache_driver"


def run(spec: Mapping[str, Any]) -> None:
    """
    Be the engine that *spec* describes until it is told to end.

    :param spec: ``place`` (arguments of :class:`Place`), ``offset`` (seconds), ``layout``,
        ``mutant`` (a name, or empty), ``log`` (a file).
    """
    output = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    logging.getLogger("saltext_ha").setLevel(logging.INFO)
    logging.getLogger("salt").setLevel(logging.CRITICAL)
    clock.put_off(spec["offset"])
    place = Place.of(spec["place"])
    with contextlib.suppress(FileNotFoundError):
        place.config.control_socket.unlink()  # a killed one leaves it behind
    _put_in_place(place, spec["layout"])
    mutants.take_out(spec["mutant"])
    vars(ha)["__opts__"] = place.opts
    # Until it runs there is nothing to finish; an engine that waits to try again ends at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ha.start()


def _put_in_place(place: Place, layout: str) -> None:
    def open_as_configured(opts: Mapping[str, Any]) -> KeyStore:
        options = dict(opts)
        if layout == LEGACY:
            options.pop(DRIVER_OPTION, None)
        return open_store(options)

    vars(startup)["open_store"] = open_as_configured
    vars(service)["Announcer"] = _Announcer
    vars_of(EventBus)("listen", _listen)
    # A history has many silences to wait for; these are seconds in production.
    vars(scanner)["FOLDER_INTERVAL"] = 0.1
    vars(work_queue)["SETTLE"] = 0.15
    vars(retention)["FIRST"] = vars(retention)["INTERVAL"] = 0.4
    # The judge's own certificate is pinned, so that it can ask; it is no master that could agree.
    others = retention.Retention.others
    vars_of(retention.Retention)(
        "others", lambda self: [name for name in others(self) if name != AUDITOR]
    )
    vars(ha)["RETRY"] = 0.2


def _listen(self: EventBus, stop: threading.Event) -> None:
    path = Path(self.opts["sock_dir"]) / BUS
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bus:
        bus.bind(str(path))
        bus.settimeout(1.0)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError, socket.timeout):
                event = json.loads(bus.recv(65536))
                self.tell(event["tag"], event["data"])


class _Announcer:
    """Writes the engine's events to a file, one JSON line each."""

    def __init__(self, opts: Mapping[str, Any], proofs: object) -> None:
        self._path = Path(opts["root_dir"]) / EVENTS

    def __call__(self, tag: str, data: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"tag": tag, "data": dict(data)}) + "\n")

    def stop(self) -> None:
        """Nothing is kept open."""
