"""The answers of ``ha.deploy``, ``ha.rollback`` and ``ha.deployments`` as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from saltext_ha.output._history import at_time
from saltext_ha.output._names import Masters
from saltext_ha.output._text import Data, Screen, clean, count, not_asked, number, shorten, table

LISTED = 20
LONGEST_LINE = 200
_SIGNS = (("added", "+"), ("changed", "~"), ("removed", "-"))
_COLOURS = {"+": "accepted", "-": "error", "@": "pending"}


def deploy(data: Data, screen: Screen) -> list[str]:
    test = bool(data.get("test"))
    lines: list[str] = []
    for tree in data.get("trees") or []:
        lines += _tree(tree, screen, test)
    for name, masters in sorted((data.get("adopt") or {}).items()):
        where = f"live on {', '.join(map(clean, masters))}"
        now = f"is {where} was put there by hand: it needs adopt=True, and is kept beside"
        then = f"was {where} before is kept beside"
        lines.append(f"tree {clean(name)}: what {now if test else then}")
    for name in data.get("left_out") or []:
        lines.append(f"{clean(name)} is left out; it follows as soon as it can")
    if test:
        return [*lines, "planned; nothing was changed (test=True)"]
    for name, problem in sorted((data.get("masters") or {}).items()):
        if problem:
            said = shorten(clean(problem), LONGEST_LINE)
            lines.append(f"{screen.paint(clean(name), 'unknown')}: {said}")
    if data.get("problem"):
        lines.append(f"{screen.paint('failed', 'error')}: {clean(data['problem'])}")
        return lines
    serving = [clean(name) for name, why in sorted((data.get("masters") or {}).items()) if not why]
    if any(tree.get("number") for tree in data.get("trees") or []):
        lines.append(f"live on {', '.join(serving) or 'no master'}")
    else:
        lines.append(f"nothing to do: live on {', '.join(serving)} already")
    return lines


def _tree(tree: Data, screen: Screen, test: bool) -> Iterator[str]:
    name, counts = clean(tree.get("tree")), tree.get("counts") or {}
    size = f"{count(tree.get('files') or 0, 'file')}, {_bytes(tree.get('size') or 0)}"
    yield f"tree {name} from {clean(tree.get('source'))}: {size}"
    if tree.get("replaces"):
        yield f"  replaces {clean(tree['replaces'])}"
    if tree.get("conflict"):
        yield f"  {screen.paint('conflict')}: {clean(tree['conflict'])}"
    if tree.get("unread"):
        told = "not compared with what is live here, to which no ha.rollback leads back"
        yield f"  {told}: {clean(tree['unread'])}"
    if tree.get("opens"):
        told = "what is live here is closed to other users, and this tree is open to them"
        yield f"  {told}: secret: true  in  ha: trees:  on all masters keeps it closed"
    for kind, sign in _SIGNS:
        rows = tree.get(kind) or []
        for row in rows[:LISTED]:
            what = "/" if row.get("kind") == "folder" else f"  {_bytes(row.get('size') or 0)}"
            what += f"  mode {clean(row['mode'])}" if row.get("mode") else ""
            yield f"  {sign} {clean(row.get('path'))}{what if kind != 'removed' else ''}"
        if (counts.get(kind) or 0) > LISTED:
            yield f"  {sign} … {number(counts[kind] - LISTED)} more {kind}"
    if test:
        yield from (f"  {line}" for line in _diff(tree.get("diff") or [], screen))
    yield from (f"{line}; the folder is kept beside" for line in _edits(tree))
    if test and tree.get("owners"):
        owners = ", ".join(map(clean, tree["owners"]))
        yield f"  owned by {owners} in the source; on the masters by the user of salt-master"
    what = ", ".join(f"{number(counts.get(kind) or 0)} {kind}" for kind, _ in _SIGNS)
    done = f"deployment {tree['number']}: " if tree.get("number") else ""
    yield f"  {done}{'nothing changes' if not any(counts.values()) else what}"


def _diff(lines: Iterable[str], screen: Screen) -> Iterator[str]:
    for line in lines:
        text = "".join(sign if sign.isprintable() or sign == "\t" else "?" for sign in str(line))
        yield screen.paint(shorten(text, LONGEST_LINE), _COLOURS.get(text[:1], "none"))


def deployments(data: Data, screen: Screen) -> list[str]:
    lines: list[str] = []
    for tree in data.get("trees") or []:
        lines.append(f"tree {clean(tree.get('tree'))}: {clean(tree.get('live'))}")
        entries = tree.get("deployments") or []
        rows = [
            [
                entry.get("number"),
                "*" if entry.get("number") == tree.get("current") else "",
                at_time(entry.get("at")),
                f"{entry.get('by')} on {entry.get('on')}",
                number(entry.get("files") or 0),
                str(entry.get("version"))[:12],
                ", ".join(entry.get("live_on") or []) or "-",
            ]
            for entry in entries
        ]
        if rows:
            columns = ["No", "", "When", "By", "Files", "Version", "Live on"]
            whole = ["No", "When", "Version"]
            head, *body = table(screen, columns, rows, ["No", "Files"], whole, _named(entries))
            lines.append(head)
            for line, entry in zip(body, entries, strict=True):
                told = filter(None, (entry.get("source"), entry.get("message")))
                lines += [line, f"      {': '.join(map(clean, told))}"]
        else:
            lines.append("  nothing was deployed yet: salt-run ha.deploy test=True")
        lines += _elsewhere(tree) if rows else ()
        if tree.get("conflict"):
            lines.append(f"  {screen.paint('conflict')}: {clean(tree['conflict'])}")
        lines += [f"{line}{_mending(tree)}" for line in _edits(tree)]
    return lines + not_asked(data, screen)


def _named(entries: Iterable[Data]) -> Masters:
    names = [name for each in entries for name in (each.get("on"), *(each.get("live_on") or []))]
    return Masters(["By", "Live on"], names)


def _mending(tree: Data) -> str:
    """What serves the deployed files again; without what the source has by now."""
    if tree.get("current") is None:
        return ""
    again = f"salt-run ha.rollback {tree['current']} tree={clean(tree.get('tree'))}"
    return f": {again} serves the deployed ones, and keeps these beside"


def _elsewhere(tree: Data) -> Iterator[str]:
    """Masters that serve none of the deployments, which the table cannot show."""
    for master, what in sorted((tree.get("masters") or {}).items()):
        if what == "not configured":
            where = f"ha: trees: has no {clean(tree.get('tree'))} there"
            yield f"  {clean(master)} lacks it: {where}, or salt-master was not restarted"
        elif isinstance(what, str) and what != "unknown":
            yield f"  {clean(master)} serves {clean(what)}: its note in salt-run ha.status says why"


def _edits(tree: Data) -> Iterator[str]:
    for master, edits in sorted((tree.get("edits") or {}).items()):
        paths = ", ".join(clean(path) for path in (edits.get("paths") or [])[:5])
        files = count(edits.get("count") or 0, "file")
        yield f"  edited by hand on {clean(master)}: {files} ({paths})"


def _bytes(size: int) -> str:
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size} B"
