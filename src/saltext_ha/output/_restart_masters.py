"""The answer of ``ha.restart_masters`` as text."""

from __future__ import annotations

from saltext_ha.output._names import Masters
from saltext_ha.output._text import Data, Screen, with_notes, yes_no


def restart_masters(data: Data, screen: Screen) -> list[str]:
    masters = data.get("masters") or []
    rows = [
        [
            row.get("name"),
            yes_no(row.get("restarted")),
            "-" if row.get("seconds") is None else f"{row['seconds']:g} s",
            row.get("command") or "?",
        ]
        for row in masters
    ]
    entries = [{**row, "note": row.get("problem")} for row in masters]
    columns = ["Master", "Restarted", "Took", "Command"]
    named = Masters(["Master"], [row.get("name") for row in masters])
    lines = with_notes(screen, columns, rows, entries, masters=named)
    if data.get("test"):
        lines.append("planned, in this order; nothing was restarted (test=True)")
    elif data.get("retcode"):
        lines.append("stopped there: look at that master, then run it again")
    return lines
