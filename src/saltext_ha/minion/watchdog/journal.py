"""
Which masters this minion was connected to, since when, and why it changed.

It is a file in the minion's cache folder with a line of JSON for every change. The watchdog writes
its moves and the changes that it sees; ``ha.failover`` writes the moves that operators ask for.
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
SEEN = "Salt itself"  # by its alive check; 3008 also at once when a connection breaks


@dataclass(frozen=True)
class RecordedMove:
    """
    One change: when (Unix time), from which master to which, why, and how many seconds it took.

    ``source`` is None at the start of the minion, ``seconds`` if not measured. ``order`` is Salt's
    list of masters after the change (:mod:`saltext_ha.minion.watchdog.order`).
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
        # A minion that is bound to several masters at once has a watchdog, and a file, for each.
        suffix = "".join(char if char.isalnum() or char in ".-" else "_" for char in name)
        self.path = Path(cachedir) / files.FOLDER / f"masters{'-' + suffix if suffix else ''}.jsonl"

    def read(self) -> list[RecordedMove]:
        """All remembered changes, the oldest first."""
        try:
            lines = files.read(self.path).splitlines()
        except OSError:
            return []
        entries = []
        for line in lines:
            # A line that was cut off by a crash is ignored.
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                known = {key: value for key, value in json.loads(line).items() if key in _FIELDS}
                entries.append(RecordedMove(**known))
        return entries

    def add(self, entry: RecordedMove) -> None:
        """Append *entry*, and forget the oldest. :raises OSError: the file cannot be written."""
        known = self.read()
        if len(known) >= 2 * KEEP:
            files.replace(self.path, "".join(map(_line, known[-KEEP:])))
        files.append(self.path, _line(entry))

    def last(self) -> RecordedMove | None:
        """The latest change."""
        return next(reversed(self.read()), None)


def switches(entries: list[RecordedMove], since: float) -> int:
    """How many of *entries* since a Unix time were changes from one master to another."""
    return sum(1 for each in entries if each.at >= since and each.source not in (None, each.target))


def since(entries: list[RecordedMove], current: str, started: float) -> float | None:
    """
    The Unix time since when the minion is connected to the master *current*, by its latest
    *entries*; None if unknown, because the entries are older than its process.

    :param started: the Unix time when the minion's process started.
    """
    found = None
    for each in reversed(entries):
        if each.why.startswith(FAILED):
            continue  # no change of the master
        if each.at < started or each.target != current:
            break
        found = each.at
        if each.why != STARTED:
            break
        # Perhaps only the watchdog started again: then earlier entries tell.
    return found


def _line(entry: RecordedMove) -> str:
    return json.dumps(asdict(entry)) + os.linesep
