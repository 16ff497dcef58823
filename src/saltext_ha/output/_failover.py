"""The answers of ``ha.minion_config`` and ``ha.failover_safe`` as text."""

from __future__ import annotations

from collections.abc import Iterable

from saltext_ha.output._text import Data, Screen, clean, count, id_list, shorten


def config(data: Data, screen: Screen) -> list[str]:
    """The file, to be written unchanged: notes are comments in it."""
    # Its own engine made the text from checked addresses and numbers; clean() would remove the
    # indentation.
    lines = str(data.get("text") or "").splitlines()
    notes = [clean(note) for note in data.get("notes") or ()]
    for finding in data.get("findings") or ():
        parts = [clean(finding.get(name)) for name in ("code", "title", "detail", "fix")]
        notes.append("{} {}: {}; {}".format(*parts))
    return [*lines, *(f"# {note}" for note in notes)]


LISTED = 5  # minions that a reason names; in a pipe, and in the JSON, up to a thousand
LONGEST = 300


def safe(data: Data, screen: Screen) -> list[str]:
    """A verdict for each master, and below it the reasons why not."""
    lines = []
    for row in data.get("masters") or ():
        reasons = row.get("reasons") or ()
        lines.append(f"without {clean(row.get('name'))}: {_verdict(row, reasons, screen)}")
        for reason in reasons:
            lines += _reason(reason, screen)
    minions = data.get("minions") or {}
    answered, known = minions.get("answered"), minions.get("accepted")
    return [*lines, f"{clean(answered)} of {clean(known)} accepted minions answered"]


def _verdict(row: Data, reasons: Iterable[Data], screen: Screen) -> str:
    if row.get("safe"):
        return screen.paint("safe", "ok")
    known = any(not reason.get("unknown") for reason in reasons)
    if known:
        return f"{screen.paint('NO', 'error')}, not all would go on"
    return f"{screen.paint('NO', 'unknown')}, it is not known whether all would go on"


def _reason(reason: Data, screen: Screen) -> list[str]:
    style = "unknown" if reason.get("unknown") else "differ"
    head = screen.paint(clean(reason.get("about")), style)
    ids = reason.get("minions") or ()
    text = shorten(clean(reason.get("text")), LONGEST)
    if ids:
        number = int(reason.get("count") or len(ids))
        who = id_list(ids, LISTED, screen, number)
        text = f"{count(number, 'minion')} ({who}): {text}"
    return [f"  {head}  {text}", f"      → {shorten(clean(reason.get('fix')), LONGEST)}"]
