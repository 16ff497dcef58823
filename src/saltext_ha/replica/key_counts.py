"""
Counts the ids in each state and knows those in conflict; updated as keys change.

Pages, scrapes and peers ask every few seconds; to count 100 000 rows takes 25 ms each time.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

from saltext_ha.replication.placement import Stored, accepted_keys
from saltext_ha.replication.record import DENIED, Record


class Tally:
    """The counts of *db*, an open replica.db, which reports each change when it is committed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._states = Counter(
            dict(
                db.execute(
                    "SELECT state, count(*) FROM stored WHERE state IS NOT NULL GROUP BY state"
                )
            )
        )
        self._states[DENIED] = db.execute("SELECT count(*) FROM stored WHERE denied").fetchone()[0]
        rows = db.execute(
            "SELECT id FROM record WHERE state = 'accepted' GROUP BY id HAVING count(*) > 1"
        )
        self._conflicts = {row[0] for row in rows}

    def counts(self) -> dict[str, int]:
        """Number of ids by slot state (accepted, pending, rejected), and with denied keys."""
        return dict(+self._states)

    def conflicts(self) -> list[str]:
        """Ids with two or more accepted keys, sorted."""
        return sorted(self._conflicts)

    def moved(self, before: Stored, after: Stored) -> None:
        """The store showed *before* for an id, and shows *after*."""
        for shown, sign in ((before, -1), (after, 1)):
            if shown.state:
                self._states[shown.state] += sign
            self._states[DENIED] += sign * bool(shown.denied)

    def known(self, minion_id: str, records: Iterable[Record]) -> None:
        """An id has these records now."""
        if len(accepted_keys(records)) > 1:
            self._conflicts.add(minion_id)
        else:
            self._conflicts.discard(minion_id)
