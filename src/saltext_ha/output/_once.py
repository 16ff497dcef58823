"""The answers of ``ha.leader`` and ``ha.once`` as text."""

from __future__ import annotations

import time
from collections.abc import Sequence

from saltext_ha.output._names import Masters
from saltext_ha.output._text import (
    MARK,
    Data,
    Screen,
    clean,
    count,
    duration,
    not_asked,
    shorten,
    table,
    with_notes,
    yes_no,
)

LONGEST = 300
REACTOR = {
    "Waiting": "waiting",
    "Handed over": "handed",
    "Taken": "taken",
    "Same": "same",
    "Twice": "twice",
    "Dropped": "dropped",
}


def in_status(leader: Data) -> str:
    """The leader, for the first line of ``ha.status``."""
    if not leader.get("store"):
        return "takes no part in leading"
    return f"{clean(leader['leader'])} leads" if leader.get("leader") else "nobody leads"


def apart(data: Data) -> list[str]:
    """Masters that answer and take no part in leading, for ``ha.status``."""
    running = {
        row.get("name") for row in data.get("masters") or [] if row.get("state") == "running"
    }
    told = (data.get("leader") or {}).get("apart") or {}
    return [
        f"{clean(name)} takes no part in leading: {shorten(clean(why), LONGEST)}"
        for name, why in sorted(told.items())
        if name in running
    ]


def leader(data: Data, screen: Screen) -> list[str]:
    lines = [f"{_who(data, screen)} · store {clean(data.get('store') or 'none')}"]
    rows = [
        [
            f"{row.get('name')}{MARK if row.get('name') == data.get('leader') else ''}",
            yes_no(row.get("leads"), "?"),
            row.get("follows") or ("?" if row.get("leads") is None else "nobody"),
        ]
        for row in data.get("masters") or []
    ]
    columns = ["Master", "Leads", "Knows as leader"]
    named = Masters(
        ["Master", "Knows as leader", "Reactor of", "On"],
        [row.get("name") for row in data.get("masters") or []],
    )
    lines += with_notes(screen, columns, rows, data.get("masters") or [], masters=named)
    leading = data.get("leading") or []
    if len(leading) > 1:
        lines.append(
            f"{screen.paint('conflict')}: {count(len(leading), 'master')} lead: "
            f"{', '.join(map(clean, leading))}; it ends when they reach each other"
        )
    lines += _reactors(data.get("masters") or [], screen, named)
    return lines + _runs(data.get("runs") or [], screen, named) + not_asked(data, screen)


def _reactors(masters: Sequence[Data], screen: Screen, named: Masters) -> list[str]:
    found = [(row.get("name"), row["reactor"]) for row in masters if row.get("reactor")]
    if not found:
        return []
    rows = [
        [
            name,
            yes_no(reactor.get("reacts"), "?") if reactor.get("configured") else "none configured",
            *("?" if reactor.get(c) is None else reactor[c] for c in REACTOR.values()),
        ]
        for name, reactor in found
    ]
    return table(screen, ["Reactor of", "Reacts", *REACTOR], rows, masters=named)


def _runs(runs: Sequence[Data], screen: Screen, named: Masters) -> list[str]:
    if not runs:
        return []
    rows = [
        [
            *(run.get(key) for key in ("name", "function", "on", "state")),
            f"{duration(run.get('ago') or 0.0)} ago",
            "-" if run.get("seconds") is None else f"{run['seconds']:g} s",
        ]
        for run in runs
    ]
    columns = ["Once", "Function", "On", "State", "Began", "Took"]
    return table(screen, columns, rows, masters=named)


def once(data: Data, screen: Screen) -> list[str]:
    """Lines for the answer of ``ha.once``, without the return of the function."""
    what = clean(data.get("name") or data.get("function"))
    if data.get("skipped"):
        lines = [f"{what}: skipped here: {clean(data.get('why'))}"]
    elif data.get("error"):
        lines = [f"{what}: {screen.paint('failed', 'error')}: {clean(data['error'])}"]
    elif code := data.get("retcode"):
        failed = screen.paint("failed", "error")
        lines = [f"{what}: ran here, and {failed}: exit code {clean(code)}"]
    else:
        lines = [f"{what}: ran here"]
    return [*lines, *([clean(data["note"])] if data.get("note") else [])]


def _who(data: Data, screen: Screen) -> str:
    if not data.get("leader"):
        return f"{screen.paint('nobody leads', 'unknown')}: {clean(data.get('why') or '?')}"
    since = data.get("since")
    for_ = f" since {duration(max(0.0, time.time() - since))}" if since else ""
    fence = f", fencing number {data['fence']}" if data.get("fence") is not None else ""
    return f"{clean(data['leader'])} leads{for_}{fence}"
