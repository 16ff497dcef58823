"""
Which master was this minion connected to, since when, and why did it change?

One file in the minion's cache folder with a line of JSON for every change. The watchdog writes what
it does and what it sees; ``ha.failover`` writes what it was asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from saltext_ha.minion import files

KEEP = 200
STARTED = "the minion started"
ASKED = "asked for"
FAILED = "could not be started anew"
SEEN = "Salt itself"  # 3008 moves a minion at once when a connection breaks; or its alive check


@dataclass(frozen=True)
class RecordedMove:
    """
    One change: when (Unix time), from which master to which, why, and how many seconds it took.

    ``source`` is None at the start of the minion, ``seconds`` where nobody measured. ``order`` is
    the list of masters that Salt keeps since then (:mod:`saltext_ha.minion.watchdog.order`).
    """

    at: float
    source: str | None
    target: str
    why: str
    seconds: float | None = None
    order: list[str] | None = None


_FIELDS = {each.name for each in fields(RecordedMove)}  # a later release may write more


class Journal:
    """The file; *cachedir* is the minion's."""

    def __init__(self, cachedir: str | Path, name: str = "") -> None:
        # A minion that is bound to several masters at once has one watchdog for each.
        suffix = "".join(char if char.isalnum() or char in ".-" else "_" for char in name)
        self.path = Path(cachedir) / files.FOLDER / f"masters{'-' + suffix if suffix else ''}.jsonl"

    def read(self) -> list[RecordedMove]:
        """All changes that are remembered, the oldest first."""
        try:
            lines = files.read(self.path).splitlines()
        except OSError:
            return []
        entries = []
        for line in lines:
            # A line that was cut off by a crash is none.
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                known = {key: value for key, value in json.loads(line).items() if key in _FIELDS}
                entries.append(RecordedMove(**known))
        return entries

    def add(self, entry: RecordedMove) -> None:
        """
        Append *entry*, and forget the oldest.

        :raises OSError: the file cannot be written.
        """
        known = self.read()
        if len(known) >= 2 * KEEP:
            files.replace(self.path, "".join(map(_line, known[-KEEP:])))
        files.append(self.path, _line(entry))

    def last(self) -> RecordedMove | None:
        """The latest change."""
        return next(reversed(self.read()), None)


def switches(entries: list[RecordedMove], since: float) -> int:
    """How many of *entries* since that Unix time were changes from one master to another."""
    return sum(1 for each in entries if each.at >= since and each.source not in (None, each.target))


def since(entries: list[RecordedMove], current: str, started: float) -> float | None:
    """
    The Unix time since when the minion is with the master *current*, by its latest *entries*; None
    where they do not tell, as they are older than its process.

    :param started: the Unix time when the minion's process started.
    """
    found = None
    for each in reversed(entries):
        if each.why.startswith(FAILED):
            continue  # it stayed what it was
        if each.at < started or each.target != current:
            break
        found = each.at
        if each.why != STARTED:
            break
        # The watchdog alone may have started: then what stands before tells.
    return found


def _line(entry: RecordedMove) -> str:
    return json.dumps(asdict(entry)) + os.linesep
