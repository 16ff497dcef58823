"""Does a master work? Asks it something that only a working master answers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import reason_of
from saltext_ha.minion import cleartext_request
from saltext_ha.minion.binding import SeenMaster


def ping(channel_opts: Mapping[str, Any], master: SeenMaster, timeout: float) -> dict[str, Any]:
    """
    Send one request to *master* that only a working master answers, and time it.

    *channel_opts* is the minion's configuration, from which Salt builds its transport; *timeout* is
    in seconds, for the whole request. Returns ``{"answers": True, "milliseconds": 3.1}``; otherwise
    ``answers`` is False, or None if there was no address to ask, and ``note`` says why.
    """
    if not master.ips or not master.port:
        return {"answers": None, "milliseconds": None, "note": "its address is unknown"}
    source = bare_ip(str(channel_opts.get("source_ip") or ""))
    started = time.monotonic()
    try:
        reply = cleartext_request.ask(
            channel_opts, master.in_use, master.port, {"cmd": "ping"}, timeout, source
        )
        if not isinstance(reply, Mapping) or reply.get("cmd") != "ping":
            raise ValueError("answered, but not to a ping")
    except Exception as exc:  # Salt's transports raise many kinds, and each means: no answer
        note = reason_of(exc)
        return {"answers": False, "milliseconds": None, "note": note}
    return {"answers": True, "milliseconds": round((time.monotonic() - started) * 1000, 1)}


def ping_all(
    channel_opts: Mapping[str, Any], known: list[SeenMaster], timeout: float
) -> list[dict[str, Any]]:
    """:func:`ping` all masters at the same time, within *timeout* for all together."""

    def one(master: SeenMaster) -> dict[str, Any]:
        # Salt 3007 makes a loop for a thread that has none, and never closes it.
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            asyncio.set_event_loop(loop)
            return ping(channel_opts, master, timeout)

    with ThreadPoolExecutor(max_workers=max(1, len(known))) as pool:
        return list(pool.map(one, known))
