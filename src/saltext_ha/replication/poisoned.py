"""
Poisoned records: they claim writes that no master made.

A write in a record's context counts as known: if it is made later, it is lost. So a claim of the
2**53-th write of a node mutes that node, and a claim of a thousand nodes makes a record too large
for a message. No group comes near these limits.
"""

from __future__ import annotations

from collections.abc import Iterable

from saltext_ha.replication.record import Context, Dot, Record, Value, join, merge
from saltext_ha.replication.vouching import MOST_OF_ONE, MOST_WRITES

# Most nodes in the context of a rewritten record, which has the last known writes about its key.
KEPT = 256


def is_poisoned(record: Record) -> bool:
    """Whether *record* claims more than any group writes."""
    return len(record.context) > MOST_OF_ONE or any(
        counter > MOST_WRITES for _, counter in record.context
    )


def mends(theirs: Record, ours: Record) -> bool:
    """
    Whether *theirs* replaces the poisoned *ours* instead of being merged with it: *theirs* has all
    values that the merge would have, and is not poisoned.
    """
    if is_poisoned(theirs) or not is_poisoned(ours):
        return False
    return merge(ours, theirs).values == theirs.values


def rewritten(record: Record, known: Iterable[Dot], value: Value) -> Record:
    """
    The record that replaces a poisoned *record*.

    :param known: the remembered writes about its key, the last ones first; on other masters it
        replaces only these.
    :param value: its only value.
    """
    context: Context = {value.dot.node: value.dot.counter}
    for dot in known:
        if dot.counter <= MOST_WRITES and (len(context) < KEPT or dot.node in context):
            context = join(context, {dot.node: dot.counter})
    return record._replace(values=(value,), context=tuple(sorted(context.items())))
