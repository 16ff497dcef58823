"""
What one member decided, and how to undo it: values in, values out.

A key goes back to the last decision of another master. Without such a decision, an accepted or
rejected key becomes pending: its minion is neither accepted nor refused until an operator looks at
it. A deleted key without such a decision stays deleted: its minion knocks when it comes.

A knock that claims to have seen an acceptance or rejection replaces that decision; no honest master
writes such a knock. If only knocks are left, and that member wrote one of them, the key goes back
to the replaced decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from saltext_ha.replication.placement import accepted_keys
from saltext_ha.replication.record import (
    ACCEPTED,
    DECISIONS,
    PENDING,
    REJECTED,
    Dot,
    Record,
    visible,
)

OVERRULED = "decided otherwise since"
GONE = "no longer known here"
OTHERS_TOO = "others decided so, too"
NOBODY_ELSE = "nobody else decided about it; it knocks when it comes"
ANOTHER = "another key of this minion is accepted; end that first"


class Undo(NamedTuple):
    """What becomes of one key: ``target`` is its new state; empty: it stays, and ``why``."""

    target: str
    why: str = ""


def undo(
    key: bytes,
    records: Mapping[bytes, Record],
    dots: Collection[Dot],
    decisions: Sequence[tuple[Dot, str]],
) -> Undo:
    """
    How to undo the writes *dots* of one key of an id.

    :param dots: the writes that no longer count.
    :param decisions: all writes about the key, the last one first.
    """
    record = records.get(key)
    if record is None:
        return Undo("", GONE)
    theirs = [v for v in record.values if v.dot in dots and v.state in DECISIONS]
    if not theirs:
        knocked = not record.decided and any(v.dot in dots for v in record.values)
        replaced = _last_of_others(dots, decisions) if knocked else ""
        return Undo(replaced) if replaced in (ACCEPTED, REJECTED) else Undo("", OVERRULED)
    rest = visible(v.state for v in record.values if v.dot not in dots)
    target = rest if rest in DECISIONS else _last_of_others(dots, decisions)
    if target == record.state:
        return Undo("", OTHERS_TOO)
    if target:
        return Undo(target)
    if record.state in (ACCEPTED, REJECTED):
        return Undo(PENDING)
    return Undo("", NOBODY_ELSE)


def without_conflicts(
    plans: Mapping[bytes, Undo], records: Mapping[bytes, Record]
) -> dict[bytes, Undo]:
    """*plans* for the keys of one id, without those that would have two of them accepted."""
    after = {key: record.state for key, record in records.items()}
    after |= {key: plan.target for key, plan in plans.items() if plan.target}
    accepted = set(accepted_keys(records.values()))
    stay = {key for key, state in after.items() if state == ACCEPTED and key in accepted}
    again = [key for key, state in after.items() if state == ACCEPTED and key not in accepted]
    crowded = again if stay or len(again) > 1 else []
    return {key: Undo("", ANOTHER) if key in crowded else plan for key, plan in plans.items()}


def _last_of_others(dots: Collection[Dot], decisions: Iterable[tuple[Dot, str]]) -> str:
    """The last decision that is not one of *dots*; empty: there is none."""
    return next((s for dot, s in decisions if dot not in dots and s in DECISIONS), "")
