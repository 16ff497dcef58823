"""
The short way of ids of which nothing is known and that show one sound key: nearly all of a first
pass.

It writes the rows that :meth:`.Observer.see` and :meth:`.Reconciler._record_one` would write, for
a third of their work: of such an id nothing can be held, gone, back, or left by a move. All others
go the long way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from saltext_ha.keystore.base import TEMPORARY, Content, KeyStore
from saltext_ha.reconciler.newcomers import Newcomers
from saltext_ha.reconciler.observer import Observer
from saltext_ha.reconciler.own_writes import MINION, Writer
from saltext_ha.reconciler.refused import RefusedIds
from saltext_ha.reconciler.task import Task
from saltext_ha.replica.replica import Replica
from saltext_ha.replica.row_cache import FirstLook
from saltext_ha.replication.record import DECISIONS, PENDING, Record


@dataclass(kw_only=True)
class FirstLooks:
    """The short way of one key store and one replica."""

    store: KeyStore
    replica: Replica
    refused: RefusedIds
    newcomers: Newcomers
    observer: Observer
    writer: Writer

    def see(self, ids: Iterable[str], task: Task) -> dict[str, Content]:
        """Look at *ids*, a batch of *task*: what those that can go the short way show."""
        seen: dict[str, Content] = {}
        if task.adopted or task.blind or task.revise or self.replica.held.count:
            return seen
        for minion_id in ids:
            if self.replica.is_known(minion_id) or TEMPORARY.fullmatch(minion_id):
                continue
            content = self.store.read(minion_id, task.certain)
            if content is None or content.junk:
                continue
            state, key, denied, extra = content.stored
            if not (state and key) or denied or extra:
                continue
            if self.refused.new_record(minion_id, key, content.keys[key], state, ()) is None:
                continue
            if state in DECISIONS:
                self.newcomers.discard(minion_id)
            elif not self.newcomers.admit(minion_id):
                continue
            seen[minion_id] = content
        return seen

    def record(self, seen: Mapping[str, Content], task: Task) -> list[Record]:
        """Record what :meth:`see` has found; inside a transaction."""
        first = []
        for minion_id, content in seen.items():
            state, key, *_ = content.stored
            if state and key:
                by = MINION if state == PENDING else self.observer.by(task.by, minion_id, state)
                value = self.writer.value(state, by)
                record = Record(minion_id, key, content.keys[key], (value,), (value.dot,))
                first.append(FirstLook(record, content.stored, content.mark))
        self.replica.add(first)
        return [each.record for each in first]
