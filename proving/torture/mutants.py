"""
The product with one of its guards taken out: torture must go red on each of them.

A mutant is made in the process of an engine only, see :mod:`proving.torture.engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proving.torture.history import History
from saltext_ha.engine import startup
from saltext_ha.keystore import revoke as revoking
from saltext_ha.once import group_leader
from saltext_ha.once.election import Election, MasterView
from saltext_ha.once.reactions import Reactions
from saltext_ha.once.same_event import Occurrence, Occurrences
from saltext_ha.reconciler import merging, provenance
from saltext_ha.reconciler.observer import LocalChange, Observer, Sighting, contexts
from saltext_ha.reconciler.reconcile import Reconciler
from saltext_ha.reconciler.task import Task
from saltext_ha.reconciler.write_mode import WriteMode
from saltext_ha.replica.dropped import Dropped
from saltext_ha.replica.history import Receipt
from saltext_ha.replica.replica import Records, Replica
from saltext_ha.replication import guard, placement, runs
from saltext_ha.replication.record import ACCEPTED, DELETED, Record


def tombstones() -> None:
    """A deleted key is forgotten, instead of being remembered as deleted."""
    put = Replica.put

    def put_or_forget(self: Replica, record: Record, receipt: Receipt | None = None) -> None:
        put(self, record, receipt)
        if record.state == DELETED:
            self.drop(record)

    vars_of(Replica)("put", put_or_forget)


def causal_context() -> None:
    """The last write by the clock wins."""

    def merge(ours: Record, theirs: Record) -> Record:
        def age(record: Record) -> Any:
            return max((value.at, value.dot) for value in record.values)

        return max(ours, theirs, key=age)

    vars(merging)["merge"] = merge


def too_many() -> None:
    """If keys are gone from the right folder, that is believed, however many they are."""
    vars_of(guard.RevocationGuard)("allows", lambda self, ids, accepted, now: True)


def signature() -> None:
    """A key folder is believed, even if it is another master's."""
    vars_of(provenance.Provenance)("look", lambda self: provenance.OURS)


def apply_journal() -> None:
    """The journal of what is still to be applied is forgotten when the engine ends."""
    begin = Replica.__init__

    def begin_afresh(self: Replica, path: Path | None) -> None:
        begin(self, path)
        self._db.execute("UPDATE stored SET dirty = 0, doing = NULL")

    vars_of(Replica)("__init__", begin_afresh)


def pull_before_push() -> None:
    """After a lost replica the store's content counts as news before any peer was asked."""
    begin = WriteMode.__init__

    def begin_at_once(self: WriteMode, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self.lost = False

    vars_of(WriteMode)("__init__", begin_at_once)


def late_knowledge() -> None:
    """An operator counts as having known all that the engine knows by now."""

    def contexts_of_now(
        self: Observer, minion_id: str, seen: Sighting, records: Records, task: Task
    ) -> LocalChange | None:
        if seen.applied.dirty:
            seen = seen._replace(applied=seen.applied._replace(known=contexts(records)))
        return record(self, minion_id, seen, records, task)

    record = Observer.record
    vars_of(Observer)("record", contexts_of_now)


def horizon() -> None:
    """Nothing at all is remembered of dropped tombstones."""
    vars_of(Dropped)("horizon", lambda self: {})


def rotation() -> None:
    """Key files go, and the AES key stays."""
    vars(startup)["revoke"] = lambda opts, gone, rotate: None


def caches() -> None:
    """Everything is kept of minions whose keys are gone."""
    vars(revoking)["_clean"] = lambda options, gone: None
    vars(revoking)["_clean_all"] = lambda options: None


def quiet_conflicts() -> None:
    """Of two accepted keys one is chosen, so that all masters show the same."""

    def choose(keys: Mapping[str, Iterable[bytes]], current: Any) -> tuple[str, bytes]:
        return ACCEPTED, min(keys[ACCEPTED])

    vars(placement)["_kept_in_conflict"] = choose


def idle_apply() -> None:
    """Every look at the store writes it again."""
    apply = Reconciler.apply

    def again(self: Reconciler, *ids: Any) -> Any:
        with self.replica.transaction():
            self.replica.meta.revocation_due = True
        return apply(self, *ids)

    vars_of(Reconciler)("apply", again)


def every_leader() -> None:
    """Every master leads."""

    def lead(me: MasterView, *known: Any) -> Election:
        return Election(me.name, True, frozenset({me.name}), "")

    vars(group_leader)["decide"] = lead


def hand_over() -> None:
    """Events heard by a master that does not lead count as handed over, and are not."""

    async def taken(self: Reactions, leader: str) -> bool:
        self._pop()
        return True

    vars_of(Reactions)("_hand_over", taken)


def same_event() -> None:
    """Each copy of an event counts as another event."""
    vars_of(Occurrences)("note", lambda self, key, by, at, now: Occurrence(at, {by}))


def remembered_runs() -> None:
    """Earlier runs under a name do not keep another one from running under it."""
    vars(runs)["why_not"] = lambda *known: ""


@dataclass(frozen=True)
class Mutant:
    """
    One guard.

    :param take_out: takes it out of this process.
    :param wanted: whether a history can show that this guard is missing.
    """

    take_out: Callable[[], None]
    wanted: Callable[[History], bool] = lambda history: True


def _drops_and_reverts(history: History) -> bool:
    return history.drops and history.has("restore_machine")


MUTANTS: dict[str, Mutant] = {
    "tombstones": Mutant(tombstones),
    "causal-context": Mutant(causal_context),
    "guard": Mutant(too_many, lambda history: history.has("wipe")),
    "provenance": Mutant(signature, lambda history: history.has("restore_folder")),
    "apply-journal": Mutant(apply_journal),
    "pull-before-push": Mutant(pull_before_push),
    "horizon": Mutant(horizon, _drops_and_reverts),
    "rotation": Mutant(rotation),
    "caches": Mutant(caches),
    "quiet-conflicts": Mutant(quiet_conflicts),
    "idle-apply": Mutant(idle_apply),
    "every-leader": Mutant(every_leader),
    "hand-over": Mutant(hand_over),
    "same-event": Mutant(same_event),
    "remembered-runs": Mutant(remembered_runs),
}


def take_out(name: str) -> None:
    """Take the guard *name* out of this process; nothing when it is empty."""
    if name:
        MUTANTS[name].take_out()


def vars_of(kind: type) -> Callable[[str, Any], None]:
    """Sets attributes of a class that mypy takes for constant."""
    return lambda name, value: setattr(kind, name, value)
