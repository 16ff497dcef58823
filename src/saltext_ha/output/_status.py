"""The answer of ``ha.status`` as text."""

from __future__ import annotations

import time
from typing import Any

from saltext_ha.health.group_state import BECAUSE
from saltext_ha.output import _conflicts, _consistency, _once
from saltext_ha.output._names import Masters
from saltext_ha.output._text import (
    LONGEST_NOTE,
    MARK,
    Data,
    Screen,
    clean,
    count,
    duration,
    listed,
    notes,
    number,
    number_or_unknown,
    seen,
    shorten,
    with_notes,
)


def status(data: Data, screen: Screen) -> list[str]:
    state = clean(data.get("state") or "unknown")
    head = [f"Group {clean(data.get('group') or '?')}", screen.paint(state.upper())]
    if data.get("mode"):
        head.append(f"sync {clean(data['mode'])}")
    if data.get("tolerates") is not None:
        head.append(f"tolerates the loss of {count(data['tolerates'], 'master')}")
    if data.get("leader"):
        head.append(_once.in_status(data["leader"]))
    masters = data.get("masters") or []
    lines = [" · ".join(head)]
    if masters:
        lines += _masters(masters, screen) + _of_masters(data) + _once.apart(data)
    else:
        lines.append("no masters")
    lines += _conflicts.conflicts(data.get("conflicts") or [], screen)
    held = data.get("held") or []
    if held:
        lines.append(screen.paint(f"keys held back on {count(len(held), 'master')}", "pending"))
        lines += listed(
            f"{clean(item.get('master'))}: {count(item.get('keys') or 0, 'key')} vanished "
            "there at once, or revoked ones came back;\n      nothing of it has reached the others"
            for item in held
        )
        lines += [
            "  → bring its key folder back; or there, with test=True first:",
            "      salt-run ha.refill    write back what the group knows",
            "      salt-run ha.release   believe the folder: what is missing goes on all masters",
        ]
    refusals = data.get("refusals") or []
    if refusals:
        lines.append("refused from peers")
        lines += listed(
            f"{number(item.get('times') or 0)} × {clean(item.get('reason'))}, from "
            f"{clean(item.get('from'))}, {_ago(item.get('last'))}"
            for item in refusals
        )
    comparison = data.get("consistency") or {}
    lines += _consistency.last(comparison, screen)
    if not comparison.get("stale"):
        lines += _not_compared(data, screen)
    return lines + notes(data)


def _ago(at: Any) -> str:
    return f"{duration(max(0.0, time.time() - at))} ago" if isinstance(at, (int, float)) else "?"


def _of_masters(data: Data) -> list[str]:
    """Why masters are not ok, or that is not known, if neither table nor notes say it."""
    notes = {row.get("name"): row.get("note") or "" for row in data.get("masters") or []}
    return [
        f"  {clean(reason.get('about'))}: {shorten(clean(reason.get('text')), LONGEST_NOTE)}"
        for reason in data.get("reasons") or []
        if (reason.get("kind") in ("serves", "ready") or _of_unknown_keys(reason))
        and str(reason.get("text")).removesuffix(BECAUSE) not in notes.get(reason.get("about"), "")
    ]


def _of_unknown_keys(reason: Data) -> bool:
    return reason.get("kind") == "behind" and "unknown" in (reason.get("states") or ())


def _not_compared(data: Data, screen: Screen) -> list[str]:
    """Why it is unknown whether masters differ, though the last comparison is not stale."""
    return [
        line
        for reason in data.get("reasons") or []
        if reason.get("kind") == "comparison" and "unknown" in (reason.get("states") or ())
        for line in _consistency.unknown(str(reason.get("text")), screen)
    ]


def _masters(masters: list[Data], screen: Screen) -> list[str]:
    amounts = ["accepted", "pending"]
    amounts += [key for key in ("rejected", "denied") if any(m.get(key) for m in masters)]
    bound = ["bound"] if any(m.get("bound") is not None for m in masters) else []
    right = [key.capitalize() for key in (*amounts, *bound)]
    columns = ["Master", "State", "Salt", *right[: len(amounts)], "Digest", "Behind"]
    columns += [*right[len(amounts) :], "Seen"]
    rows = []
    for master in masters:
        rows.append(
            [
                f"{master.get('name')}{MARK}" if master.get("self") else master.get("name"),
                master.get("state") or "unknown",
                master.get("salt") or "?",
                *(number_or_unknown(master.get(key)) for key in amounts),
                master.get("digest") or "?",
                _behind(master.get("behind")),
                *(number_or_unknown(master.get(key)) for key in bound),
                seen(master),
            ]
        )
    named = Masters(["Master"], [master.get("name") for master in masters])
    return with_notes(screen, columns, rows, masters, right, named)


def _behind(value: int | None) -> str:
    if value is None:
        return "?"
    return count(value, "key") if value else "-"
