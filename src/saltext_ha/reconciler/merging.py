"""Which part of a peer's records counts, and how they merge with those known here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saltext_ha.reconciler.writer import Writer
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
    """How many records were news."""
    records: list[Record] = field(default_factory=list)
    """Records that were changed here while merging, to be pushed to the peers."""
    dropped: list[Record] = field(default_factory=list)
    """Records that all masters dropped; the peer is told so."""
    refused: list[str] = field(default_factory=list)
    """What was wrong with records that count in part, or not at all."""
    disowned: dict[str, list[str]] = field(default_factory=dict)
    """See :meth:`.Keeper.meet`."""


@dataclass
class Merger:
    """Merges records of peers into one replica."""

    replica: Replica
    writer: Writer

    def merge(
        self,
        ours: Records,
        theirs: Iterable[Record],
        horizon: Mapping[str, int],
        merged: Merged,
    ) -> Records:
        """
        Write *theirs*, of one id, to the replica; inside a transaction only.

        :param merged: receives what all masters dropped, and what was wrong.
        :return: those that were news, merged with *ours*.
        """
        changed: Records = {}
        for record in theirs:
            known = changed.get(record.fingerprint) or ours.get(record.fingerprint)
            if known and mends(known, record):
                # It is malicious, or from a member that was down when it was rewritten.
                merged.refused.append(
                    f"record of {record.minion_id!a}: it claims writes that no master made, and "
                    "says nothing that is not known here"
                )
                continue
            if known and mends(record, known):
                known = None  # merged, it would claim as much as before
            sound = self._sifted(record, known, merged)
            if sound is None:
                continue
            rest = without_dropped(sound, known, horizon) if horizon else sound
            if known is None and not rest.values:
                merged.dropped.append(record)
                continue
            after = merge(known, rest) if known else rest
            if known and not after.values:
                after = self._settle_dispute(known, rest, after, merged)
            after = self._named_apart(after, known, merged)
            if after != known:
                changed[record.fingerprint] = after
                self.replica.put(after)
        return changed

    def _sifted(self, record: Record, known: Record | None, merged: Merged) -> Record | None:
        """The part of a peer's *record* that counts; see ``replication/vouching.py``."""
        vouched = self.replica.vouched
        if is_sound(record, vouched.highs):
            return record
        sound, reason = sift(record, known, vouched.highs, vouched.owners)
        if reason:
            merged.refused.append(f"record of {record.minion_id!a}: {reason}")
        return sound

    def _settle_dispute(self, ours: Record, theirs: Record, met: Record, merged: Merged) -> Record:
        """
        Each of two records claims to have seen, and overruled, all that the other says. No honest
        masters do that, and nothing would be left. The strictest value holds, as a decision of this
        master, which knew both: so all masters come to the same result.
        """
        merged.refused.append(
            f"record of {ours.minion_id!a}: it and the one that is known here each claim to have "
            "overruled the other"
        )
        state = strictest((*ours.values, *theirs.values)).state
        value = self.writer.value(state)
        settled = decide(met, dict(met.context), value)
        merged.records.append(settled)
        return settled

    def _named_apart(self, record: Record, known: Record | None, merged: Merged) -> Record:
        """
        One write says one thing about one key. A value with the name of a known write that says
        something else would be in no history: it is written again under a name of this master, and
        noted as sent by the sender.

        Which of the two the writer made is unknown here; so both stay.
        """
        there = known.values if known else ()
        double = [
            value
            for value in record.values
            if value not in there and self.replica.said_otherwise(record, value)
        ]
        if not double:
            return record
        merged.refused.append(
            f"record of {record.minion_id!a}: it names a write that said something else"
        )
        anew = [value._replace(dot=self.replica.next_dot()) for value in double]
        values = [value for value in record.values if value not in double] + anew
        context = join(dict(record.context), *({v.dot.node: v.dot.counter} for v in anew))
        apart = record._replace(
            values=tuple(sorted(values)), context=tuple(sorted(context.items()))
        )
        merged.records.append(apart)
        return apart
