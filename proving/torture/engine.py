"""
The process of one engine: the product as salt-master would start it.

Its bus and its reactor are replacements for those of a salt-master (:mod:`.bus`), and its clock may
be wrong. A mutant, if one is asked for, takes a guard out of the product.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Mapping
from typing import Any

import aiohttp.web  # noqa: F401  # imported once, before engines are forked
import salt.key  # noqa: F401

from lab.engines import Place
from proving.torture import clock, mutants
from proving.torture.bus import Announcer, Bus
from proving.torture.mutants import vars_of
from saltext_ha.engine import service, startup
from saltext_ha.engines import ha
from saltext_ha.keystore import open_store
from saltext_ha.keystore.base import KeyStore
from saltext_ha.once import election, group_leader
from saltext_ha.reconciler import scanner, work_queue
from saltext_ha.salt_bus.events import EventBus
from saltext_ha.salt_bus.reactor import Reactor
from saltext_ha.sync import retention

AUDITOR = "auditor"
LEGACY = "legacy"
"""The key store of 3006 and 3007; the file driver of 3008 keeps the same, and reads otherwise."""
DRIVER_OPTION = "keys.cache_driver"
FRESH = 1.5
"""Seconds for which a master counts as there; slowness of a busy machine must not be a fault."""


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
        place.config.control_socket.unlink()  # a killed engine leaves it behind
    _put_in_place(place, spec["layout"])
    mutants.take_out(spec["mutant"])
    vars(ha)["__opts__"] = place.opts
    # Before it runs it has nothing to finish; an engine that waits to try again ends at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ha.start()


def _put_in_place(place: Place, layout: str) -> None:
    def open_as_configured(opts: Mapping[str, Any]) -> KeyStore:
        options = dict(opts)
        if layout == LEGACY:
            options.pop(DRIVER_OPTION, None)
        return open_store(options)

    vars(startup)["open_store"] = open_as_configured
    bus = Bus(place.opts)
    vars(service)["Announcer"] = lambda opts, proofs: Announcer(opts, bus)
    vars_of(EventBus)("listen", lambda self, stop: bus.receive(self, stop))
    vars_of(Reactor)("_listen", lambda self: bus.follow(self))
    # A history waits for many silences; in production these take seconds.
    vars(scanner)["FOLDER_INTERVAL"] = 0.1
    vars(work_queue)["SETTLE"] = 0.15
    vars(retention)["FIRST"] = vars(retention)["INTERVAL"] = 0.4
    for module in (election, group_leader):
        vars(module)["FRESH"] = FRESH
    vars(group_leader)["TURN"], vars(group_leader)["ANSWER_WITHIN"] = FRESH / 4, FRESH / 2
    # The judge's certificate is pinned, so that it can ask; but it is no master that could agree.
    others = retention.Retention.others
    vars_of(retention.Retention)(
        "others", lambda self: [name for name in others(self) if name != AUDITOR]
    )
    vars(ha)["RETRY"] = 0.2
