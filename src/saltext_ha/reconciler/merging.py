"""Decides which part of a peer's records counts, and merges it into the records here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from saltext_ha.reconciler.own_writes import Writer
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication.poisoned import mends
from saltext_ha.replication.record import (
    Record,
    decide,
    join,
    merge,
    strictest,
    without_dropped,
)
from saltext_ha.replication.vouching import is_sound, sift


@dataclass
class Merged:
    """What :meth:`.Keeper.learn` did."""

    learned: int = 0
    """How many records changed here."""
    records: list[Record] = field(default_factory=list)
    """Records that this master wrote while merging, to be pushed to the peers."""
    dropped: list[Record] = field(default_factory=list)
    """Records that all masters dropped; the peer must be told so."""
    refused: list[str] = field(default_factory=list)
    """Why records count only in part, or not at all."""
    disowned: dict[str, list[str]] = field(default_factory=dict)
    """See :meth:`.Claims.meet`."""


@dataclass
class Merger:
    """
    Merges one message of a peer into one replica.

    :param horizon: see :meth:`.Dropped.horizon`.
    :param merged: receives dropped and refused records, and those written by this master.
    """

    replica: Replica
    writer: Writer
    horizon: Mapping[str, int]
    merged: Merged

    def merge(self, ours: Records, theirs: Iterable[Record]) -> Iterator[Record]:
        """
        Merge *theirs*, records of one id, with *ours*; inside a transaction only.

        :return: the records that changed; each must be written before the next is asked for.
        """
        changed: Records = {}
        for record in theirs:
            known = changed.get(record.fingerprint) or ours.get(record.fingerprint)
            if known and mends(known, record):
                # The sender is malicious, or was down when the record was rewritten.
                self.merged.refused.append(
                    f"record of {record.minion_id!a}: it claims writes that no master made, and "
                    "says nothing that is not known here"
                )
                continue
            if known and mends(record, known):
                known = None  # a merge would claim as much as before
            sound = self._sifted(record, known)
            if sound is None:
                continue
            rest = without_dropped(sound, known, self.horizon) if self.horizon else sound
            if known is None and not rest.values:
                self.merged.dropped.append(record)
                continue
            after = merge(known, rest) if known else rest
            if known and not after.values:
                after = self._settle_dispute(known, rest, after)
            after = self._named_apart(after, known)
            if after != known:
                changed[record.fingerprint] = after
                yield after
        self.merged.learned += len(changed)

    def _sifted(self, record: Record, known: Record | None) -> Record | None:
        """The part of a peer's *record* that counts; see ``replication/vouching.py``."""
        vouched = self.replica.vouched
        if is_sound(record, vouched.highs):
            return record
        sound, reason = sift(record, known, vouched.highs, vouched.owners)
        if reason:
            self.merged.refused.append(f"record of {record.minion_id!a}: {reason}")
        return sound

    def _settle_dispute(self, ours: Record, theirs: Record, met: Record) -> Record:
        """
        Merge two records that each claim to have overruled all values of the other. Honest masters
        write no such records, and no value would be left. The strictest value holds, as a decision
        of this master, which knew both: so all masters come to the same result.
        """
        self.merged.refused.append(
            f"record of {ours.minion_id!a}: it and the one that is known here each claim to have "
            "overruled the other"
        )
        state = strictest((*ours.values, *theirs.values)).state
        value = self.writer.value(state)
        settled = decide(met, dict(met.context), value)
        self.merged.records.append(settled)
        return settled

    def _named_apart(self, record: Record, known: Record | None) -> Record:
        """
        Rename values of *record* whose dot names a known write that says something else.

        Such a value would be in no history: one write says one thing. It gets a dot of this master,
        and the history names its sender. Which of the two the writer made is unknown: both stay.
        """
        there = known.values if known else ()
        double = [
            value
            for value in record.values
            if value not in there and self.replica.said_otherwise(record, value)
        ]
        if not double:
            return record
        self.merged.refused.append(
            f"record of {record.minion_id!a}: it names a write that said something else"
        )
        anew = [value._replace(dot=self.replica.next_dot()) for value in double]
        values = [value for value in record.values if value not in double] + anew
        context = join(dict(record.context), *({v.dot.node: v.dot.counter} for v in anew))
        apart = record._replace(
            values=tuple(sorted(values)), context=tuple(sorted(context.items()))
        )
        self.merged.records.append(apart)
        return apart
