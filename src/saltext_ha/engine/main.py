"""Running the service in a process of its own, as Salt gives one to each engine."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

from saltext_ha.config import secret
from saltext_ha.config.mapping import HaConfig
from saltext_ha.engine.service import Service

log = logging.getLogger(__name__)

ENDING = 15.0
"""Seconds from when the engine stops to its end, even if threads hang on a disk."""


def run(opts: Mapping[str, Any], config: HaConfig) -> None:
    """
    Run the engine until the process is told to end or its parent is gone.

    :raises HaError: it cannot start; the message says why.
    :raises SystemExit: a part of it failed; the log has the traceback. Salt logs at level info that
        a process died whose exit status is not 0, else at level debug.
    """

    secret.keep_from_core_dumps()
    # The keys of thousands of minions need hundreds of thousands of small objects without cycles.
    # With Python's default interval, a tenth of the work would be the search for cycles. Objects
    # that Salt has loaded stay anyway; those that a failed attempt has left do not.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)

    ending: list[threading.Timer] = []

    async def serve() -> bool:
        service = Service(opts, config, stopping=lambda: ending.append(end_within(ENDING)))
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, service.stop)
        await service.run()
        return service.failed

    try:
        failed = asyncio.run(serve())
    except BaseException:  # then it is tried again in this process
        for timer in ending:
            timer.cancel()
        raise
    if failed:
        raise SystemExit(1)


def end_within(seconds: float) -> threading.Timer:
    """
    End this process then, if it still runs: Python waits for its threads, whatever they do.

    :return: to be cancelled if the process is to go on.
    """

    def end() -> None:
        text = "ha engine: ended after %g s, though a thread had not; does a file system hang?"
        # The file of the log may be on that one.
        saying = threading.Thread(target=log.critical, args=(text, seconds), daemon=True)
        saying.start()
        saying.join(1.0)
        os._exit(1)

    last = threading.Timer(seconds, end)
    last.daemon = True
    last.start()
    return last
