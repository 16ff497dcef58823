"""The answer of ``ha.keys`` as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from saltext_ha.output._names import Masters
from saltext_ha.output._text import (
    NO_MASTERS,
    Data,
    Screen,
    clean,
    count,
    distinct,
    fits,
    inline,
    not_asked,
    number,
    on_master,
    with_notes,
)


def keys(data: Data, screen: Screen) -> list[str]:
    keys = data.get("keys") or []
    masters = [str(name) for name in data.get("masters") or []]
    if not keys:
        match = inline(data.get("match", "*"))
        nothing = "no keys" if match == "*" else f"no key matches {match}"
        return [*not_asked(data, screen), nothing]
    rows = []
    prints = distinct(key.get("fingerprint") or "?" for key in keys)
    for key, shown in zip(keys, prints, strict=True):
        states = key.get("states") or {}
        rows.append([key.get("id"), shown, *(on_master(states.get(m, "-")) for m in masters)])
    notes = ["conflict" if key.get("conflict") else "" for key in keys]
    columns, named = ["Id", "Fingerprint", *masters], Masters(masters, masters)
    if len(masters) > 2 and not fits(screen, columns, rows, named):  # ids need the room
        columns, named = ["Id", "Fingerprint", "State"], NO_MASTERS
        states = [dict(zip(masters, row[2:], strict=True)) for row in rows]
        rows = [[*row[:2], _of_all(each)] for row, each in zip(rows, states, strict=True)]
        notes = [
            "; ".join(filter(None, (note, _apart(each))))
            for note, each in zip(notes, states, strict=True)
        ]
    entries = [{**key, "note": note} for key, note in zip(keys, notes, strict=True)]
    lines = with_notes(screen, columns, rows, entries, masters=named) + not_asked(data, screen)
    apart = [set((key.get("states") or {}).values()) for key in keys if not key.get("same")]
    differ = sum(len(states - {"unknown"}) > 1 for states in apart)
    unknown = len(apart) - differ
    conflicts = len({key.get("id") for key in keys if key.get("conflict")})
    summary = [count(len(keys), "key")]
    if differ:
        summary.append(f"{number(differ)} not the same everywhere")
    if unknown:
        summary.append(f"{number(unknown)} not known to be the same everywhere")
    if not apart:
        summary.append("all the same")
    if conflicts:
        summary.append(screen.paint(count(conflicts, "conflict"), "conflict"))
    lines.append(" · ".join(summary))
    if len(keys) == 1 and keys[0].get("fingerprint"):
        # A single fingerprint in full: an operator compares it with the minion's own.
        lines.append(clean(keys[0]["fingerprint"]))
    return lines


def _of_all(states: Mapping[str, str]) -> str:
    """The state on all masters in one word, of those by master."""
    known = {*states.values()} - {"?"}
    return "differs" if len(known) > 1 else "unknown" if "?" in states.values() else known.pop()


def _apart(states: Mapping[str, str]) -> str:
    """``accepted, but pending on m2 m3``; empty if they are the same."""
    (usual, _), *others = Counter(states.values()).most_common()
    words = {"-": "absent", "?": "unknown"}
    apart = [
        f"{words.get(state, state)} on {' '.join(name for name in states if states[name] == state)}"
        for state, _ in others
    ]
    return f"{words.get(usual, usual)}, but {', '.join(apart)}" if apart else ""
