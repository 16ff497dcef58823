"""The answer of ``ha.lint`` as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from saltext_ha.common.errors import NO_SENSE
from saltext_ha.output._text import LISTED, Data, Screen, clean, count, left_out, shorten

LONGEST_DETAIL = 300


def render(data: Data, screen: Screen) -> list[str]:
    """Lines for the result of :func:`saltext_ha.lint.check.answer`."""
    lines = [
        f"{screen.paint(clean(name), 'unknown')} could not be looked at: {clean(why)}"
        for name, why in (data.get("unknown") or {}).items()
    ]
    findings = data.get("findings") or []
    explained: set[tuple[str, str]] = set()
    for finding in findings[:LISTED]:
        lines += _finding(finding, explained, screen)
    return [*lines, *left_out(len(findings) - LISTED, "finding"), _summary(data)]


def of_minion(minion: str, data: Data, names: Mapping[str, str], screen: Screen) -> list[str]:
    """As :func:`render`, for an answer that may be anything."""
    try:
        # salt-call calls it local.
        return render(data if minion == "local" else {**data, "asked": [minion]}, screen)
    except NO_SENSE:
        return [f"{clean(minion)}: {screen.paint('its answer makes no sense', 'unknown')}"]


def _finding(finding: Data, explained: set[tuple[str, str]], screen: Screen) -> list[str]:
    severity = clean(finding.get("severity"))
    style = {"error": "error", "warning": "differ"}.get(severity, "")
    place = clean(finding.get("file"))
    if finding.get("line"):
        place = f"{place}:{clean(finding['line'])}"
    head = [clean(finding.get("on")), place or "not set", clean(finding.get("option"))]
    code = clean(finding.get("code"))
    lines = [f"{screen.paint(f'{code} {severity}', style)}  {'  '.join(filter(None, head))}"]
    title, detail = clean(finding.get("title")), clean(finding.get("detail"))
    lines += _wrapped(f"{title} · {shorten(detail, LONGEST_DETAIL)}" if detail else title, screen)
    # A text that is the same for many findings is shown once.
    if (code, title) not in explained:
        explained.add((code, title))
        lines += _wrapped(clean(finding.get("why")), screen)
        lines += _wrapped(f"→ {clean(finding.get('fix'))}", screen)
    return lines


def _wrapped(text: str, screen: Screen) -> list[str]:
    width = max(40, min(screen.width, 120))
    return textwrap.wrap(
        text, width, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


def _summary(data: Data) -> str:
    asked = ", ".join(clean(name) for name in data.get("asked") or []) or "nobody"
    counts = data.get("counts") or {}
    found = [
        count(int(counts[severity]), word)
        for severity, word in (("error", "error"), ("warning", "warning"), ("info", "hint"))
        if counts.get(severity)
    ]
    if data.get("ignored"):
        found.append(f"{clean(data['ignored'])} ignored")
    only = ", ".join(clean(code) for code in data.get("only") or [])
    nothing = f"none of {only}" if only else "no known traps"
    return f"{asked}: {', '.join(found) or nothing}"
