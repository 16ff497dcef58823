"""The answer of ``ha.restart_masters`` as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.output._text import Screen, clean, table, yes_no


def restart_masters(data: Mapping[str, Any], screen: Screen) -> list[str]:
    rows = [
        [
            clean(row.get("name")),
            yes_no(row.get("restarted")),
            "-" if row.get("seconds") is None else f"{row['seconds']:g} s",
            clean(row.get("problem") or row.get("command")),
        ]
        for row in data.get("masters") or []
    ]
    lines = table(screen, ["Master", "Restarted", "Took", "Command, or what is wrong"], rows)
    if data.get("test"):
        lines.append("planned, in this order; nothing was restarted (test=True)")
    elif data.get("retcode"):
        lines.append("stopped there: look at that master, then run it again")
    return lines
