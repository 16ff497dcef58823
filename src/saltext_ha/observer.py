"""
The observer: turns what changed in this master's key store into records.

Salt tells little about its keys, and people copy files. So what counts is the store itself,
compared with what was last seen or applied; see ``replication/change.py`` for what it means.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from saltext_ha import minion_key
from saltext_ha.errors import InvalidRecord
from saltext_ha.faults import point
from saltext_ha.keystore.base import Content, KeyStore
from saltext_ha.replica import NEVER, Applied, Known, Replica
from saltext_ha.replication import change, plan
from saltext_ha.replication.guard import RevocationGuard
from saltext_ha.replication.placement import ABSENT, Stored, place
from saltext_ha.replication.record import (
    ACCEPTED,
    DECISIONS,
    DELETED,
    OBSERVATIONS,
    PENDING,
    REJECTED,
    Record,
    Value,
    decide,
    join,
    observe,
)

log = logging.getLogger(__name__)

BATCH = 500
# A minion that knocks with ever new keys must not fill the replicas of all masters.
MAX_UNDECIDED = 4
MAX_REFUSED = 1000
# How long after Salt deleted a key its event may come.
EVENT_DELAY = 10.0
# Under such a name Salt 3008 writes a key (tempfile.mkstemp in salt/cache/localfs_key.py), in the
# key folder, and renames it then. Who really has such an id is recorded a moment later.
TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}")

T = TypeVar("T")
Announce = Callable[[str, dict[str, Any]], None]


class Seen(NamedTuple):
    """What :meth:`Observer.observe` found."""

    records: list[Record]
    """Records that changed: to be pushed to the peers."""
    unsettled: list[str]
    """Ids to look at again shortly: a key is being written, or has just gone."""


class Raced(NamedTuple):
    """
    A key that somebody took away while we were moving it, and what they could know of it.

    If that was a deletion, Salt's event says so in a moment; else they moved it as we did.
    """

    key: bytes
    known: Mapping[str, int]
    until: float


class Observer:
    """
    Watches one key store, and writes what changed there to one replica.

    :param name: this master's name, written into values for people to read.
    :param guard: says which mass disappearances to hold back.
    :param announce: told, by tag and data, what reactors may want to know.
    :param adopting: the replica was lost: nothing is recorded or applied before :meth:`adopt`.
    """

    def __init__(
        self,
        store: KeyStore,
        replica: Replica,
        *,
        name: str,
        guard: RevocationGuard,
        adopting: bool = False,
        clock: Callable[[], float] = time.time,
        announce: Announce = lambda tag, data: None,
    ) -> None:
        self.store = store
        self.replica = replica
        self.adopting = adopting
        self.refused: dict[str, str] = {}
        self.missed: set[str] = set()
        """Ids whose change could not be recorded, and which the store does not name again."""
        self._name = name
        self._guard = guard
        self._clock = clock
        self._announce = announce
        self._raced: dict[str, Raced] = {}

    # -- from the store to the replica

    def scan(self) -> Seen:
        """Look at every id whose entry in the store may have changed."""
        return self.observe(self.store.changed())

    def observe(
        self,
        ids: Iterable[str],
        *,
        by: str = "",
        certain: bool = False,
        deleted: bool = False,
        released: bool = False,
    ) -> Seen:
        """
        Record what changed in the store for *ids*; nothing before :meth:`adopt` when it is due.

        :param by: who changed it, as far as known; for people.
        :param certain: believe that an absent key is gone. Otherwise it is only unsettled: Salt
            3008 removes a key for an instant before it writes the new state.
        :param deleted: Salt said that these ids were deleted. A key that is pending as before then
            has knocked again since.
        :param released: an operator confirmed the disappearance of these ids.
        """
        seen = Seen([], [])
        if self.adopting:
            return seen
        ids = list(ids)
        certain = certain or deleted
        with self._remembered(ids):
            if not released:
                self._hold_back(ids, certain)
            for batch in batches(ids):
                self._observe_batch(batch, seen, by, certain, deleted, released)
        return seen

    def adopt(self) -> Seen:
        """
        Take the store's content in after the replica was lost and a peer's knowledge was pulled.

        Where the peers know a decision about a key, it holds, whatever the store shows; the rest
        is recorded as if it had happened now.
        """
        seen = Seen([], [])
        point("adopt.begin")
        ids = [*{*self.store.changed(), *self.missed}]
        with self._remembered(ids):
            for batch in batches(ids):
                self._observe_batch(batch, seen, "", True, False, False)
        with self.replica.transaction():
            self.replica.adopting = False
        self.adopting = False
        point("adopt.done")
        return seen

    @contextlib.contextmanager
    def _remembered(self, ids: Sequence[str]) -> Iterator[None]:
        """On a full disk what was looked at cannot be recorded; it is to be looked at again."""
        try:
            yield
        except BaseException:
            self.missed.update(ids)
            raise
        self.missed.difference_update(ids)

    def _observe_batch(
        self,
        ids: Sequence[str],
        seen: Seen,
        by: str,
        certain: bool,
        deleted: bool,
        released: bool,
    ) -> None:
        found: list[tuple[str, Content, Applied, bytes | None]] = []
        back: list[str] = []
        held = self.replica.held()
        for minion_id in ids:
            content = self.store.read(minion_id)
            if content is None:
                if certain:
                    self._refuse(minion_id, "its key file is unreadable, or no public key in PEM")
                else:
                    seen.unsettled.append(minion_id)
                continue
            applied = self.replica.applied(minion_id)
            unseen = None
            if not content.stored.slot and not content.stored.denied:
                self.refused.pop(minion_id, None)
            if not certain and applied == NEVER and TEMPORARY.fullmatch(minion_id):
                seen.unsettled.append(minion_id)
                continue
            if minion_id in held:
                # A minion that knocks at an emptied store brings nothing back.
                if not released and content.stored.state not in (ACCEPTED, REJECTED):
                    continue
                back.append(minion_id)
                if not released and content.stored.key != applied.stored.key:
                    # Who decides about another key in an emptied store does not see this one.
                    unseen, applied = applied.stored.key, applied._replace(stored=ABSENT)
            if content.stored == applied.stored and not (
                deleted and (_is_pending(applied) or minion_id in self._raced)
            ):
                continue
            if not certain and not released and self._vanished(minion_id, content, applied):
                seen.unsettled.append(minion_id)
                continue
            found.append((minion_id, content, applied, unseen))
        if not found and not back:
            return
        with self.replica.transaction():
            self.replica.unhold(back)
            for minion_id, content, applied, unseen in found:
                seen.records.extend(self._record(minion_id, content, applied, by, unseen))
            point("observe.record")
        point("observe.done")

    def _vanished(self, minion_id: str, content: Content, applied: Applied) -> bool:
        """Whether the id's key is gone, and not by our own hand."""
        if not applied.stored.slot or content.stored.slot:
            return False
        return not applied.dirty or self._wanted(minion_id, applied).slot is not None

    def _hold_back(self, ids: Sequence[str], certain: bool) -> None:
        """Hold back accepted keys that went away, when they are too many to be believed."""
        if not self.replica.any_accepted():
            return
        held = self.replica.held()
        gone = []
        for minion_id in ids:
            applied = self.replica.applied(minion_id)
            if applied.stored.state != ACCEPTED or minion_id in held:
                continue
            content = self.store.read(minion_id)
            if content is None or (content.stored.slot is None and not certain):
                continue
            ours = applied.dirty and self._wanted(minion_id, applied).state != ACCEPTED
            if content.stored.state not in (ACCEPTED, REJECTED) and not ours:
                gone.append(minion_id)
        if not gone:
            return
        accepted = self.replica.counts().get(ACCEPTED, 0) - len(held)
        if self._guard.allows(len(gone), accepted, time.monotonic()):
            return
        log.error(
            "ha held: %d accepted keys are gone from the key store of %s; nothing was recorded. "
            "Bring the folder back, or confirm with: salt-run ha.release",
            len(held) + len(gone),
            self._name,
        )
        with self.replica.transaction():
            self.replica.hold(gone, self._clock())
        point("hold.done")
        self._announce("held", {"master": self._name, "ids": sorted(gone)})

    def _wanted(self, minion_id: str, applied: Applied) -> Stored:
        return place(self.replica.get(minion_id).values(), applied.stored)

    def _record(
        self, minion_id: str, content: Content, applied: Applied, by: str, unseen: bytes | None
    ) -> list[Record]:
        """
        Write down one id's change; inside a transaction.

        :param unseen: a key that is not meant by what is done to the id.
        """
        records = self.replica.get(minion_id)
        now = content.stored
        if applied.dirty and plan.is_between(now, applied.stored, applied.aims):
            return []  # our own apply, interrupted; the next one finishes it
        states = {key: record.state for key, record in records.items() if key != unseen}
        known = dict(contexts(records) if applied.known is None else applied.known)
        changed: dict[bytes, Record] = {}
        raced = self._raced.pop(minion_id, None)
        if now == applied.stored and not _is_pending(applied):
            if raced is None or raced.until < time.monotonic() or raced.key not in records:
                return []
            known[raced.key] = raced.known
            writes = [change.Write(raced.key, DELETED)]
        elif now == applied.stored:
            writes = change.knocked_again(now)
        else:
            writes = change.interpret(applied.stored, now, states)
        for key, state in writes:
            record = changed.get(key) or records.get(key)
            if record is None:
                record = self._new_record(minion_id, key, content, state, records)
                if record is None:
                    continue
            if self.adopting and any(value.state in DECISIONS for value in record.values):
                continue
            value = Value(self.replica.next_dot(), state, self._clock(), by, self._name)
            write = observe if state in OBSERVATIONS else decide
            changed[key] = write(record, known.get(key, {}), value)
            known[key] = join(known.get(key, {}), {value.dot.node: value.dot.counter})
        for record in changed.values():
            self.replica.put(record)
        records.update(changed)
        if applied.dirty and plan.revokes(applied.stored, now):
            self.replica.revocation_due = True  # our own removal, finished before a crash
        # What was refused is looked at again after a restart, to be reported again.
        mark = content.mark if not now.slot or now.key in records else 0
        self._settle(minion_id, now, records, known, applied.aims, mark)
        return list(changed.values())

    def _new_record(
        self,
        minion_id: str,
        key: bytes,
        content: Content,
        state: str,
        records: dict[bytes, Record],
    ) -> Record | None:
        undecided = sum(record.state in OBSERVATIONS for record in records.values())
        if state in OBSERVATIONS and undecided >= MAX_UNDECIDED:
            self._refuse(minion_id, f"more than {MAX_UNDECIDED} undecided keys")
            return None
        text = content.keys[key]
        try:
            minion_key.check_id(minion_id)
            minion_key.check(text)
        except InvalidRecord as exc:
            self._refuse(minion_id, str(exc))
            return None
        self.refused.pop(minion_id, None)
        return Record(minion_id, key, text)

    def _refuse(self, minion_id: str, reason: str) -> None:
        if self.refused.get(minion_id) != reason and len(self.refused) < MAX_REFUSED:
            log.warning("ha refused: id=%s reason=%s", ascii(minion_id), reason)
            self.refused[minion_id] = reason

    def _settle(
        self,
        minion_id: str,
        now: Stored,
        records: dict[bytes, Record],
        known: Known,
        aims: frozenset[tuple[str, bytes]],
        mark: int,
    ) -> None:
        """Note what the store shows, and whether it is still to be changed."""
        shown = Stored(now.state, now.key, now.denied)
        desired = place(records.values(), shown)
        todo = plan.steps(now, desired, frozenset(records), self.store.one_denied)
        if todo:
            # What an apply that was interrupted left behind is still ours.
            aims = aims | now.extra
            self.replica.set_applied(minion_id, Applied(shown, True, known, aims), mark)
        else:
            settled = NEVER if shown == ABSENT else Applied(shown)
            self.replica.set_applied(minion_id, settled, mark)


def _is_pending(applied: Applied) -> bool:
    return applied.stored.state == PENDING and not applied.dirty


def contexts(records: dict[bytes, Record]) -> Known:
    """The causal contexts of an id's records."""
    return {key: dict(record.context) for key, record in records.items()}


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """*items* in lists of at most *size*: what one transaction takes."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
