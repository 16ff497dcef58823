"""The answers of ``ha.minions`` and other commands about minions as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from saltext_ha.output._names import Masters
from saltext_ha.output._text import (
    MARK,
    Data,
    Screen,
    clean,
    count,
    duration,
    id_list,
    left_out,
    not_asked,
    number,
    number_or_unknown,
    shorten,
    table,
    with_notes,
)

LISTED = 200  # minions; all of them are in the JSON
LONGEST = 300
ITS_TEST = "to run the function with a test=True of its own: kwarg='{test: True}'"
_ORDER = ("unknown", "silent", "astray", "deaf", "partly", "seen", "bound", "ok")
_EVIDENCE = {
    "job": "returned a job",
    "schedule": "returned a scheduled job",
    "start": "started",
    "watchdog": "its watchdog",
    "failover": "came by failover",
    "beacon": "a beacon",
    "presence": "Salt's presence",
    "auth": "authenticated",
    "return": "returned something",
    "event": "sent an event",
}
_CELL = {"silent": "deaf", "no key": "no key", "unknown": "?"}


def minions(data: Data, screen: Screen) -> list[str]:
    masters = [
        [
            f"{each.get('name')}{MARK}" if each.get("self") else each.get("name"),
            each.get("state"),
            *(number_or_unknown(each.get(key)) for key in ("minions", "connections")),
            "?" if each.get("listening") is None else duration(each["listening"]),
        ]
        for each in data.get("masters") or []
    ]
    columns = ["Master", "State", "Minions", "Connections", "Listening for"]
    names = [each.get("name") for each in data.get("masters") or []]
    named = Masters(["Master", "On"], names)
    lines = table(screen, columns, masters, right=("Minions", "Connections"), masters=named)
    lines += not_asked(data, screen)
    lines += [
        f"  {clean(each.get('name'))}: {count(each['gone'], 'minion')} of these "
        f"{'is' if each['gone'] == 1 else 'are'} not connected any more: moved or stopped, "
        "and not heard since; live=True asks"
        for each in data.get("masters") or []
        if isinstance(each.get("gone"), int) and each["gone"] > 0
    ]
    rows = _troubled(data.get("minions") or [])
    if not rows:
        return [*lines, "no accepted minion matches"]
    cells = [
        [
            row.get("id"),
            row.get("state"),
            ", ".join(row.get("masters") or []) or "-",
            "never" if row.get("seen") is None else f"{duration(row['seen'])} ago",
            _EVIDENCE.get(str(row.get("by")), "-"),
            row.get("type") or "?",
            *([_version(row)] if data.get("live") else []),
        ]
        for row in rows[:LISTED]
    ]
    versions = ["saltext-ha"] if data.get("live") else []
    columns = ["Minion", "State", "On", "Heard", "By", "Type", *versions]
    lines += table(screen, columns, cells, masters=named)
    return [*lines, *left_out(len(rows) - LISTED, "minion"), *_notes(rows), _summary(data)]


def _version(row: Data) -> str:
    """The version of saltext-ha on the minion; unknown if the minion does not answer."""
    return str(row.get("version") or ("-" if row.get("state") in ("bound", "partly") else "?"))


def where(data: Data, screen: Screen) -> list[str]:
    lines, found = not_asked(data, screen), data.get("minions") or {}
    silent = set(data.get("silent") or [])
    cells = [
        [
            minion,
            (", ".join(masters) or "-")
            + (" · heard there last, does not answer now" if minion in silent else ""),
        ]
        for minion, masters in sorted(found.items())[:LISTED]
    ]
    if cells:
        named = Masters(["Reached by"], data.get("masters") or [])
        lines += table(screen, ["Minion", "Reached by"], cells, masters=named)
    rest = int(data.get("count") or 0) - len(found)
    lines += left_out(len(found) - LISTED, "minion")
    absent = data.get("absent") or []
    if absent:
        lines.append(f"no accepted key: {id_list(absent, LISTED, screen)}")
    if not (data.get("count") or absent):
        return [*lines, "no accepted minion matches"]
    masters = clean(", ".join(data.get("masters") or []))
    return [*lines, f"{count(rest, 'minion')} reached by all of {masters}"]


def cmd(data: Data, screen: Screen, returned: Callable[[str, Any, int], list[str]]) -> list[str]:
    """
    The returns of a job, and who did not return.

    :param returned: renders the return of one minion; takes its id, value and exit code.
    """
    lines, failed = not_asked(data, screen), data.get("failed") or {}
    for minion, value in (data.get("returned") or {}).items():
        lines += returned(minion, value, failed.get(minion, 0))
    running, missing = data.get("running") or {}, data.get("missing") or {}
    unreachable = data.get("unreachable") or []
    for minion, master in missing.items():
        said = f"did not return to {clean(master)} in time, nor say that it still runs it"
        if minion in running:
            said = f"still running on {clean(master)} (job {clean(running[minion])})"
        elif minion in unreachable:
            said = f"no master reaches it; it {said}"
        lines.append(f"{clean(minion)}: {said}")
    for minion in unreachable:
        if minion not in missing:
            lines.append(f"{clean(minion)}: no master reaches it, or it has no accepted key")
    for minion in data.get("unsure") or []:
        lines.append(f"{clean(minion)}: may have run it: what came of it is not known")
    if later := data.get("not_begun"):
        said = f"{count(len(later), 'minion')} of later batches were not begun: "
        lines.append(_with_ids(said, later, screen))
    told = ["returned", "missing", "unreachable", "unsure"]
    planned: list[Data] = []
    if data.get("test"):
        planned = [each for each in data.get("targets") or [] if each]
    else:
        told.append("unknown")  # minions of that master may have matched
    if not (planned or any(data.get(name) for name in told)):
        lines.append("no minion with an accepted key matched")
    for targets in planned:
        for master, target in targets.items():
            shown = target if isinstance(target, str) else ", ".join(target)
            lines.append(f"would be published on {clean(master)} for {clean(shown)}")
    if planned:
        lines.append(f"planned; nothing was run (test=True); {ITS_TEST}")
    for jobs in data.get("jobs") or []:
        for master, jid in jobs.items():
            lines.append(f"job {clean(jid)} on {clean(master)}")
    return lines


def reachability(data: Data, screen: Screen) -> list[str]:
    masters = [str(name) for name in data.get("masters") or []]
    lines = not_asked(data, screen)
    rows = _troubled(data.get("minions") or [])
    if not rows:
        return [*lines, "no accepted minion matches"]
    cells = [
        [
            row.get("id"),
            *(_cell(row, name) for name in masters),
            row.get("type") or "?",
            row.get("state"),
        ]
        for row in rows[:LISTED]
    ]
    columns, named = ["Minion", *masters, "Type", "State"], Masters(masters, masters)
    lines += table(screen, columns, cells, masters=named)
    lines += [*left_out(len(rows) - LISTED, "minion"), *_notes(rows)]
    lines += [
        screen.paint(
            _with_ids(
                f"{count(each.get('count') or 0, 'answer')} to {clean(each.get('published'))} came "
                f"to {clean(each.get('arrived'))}: ",
                each.get("ids") or [],
                screen,
            ),
            "differ",
        )
        for each in data.get("strays") or []
    ]
    partial = " · partial: not all masters could ask" if data.get("partial") else ""
    return [*lines, _summary(data) + partial]


def moves(data: Data, screen: Screen) -> list[str]:
    """Lines for the answers of ``ha.drain`` and ``ha.rebalance``."""
    lines = not_asked(data, screen)
    found, test = data.get("moves") or [], data.get("test")
    moves = sorted(found, key=lambda row: bool(row.get("moved") or row.get("planned")))
    rows = [[row.get("id"), row.get("from"), row.get("to"), _moved(row, test)] for row in moves]
    if rows:
        columns = ["Minion", "From", "To", "Result"]
        named = Masters(["From", "To"], [row.get(key) for row in moves for key in ("from", "to")])
        lines += with_notes(screen, columns, rows[:LISTED], moves[:LISTED], masters=named)
        lines += left_out(len(rows) - LISTED, "minion")
    lines += _stay(data, screen)
    lines += [screen.paint(clean(note), "degraded") for note in data.get("notes") or []]
    for name, each in (data.get("spread") or {}).items():
        lines.append(f"{clean(name)}: {number(each['before'])} → {number(each['after'])}")
    done = sum(bool(row.get("moved") or row.get("planned")) for row in found)
    verb, lack = ("would move", "would not") if test else ("moved", "did not")
    failed = f" · {number(len(found) - done)} {lack}" if len(found) > done else ""
    stay = data.get("stay") or []
    lost = sum("goes_on" in each and not each["goes_on"] for each in stay)
    left = f" · {number(lost)} would or may be lost" if lost else ""
    return [*lines, f"{count(done, 'minion')} {verb}{failed}{left}"]


def _stay(data: Data, screen: Screen) -> list[str]:
    """
    Minions that are not moved: first those that would be lost when the drained master is stopped.
    """
    master = clean(data.get("master"))
    fates = {
        "lost": screen.paint(f"would be lost with {master}", "error"),
        "maybe": screen.paint(f"may be lost with {master}", "unknown"),
        "on": "will go on with other masters",
        "alone": "left alone",
    }
    found: dict[tuple[str, str], list[Any]] = {}
    for each in data.get("stay") or []:
        goes_on = each.get("goes_on", "alone")  # ha.rebalance takes no master away
        fate = {True: "on", False: "lost", None: "maybe"}.get(goes_on, "alone")
        found.setdefault((fate, clean(each.get("why"))), []).append(each.get("id"))
    order = list(fates)
    lines = []
    for (fate, why), ids in sorted(found.items(), key=lambda each: (order.index(each[0][0]), each)):
        lines.append(f"{count(len(ids), 'minion')} {fates[fate]} · {why}")
        lines.append(_with_ids("  ", ids, screen))
    return lines


def _with_ids(said: str, ids: Iterable[Any], screen: Screen) -> str:
    """A line that ends with *ids*: as many as fit; all in a pipe, where grep has to find each."""
    text = ", ".join(map(clean, ids))
    return said + (shorten(text, max(40, screen.width - len(said))) if screen.edge else text)


def _moved(row: Data, test: Any) -> str:
    if row.get("moved"):
        return "moved"
    return "would move" if row.get("planned") else "would not move" if test else "failed"


def _cell(row: Data, master: str) -> str:
    cell = (row.get("answers") or {}).get(master) or {}
    if cell.get("state") == "hears":
        return f"{float(cell.get('seconds') or 0) * 1000:.0f} ms"
    if cell.get("state") == "silent" and row.get("state") == "ok":
        return "-"  # the minion has another master, and need not hear this one
    if cell.get("state") == "silent" and row.get("state") != "deaf":
        return "silent"  # unknown: the minion does not hear, or is stopped
    return _CELL.get(str(cell.get("state")), "?")


def _troubled(rows: Iterable[Data]) -> list[Data]:
    """The rows, sorted: minions that need attention first."""
    rank = {state: place for place, state in enumerate(_ORDER)}
    return sorted(rows, key=lambda row: (rank.get(str(row.get("state")), 0), str(row.get("id"))))


def _notes(rows: Iterable[Data]) -> list[str]:
    noted = [row for row in rows if row.get("note")]
    return [
        f"  {clean(row.get('id'))}: {shorten(clean(row['note']), LONGEST)}"
        for row in noted[:LISTED]
    ]


def _summary(data: Data) -> str:
    counts = data.get("counts") or {}
    total = count(sum(counts.values()), "minion")
    found = [f"{number(counts[state])} {state}" for state in _ORDER if counts.get(state)]
    return f"{total}: {', '.join(found)}"
