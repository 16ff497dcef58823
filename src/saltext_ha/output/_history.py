"""
The history for people: a line for every write, and below it the writer's own statement if needed.

The time in a line is when the write came to this master. The writer's statement is below if it has
another time, or if another master than the named one sent the write.
"""

from __future__ import annotations

import textwrap
import time
from typing import Any

from saltext_ha.output._names import Masters
from saltext_ha.output._text import Data, Screen, clean, count, distinct, number, table

INDENT = "    "
APART = 60.0
"""Seconds between the time in a write and its arrival, from which on both are shown."""
EARLIEST, LATEST = 0, 32503680000  # the years 1970 to 3000; a clock may be far off


def render(data: Data, screen: Screen) -> list[str]:
    writes = data.get("writes") or []
    if not writes:
        return ["nothing is recorded of that"]
    times = [_time(_shown_at(write)) for write in writes]
    zones = {zone for _, zone in times}
    # A listing across a change of summer time names the zone in every line.
    when = f"When ({' '.join(zones)})" if len(zones) == 1 else "When"
    prints = distinct(write.get("fingerprint") or "-" for write in writes)
    rows = [
        {
            when: at if len(zones) == 1 else f"{at} {zone}",
            "Where": write.get("on") or "-",
            "Who": write.get("by") or "-",
            "What": write.get("what") or write.get("state") or "?",
            "Id": f"tree {write['tree']}" if write.get("tree") else write.get("id"),
            "Fingerprint": shown,
        }
        for write, (at, zone), shown in zip(writes, times, prints, strict=True)
    ]
    only = {row["Id"] for row in rows}
    columns = [name for name in rows[0] if name != "Id" or len(only) > 1]
    whole = [when, "What", "Fingerprint"]
    cells = [[row[name] for name in columns] for row in rows]
    named = Masters(["Where"], [write.get("on") for write in writes])
    head, *body = table(screen, columns, cells, whole=whole, masters=named)
    # For one minion, show its name once, not in every line.
    lines = [*map(clean, only), head] if len(only) == 1 else [head]
    for line, write in zip(body, writes, strict=True):
        lines.append(line)
        for below in (_claimed(write), clean(write.get("why") or "")):
            lines += textwrap.wrap(
                below,
                max(40, screen.width),
                initial_indent=INDENT,
                subsequent_indent=INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
    old = sum("received" in write and write["received"] is None for write in writes)
    if old:
        lines.append(
            f"{count(old, 'line')} of an older release: when and from whom that came is unknown"
        )
    if data.get("more"):
        lines.append(f"the last {number(len(writes))} lines; limit=N shows more")
    return lines


def at_time(at: Any) -> str:
    """Local time for people, without its zone."""
    return _time(at)[0]


def _shown_at(write: Data) -> Any:
    received = write.get("received")
    return write.get("at") if received is None else received


def _claimed(write: Data) -> str:
    """The writer's own statement, if it differs from what this master saw."""
    at, received, sender = write.get("at"), write.get("received"), write.get("from")
    if received is None:
        return ""
    told = isinstance(at, (int, float)) and isinstance(received, (int, float))
    parts = []
    if not told or abs(float(at or 0) - float(received)) >= APART:
        parts.append(f"says it was made {' '.join(_time(at))}")
    if sender is not None and sender != write.get("on"):
        parts.append(f"came from {clean(sender)}")
    return ", ".join(parts)


def _time(at: Any) -> tuple[str, str]:
    """Local time in ISO 8601, and the name of its zone."""
    if not isinstance(at, (int, float)) or not EARLIEST <= at < LATEST:
        return "?", time.strftime("%Z")
    local = time.localtime(at)
    return time.strftime("%Y-%m-%d %H:%M:%S", local), time.strftime("%Z", local)
