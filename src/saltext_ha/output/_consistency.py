"""The answer of ``salt-run ha.check_consistency`` as text."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from saltext_ha.output._text import (
    LISTED,
    LONGEST_REASON,
    Data,
    Screen,
    clean,
    count,
    display_width,
    distinct,
    duration,
    excerpts,
    inline,
    not_asked,
    number,
    pad,
    shorten,
)

TITLE = 10  # cells of a section's title
WIDEST_PATH = 40
LONGEST_PATH = 300
WIDEST_VALUE = 60


def render(data: Data, screen: Screen) -> list[str]:
    """Lines for the result of :func:`saltext_ha.consistency.result.answer`."""
    unreached: Data = data.get("unknown") or {}
    asked = [clean(name) for name in data.get("masters") or [] if name not in unreached]
    lines = not_asked(data, screen)
    quiet: dict[str, list[str]] = {"same": [], "unknown": []}
    for name, section in (data.get("sections") or {}).items():
        own = {
            master: why
            for master, why in (section.get("unknown") or {}).items()
            if master not in unreached
        }
        title = clean(name).replace("_", " ")
        if section.get("differences") or own:
            lines += _block(title, section, own, screen)
        else:
            quiet["same" if section.get("status") == "same" else "unknown"].append(title)
    if quiet["same"]:
        named = ", ".join(quiet["same"])
        every = len(quiet["same"]) == len(data.get("sections") or {})
        lines.append(f"{', '.join(asked)}: all the same ({named})" if every else f"{named}: same")
    if quiet["unknown"]:
        missing = ", ".join(clean(name) for name in unreached) or "some masters"
        same = f"same on {', '.join(asked)}, " if len(asked) > 1 else ""
        lines.append(f"{', '.join(quiet['unknown'])}: {same}unknown on {missing}")
    ignored = sum(int(part.get("ignored") or 0) for part in (data.get("sections") or {}).values())
    if ignored:
        lines.append(f"{count(ignored, 'difference')} ignored (ha: consistency: ignore)")
    if len(masters := data.get("masters") or []) == 1:
        alone = f"{clean(masters[0])} is alone in its group"
        lines.append(f"{alone}: there is no other master to compare it with")
    return lines or ["nothing was compared"]


def last(answer: Data | None, screen: Screen) -> list[str]:
    """Lines about the last answer, for ``ha.status``; none if nothing is wrong."""
    counts = {
        name: amount for name, amount in ((answer or {}).get("counts") or {}).items() if amount
    }
    stale = clean((answer or {}).get("stale") or "")
    if not answer or not (counts or stale):
        return []
    where = ", ".join(f"{number(amount)} in {clean(name)}" for name, amount in counts.items())
    at = float(answer.get("at") or 0)
    ago = duration(max(0.0, time.time() - at))
    if stale:
        then = f"compared {ago} ago, {where or 'without a difference'}" if at else "not compared"
        return unknown(f"{then}; {shorten(stale, LONGEST_REASON)}", screen)
    return [
        f"{screen.paint('masters differ', 'differ')}: {where}, {ago} ago",
        "  → salt-run ha.check_consistency",
    ]


def unknown(why: str, screen: Screen) -> list[str]:
    """Lines that say that it is unknown whether masters differ."""
    return [
        f"{screen.paint('unknown', 'unknown')} whether masters are the same: "
        f"{shorten(clean(why), 2 * LONGEST_REASON)}",
        "  → salt-run ha.check_consistency",
    ]


def _block(title: str, section: Data, own: Data, screen: Screen) -> list[str]:
    differences = list(section.get("differences") or [])
    lines = [f"{pad(title, TITLE - 1)} {_headline(section, differences, screen)}"]
    shown = differences[:LISTED]
    paths = [display_width(clean(difference.get("path"))) for difference in shown]
    width = max((path for path in paths if path <= WIDEST_PATH), default=0)
    for difference in shown:
        lines += _item(difference, width, screen)
    more = max(0, len(differences) - LISTED) + int(section.get("left_out") or 0)
    if more:
        has = "up to 1000" if section.get("left_out") else "all"
        lines.append(f"  … {number(more)} more (--out=json has {has})")
    for name, why in own.items():
        reason = shorten(clean(why), LONGEST_REASON)
        lines.append(f"  {clean(name)} {screen.paint('unknown')}: {reason}")
    return lines


def _headline(section: Data, differences: list[Data], screen: Screen) -> str:
    counts = section.get("counts")
    notes = sum(difference.get("severity") == "note" for difference in differences)
    drift = len(differences) - notes
    parts = []
    if counts and (drift or not notes):
        amount = int(counts.get("differ", drift))
        text = f"{number(amount)} {'differs' if amount == 1 else 'differ'}"
        parts.append(screen.paint(f"{text} of {number(int(counts.get('of', 0)))}", "differ"))
    elif drift:
        verb = "differs" if drift == 1 else "differ"
        parts.append(screen.paint(f"{number(drift)} {verb}", "differ"))
    if notes:
        parts.append(count(notes, "note"))
    return ", ".join(parts) or screen.paint("unknown")


def _item(difference: Data, width: int, screen: Screen) -> list[str]:
    # The end of a path distinguishes it: a path that is too long gets a line of its own.
    path = shorten(clean(difference.get("path")), LONGEST_PATH)
    values: Data = difference.get("values") or {}
    fix = f"→ {clean(difference['fix'])}" if difference.get("fix") else ""
    pairs = any(_is_pair(value) for value in values.values())
    if pairs:
        parts = [f"{', '.join(names)} {path}: {text}" for text, names in _pairs(values).items()]
    else:
        parts = [pad(path, width), *_grouped(values)]
    line = "  " + "   ".join([*parts, fix] if fix else parts).rstrip()
    alone = display_width(path) > WIDEST_PATH
    if display_width(line) <= screen.width and not alone:
        return [line]
    # Too long for one line: the values share the first line if they fit, else each gets its own.
    line = "  " + "   ".join(parts).rstrip()
    lines = [line]
    if display_width(line) > screen.width or alone:
        deep = "  " if pairs else "      "  # each pair has the path before it
        lines = [f"  {parts[0].rstrip()}", *(f"{deep}{part}" for part in parts[1:])]
    return [*lines, f"      {fix}"] if fix else lines


def _grouped(values: Data) -> list[str]:
    """``m1, m2 [.*]`` and ``m3 absent``: lists masters with the same value together."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(_offset(value) or inline(value), []).append(clean(name))
    cut = excerpts(distinct(groups), WIDEST_VALUE)
    return [f"{', '.join(names)} {text}" for names, text in zip(groups.values(), cut, strict=True)]


def _offset(value: Any) -> str:
    """A clock's offset: ``+3600.0 s (± 0.4 ms)``; empty for anything else."""
    if not isinstance(value, Mapping) or value.keys() != {"offset", "error"}:
        return ""
    error = float(value["error"])
    give_or_take = f" (± {error * 1000:.1f} ms)" if error else ""
    return f"{float(value['offset']):+.1f} s{give_or_take}"


def _is_pair(value: Any) -> bool:
    return isinstance(value, Mapping) and {"file", "running"} <= value.keys()


def _pairs(values: Data) -> dict[str, list[str]]:
    """What file and running master say → the masters of which that is true."""
    said: dict[str, list[str]] = {}
    for name, value in values.items():
        if _is_pair(value):
            texts = [_or_nothing(value["file"]), _or_nothing(value["running"])]
            now, then = excerpts(texts, WIDEST_VALUE)
            text = f"the file says {now}, the running master {then}"
            said.setdefault(text, []).append(clean(name))
    return said


def _or_nothing(value: Any) -> str:
    text = inline(value)
    return "nothing" if text == "absent" else text
