"""The answer of ``ha.install_minions`` as text."""

from __future__ import annotations

from saltext_ha.output._minions import LISTED
from saltext_ha.output._text import (
    Data,
    Screen,
    clean,
    count,
    left_out,
    not_asked,
    number,
    table,
    yes_no,
)

_FIRST = ("no answer", "failed")


def install_minions(data: Data, screen: Screen) -> list[str]:
    every = data.get("minions") or []
    rows = sorted(every, key=lambda row: row.get("result") not in _FIRST)
    cells = [
        [
            row.get("id"),
            row.get("result"),
            row.get("before") or "-",
            row.get("now") or "-",
            yes_no(row.get("restarted")),
        ]
        for row in rows[:LISTED]
    ]
    lines = not_asked(data, screen)
    if cells:
        lines += table(screen, ["Minion", "Result", "Before", "Now", "Restarted"], cells)
    lines += left_out(len(rows) - LISTED)
    lines += [
        f"  {clean(row.get('id'))}: {clean(row['problem'])}"
        for row in rows[:LISTED]
        if row.get("problem")
    ]
    counts = [f"{number(n)} {clean(result)}" for result, n in (data.get("counts") or {}).items()]
    told = ": " + ", ".join(counts) if counts else ": no minion matches"
    lines.append(f"{count(len(every), 'minion')}{told} · saltext-ha {clean(data.get('version'))}")
    return lines
