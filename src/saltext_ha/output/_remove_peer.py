"""The answer of ``ha.remove_peer``: masters that the removed one introduced, and its decisions."""

from __future__ import annotations

from saltext_ha.output._history import at_time
from saltext_ha.output._names import Masters
from saltext_ha.output._text import (
    LISTED,
    Data,
    Screen,
    clean,
    count,
    distinct,
    left_out,
    not_asked,
    notes,
    table,
)


def render(data: Data, screen: Screen) -> list[str]:
    name, undo, test = clean(data.get("name")), data.get("undo"), data.get("test")
    since = data.get("since")
    span = f" since {at_time(since)}" if since is not None else ""
    lines = notes(data) if not test else []
    members = data.get("members") or []
    if members:
        fate = ("would be removed, too" if test else "removed, too") if undo else "stay pinned"
        lines.append(f"introduced by {name}{span}; {fate}:")
        lines += [
            f"  {clean(member.get('name'))}  pinned {clean(member.get('added')) or '?'}"
            f"  on {', '.join(map(clean, member.get('on') or []))}"
            + (
                ""
                if member.get("introducer") == data.get("name")
                else f", by {clean(member.get('introducer') or '?')}"
            )
            for member in members[:LISTED]
        ]
    keys = data.get("keys") or []
    if keys:
        lines += _keys(keys, screen, bool(undo), "Was" if undo and not test else "Now")
        lines.append(f"{count(len(keys), 'key')} decided about by {name}{span}")
    else:
        lines.append(f"no key is known that {name} decided about{span}")
    if undo and test:
        lines.append("planned; nothing was changed (test=True)")
    return lines + not_asked(data, screen) + (notes(data) if test else [])


def _keys(keys: list[Data], screen: Screen, undo: bool, state: str) -> list[str]:
    shown = keys[:LISTED]
    prints = distinct(key.get("fingerprint") or "-" for key in shown)
    columns = ["Received", "From", "What", "Id", "Fingerprint", state, "Becomes"]
    rows = []
    for key, fingerprint in zip(shown, prints, strict=True):
        rows.append(
            [
                at_time(key.get("received")),
                key.get("from") or "?",
                key.get("what") or "?",
                key.get("id"),
                fingerprint,
                key.get("state") or "-",
                key.get("to") or "stays",
            ]
        )
    if not undo:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    whole = ["Received", "What", "Fingerprint"]
    named = Masters(["From"], [key.get(each) for key in shown for each in ("from", "on")])
    head, *body = table(screen, columns, rows, whole=whole, masters=named)
    lines = [head]
    for line, key in zip(body, shown, strict=True):
        lines.append(line)
        below = [_claim(key), clean(key.get("note") or "") if undo else ""]
        lines += [f"    {text}" for text in below if text]
    return [*lines, *(f"  {line}" for line in left_out(len(keys) - LISTED))]


def _claim(key: Data) -> str:
    """What the write says about its origin, if another master sent it."""
    if key.get("on") == key.get("from"):
        return ""
    by = f" by {clean(key['by'])}" if key.get("by") else ""
    return f"says it was made on {clean(key.get('on') or '?')}{by}, {at_time(key.get('at'))}"
