"""
Previews what masters would show if each knew what all of them know; nothing is stored.

The preview uses the real merge and placement, so reality differs from it only by what happens in
between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from saltext_ha.replication import plan
from saltext_ha.replication.placement import ABSENT, Stored, accepted_keys, place
from saltext_ha.replication.record import Record, merge

Records = Mapping[bytes, Record]


class SideKnowledge(NamedTuple):
    """One side's knowledge of an id: the records by fingerprint, and what its store shows."""

    records: Records
    shown: Stored


class SideChange(NamedTuple):
    """What the store of one side shows for an id, and what it would show."""

    side: str
    minion_id: str
    before: Stored
    after: Stored


NOTHING = SideKnowledge({}, ABSENT)


def joined(sides: Iterable[Records]) -> dict[bytes, Record]:
    """All that any of *sides* knows of one id."""
    records: dict[bytes, Record] = {}
    for side in sides:
        add(records, side.values())
    return records


def add(known: dict[bytes, Record], records: Iterable[Record]) -> None:
    """Merge *records* of one id into *known*, its records by fingerprint."""
    for record in records:
        ours = known.get(record.fingerprint)
        known[record.fingerprint] = merge(ours, record) if ours else record


def settled(records: Records, shown: Stored, one_denied: bool) -> Stored:
    """
    What a store that shows *shown* will show when *records* are applied to it.

    :param one_denied: the store holds only one denied key an id.
    """
    wanted = place(records.values(), shown)
    todo = plan.steps(shown, wanted, frozenset(records), one_denied)
    return plan.outcome(shown, wanted, todo, one_denied) if todo else shown


def meeting(
    sides: Mapping[str, Mapping[str, SideKnowledge]], one_denied: Mapping[str, bool]
) -> tuple[list[SideChange], list[str]]:
    """
    What changes on which side if *sides* (name → id → what is known) exchange their records.

    :param one_denied: name of a side → as :func:`settled` takes it.
    :return: the changes by id, and the ids that will be in conflict.
    """
    changes, conflicts = [], []
    for minion_id in sorted({minion_id for side in sides.values() for minion_id in side}):
        known = {name: side.get(minion_id, NOTHING) for name, side in sides.items()}
        records = joined(entry.records for entry in known.values())
        if len(accepted_keys(records.values())) > 1:
            conflicts.append(minion_id)
        for name, entry in known.items():
            after = settled(records, entry.shown, one_denied[name])
            if after != entry.shown:
                changes.append(SideChange(name, minion_id, entry.shown, after))
    return changes, conflicts
