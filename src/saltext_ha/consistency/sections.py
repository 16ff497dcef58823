"""All sections, in the order in which they are shown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from saltext_ha.common.errors import HaError
from saltext_ha.consistency import access, clock, master_key, options, roots, running, versions
from saltext_ha.consistency.section import Section

#: Sections that each master can answer alone.
OF_MASTERS: Mapping[str, Section] = {
    section.name: section
    for section in (
        master_key.SECTION,
        access.SECTION,
        options.SECTION,
        roots.SECTION,
        versions.SECTION,
        running.SECTION,
    )
}
KEYS = "keys"
ROOTS, RUNNING = roots.SECTION.name, running.SECTION.name
KEYS_QUESTION = "Do they have the same minion keys in the same states?"
#: All of them, with the keys and the clock, which one master cannot answer alone.
NAMES: tuple[str, ...] = (KEYS, *OF_MASTERS, clock.NAME)


def select(only: Any) -> tuple[str, ...]:
    """
    The sections that *only* names: a text (``keys,access``), a list of texts, or nothing for all.

    :raises HaError: there is no such section; names the nearest one.
    """
    words = only.split(",") if isinstance(only, str) else only or ()
    if not isinstance(words, Iterable):
        words = (words,)
    wanted = [str(word).strip().lower().replace(" ", "_").replace("-", "_") for word in words]
    for name in filter(None, wanted):
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise HaError(
                f"check_consistency: only={name[:40]!r}: no such section; {hint}"
                f"takes some of: {', '.join(NAMES)}"
            )
    return tuple(name for name in NAMES if name in wanted) or NAMES
