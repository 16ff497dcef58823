"""
The answers of ``ha.current_master``, ``masters``, ``ping_masters`` and ``failover`` as text for
people: one line for each minion.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from saltext_ha.minion import binding
from saltext_ha.output._text import Data, Screen, clean, count, shorten

LONGEST = 300


def line(minion: str, data: Data, names: Mapping[str, str], screen: Screen) -> list[str]:
    """
    A minion's master, since when, and what is wrong.

    :param minion: its id; empty if unknown.
    :param names: address → name, of the masters that this machine knows; see :func:`names`.
    """
    since, switches, masters = (data.get(key) for key in ("since_iso", "switches", "masters"))
    ping = data.get("ping")
    ping = ping if isinstance(ping, Mapping) else {}
    odd = _odd(data, ping)
    # 2026-03-01T14:05:09+0100, by the minion's clock
    begun = f" since {clean(since)[:19].replace('T', ' ')}" if since else ""
    parts = [_master(data, names) + begun]
    if switches and isinstance(switches, int):
        parts.append(f"{count(switches, 'change')} of master within the hour")
    if data.get("type") == "list" and isinstance(masters, list):
        which = "hot-hot with" if data.get("address") is None else "hot-hot, one of"
        parts.append(f"{which} {count(len(masters), 'master')}")
    if ping.get("answers") is True:
        parts.append(f"answers in {clean(ping.get('milliseconds'))} ms")
    parts += [shorten(clean(each), LONGEST) for each in odd]
    head = screen.paint(clean(minion), "degraded" if odd else "running")
    return [": ".join(filter(None, (head, " · ".join(parts))))]


def masters(
    minion: str, rows: Sequence[Data], names: Mapping[str, str], screen: Screen
) -> list[str]:
    """All masters of a minion with their states; arguments as :func:`line`."""
    parts, odd = [], False
    for row in rows:
        inner = row.get("ping")
        ping: Data = inner if isinstance(inner, Mapping) else row
        ping = ping if "answers" in ping else {}
        parts.append(" ".join(filter(None, [_master(row, names), ", ".join(_states(row, ping))])))
        lost = row.get("current") is True and row.get("connected") is False
        odd = odd or lost or ping.get("answers") is False or row.get("publishes") is False
    head = screen.paint(clean(minion), "degraded" if odd else "running")
    return [": ".join(filter(None, (head, " · ".join(parts) or "no master known")))]


def _states(row: Data, ping: Data) -> Iterator[str]:
    """What is known of a master of a minion, each with the note that says why."""
    if row.get("current"):
        yield "current"
    if "connected" in row:
        words = {True: "connected", False: "not connected"}
        same = bool(ping) and ping.get("note") == row.get("note")
        yield words.get(row["connected"], "connected: unknown") + ("" if same else _note(row))
    if ping.get("answers") is True:
        yield f"answers in {clean(ping.get('milliseconds'))} ms{_note(ping)}"
    elif ping:
        said = "does not answer" if ping.get("answers") is False else "answers: unknown"
        yield said + _note(ping)
    if row.get("publishes") is False:
        yield "nor does its publisher" if ping.get("answers") is False else "its publisher does not"


def _note(data: Data) -> str:
    return f" ({shorten(clean(data['note']), LONGEST)})" if data.get("note") else ""


def version(minion: str, data: Data, names: Mapping[str, str], screen: Screen) -> list[str]:
    """Which saltext-ha a minion has, since when its process runs, and whether that has it, too."""
    started = data.get("started")
    since = "no running minion"
    if isinstance(started, (int, float)):
        at = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(started))
        since = f"the minion runs since {at}"
    outdated = data.get("outdated") is True
    restart = " · its watchdog is older: restart the minion" if outdated else ""
    head = screen.paint(clean(minion), "degraded" if outdated else "running")
    return [f"{head}: saltext-ha {clean(data.get('version'))} · {since}{restart}"]


def moved(minion: str, data: Data, names: Mapping[str, str], screen: Screen) -> list[str]:
    """Where a minion goes, or why it does not; arguments as :func:`line`."""
    text = clean(data.get("comment"))
    for address in {str(data.get("from")), str(data.get("to"))} & names.keys():
        whole = rf"(?<![\w.:]){re.escape(address)}(?![\w.:])"
        text = re.sub(whole, f"{clean(names[address])} ({address})", text)
    failed = data.get("result") is False
    return [f"{screen.paint(clean(minion), 'degraded' if failed else 'running')}: {text}"]


def _master(data: Data, names: Mapping[str, str]) -> str:
    address, ip, port = data.get("address"), data.get("ip"), data.get("port")
    if address is None:
        return "no current master"
    there = address if port in (None, binding.DEFAULT_REQUEST_PORT) else f"{address}:{port}"
    if ip not in (None, address):
        there += f" = {ip}"
    name = data.get("id") or names.get(str(ip)) or names.get(str(address))
    return f"{clean(name)} ({clean(there)})" if name else clean(there)


def _odd(data: Data, ping: Data) -> list[str]:
    told = [data.get("note")]
    if data.get("connected") is not True and data.get("address") is not None:
        told.insert(0, "not connected" if data.get("connected") is False else "connected: unknown")
    if ping and ping.get("answers") is not True:
        told.append(f"ping: {ping.get('note')}")
    return [str(each) for each in told if each]


def names(opts: Mapping[str, Any]) -> Mapping[str, str]:
    """
    Address → name of the masters of the group, if *opts* are those of a master, or of a minion that
    has the names (``ha_masters``). Otherwise empty, also for users who may not read them.
    """
    from saltext_ha.common.errors import HaError
    from saltext_ha.config import mapping

    if told := _told(opts):
        return told
    if not opts.get("ha"):
        return {}
    try:
        settings = mapping.parse(opts)
        return _names(settings.name, settings.address, settings.state_dir)
    except (HaError, OSError, ValueError):  # on a minion, or not readable
        return {}


def _told(opts: Mapping[str, Any]) -> Mapping[str, str]:
    from saltext_ha.minion import options

    found: dict[str, str] = {}
    for name, entry in options.names(opts).items():
        with contextlib.suppress(ValueError):
            host, _ = binding.split_entry(entry, binding.DEFAULT_REQUEST_PORT)
            found[host] = "" if host in found else name  # two masters at one address: unclear which
    return found


@functools.lru_cache
def _names(name: str, address: str, state_dir: Any) -> Mapping[str, str]:
    # Salt prints each minion by itself, and there may be thousands.
    from saltext_ha.transport import peer_files

    return {**peer_files.addresses(state_dir), address: name}
