"""How ``ha.minion_config`` and ``ha.failover_safe`` read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saltext_ha.output._text import Screen, clean


def config(data: Mapping[str, Any], screen: Screen) -> list[str]:
    """The file, to be written as it is: what is to be said besides are comments in it."""
    # Its own engine made the text, out of addresses and numbers that were looked at; clean()
    # would take the indentation away.
    lines = str(data.get("text") or "").splitlines()
    notes = [clean(note) for note in data.get("notes") or ()]
    for finding in data.get("findings") or ():
        parts = [clean(finding.get(name)) for name in ("code", "title", "detail", "fix")]
        notes.append("{} {}: {}; {}".format(*parts))
    return [*lines, *(f"# {note}" for note in notes)]
