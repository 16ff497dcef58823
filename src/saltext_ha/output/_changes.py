"""Changes of keys as text, made or planned, as ``ha.sync``, ``ha.resolve`` and others answer."""

from __future__ import annotations

from saltext_ha.output import _conflicts
from saltext_ha.output._names import Masters
from saltext_ha.output._text import Data, Screen, clean, count, distinct, notes, table


def changes(data: Data, screen: Screen) -> list[str]:
    changed = data.get("changes") or []
    test = data.get("test")
    lines = []
    if changed:
        states = iter(distinct(c.get(key) for c in changed for key in ("from", "to")))
        rows = [[c.get("master"), c.get("id"), next(states), next(states)] for c in changed]
        named = Masters(["Master"], [change.get("master") for change in changed])
        lines += table(screen, ["Master", "Id", "From", "To"], rows, masters=named)
        done = "made" if data.get("written", True) else "recorded; no key store is written"
        done = "planned; nothing was changed (test=True)" if test else done
        lines.append(f"{count(len(changed), 'change')} {done}")
    elif data.get("notes") or data.get("unreachable"):
        lines.append("no key was changed")  # that nothing has to be is not known, or not so
    else:
        lines.append("nothing to change")
    lines += _conflicts.conflicts(data.get("conflicts") or [], screen)
    for name, why in (data.get("unreachable") or {}).items():
        lines.append(f"{screen.paint(clean(name), 'unknown')} could not be reached: {clean(why)}")
    return lines + notes(data)
