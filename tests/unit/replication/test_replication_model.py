"""
Random histories of a group of masters: crashes, partitions, lost and restored replicas, key folders
that vanish, masters that come and go; invariants I1-I5, I7 and I8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from saltext_ha.replication.placement import accepted_keys
from saltext_ha.replication.record import ACCEPTED, DECISIONS, DELETED, OBSERVATIONS, REJECTED
from tests.unit.replication.model import IDS, KEYS, Backup, Crash, Master, exchange

MOST = 5
masters = st.integers(0, MOST - 1)
minion_ids = st.sampled_from(sorted(IDS))
keys = st.sampled_from(sorted(KEYS))

Pair = tuple[str, bytes]


class Event:
    """One act of an operator, and the acts that this operator's store reflected."""

    def __init__(self, kind: str, pairs: set[Pair], past: frozenset[Event]) -> None:
        self.kind = kind
        self.pairs = pairs
        self.past = past


Events = frozenset[Event]


@dataclass
class Member:
    """A master, what its replica has been told, and what its store reflects."""

    master: Master
    told: Events = frozenset()
    shown: Events = frozenset()
    backup: tuple[Backup, Events] | None = field(default=None, repr=False)

    def act(self, kind: str, pairs: set[Pair]) -> None:
        if pairs:
            self.shown |= {Event(kind, pairs, self.shown)}

    def notice(self) -> None:
        self.master.settle()
        self.told = self.shown = self.told | self.shown

    def state(self, pair: Pair) -> str | None:
        record = self.master.replica.get(pair[0]).get(pair[1])
        return record.state if record else None

    def live(self, minion_id: str) -> set[Pair]:
        """The keys of an id that this master knows: salt-key deletes and rejects ids, not keys."""
        records = self.master.replica.get(minion_id)
        return {
            (minion_id, key)
            for key, record in records.items()
            if record.state not in (None, DELETED)
        }

    def explain(self, ids: Iterable[str]) -> None:
        """The acts that lead from what the replica saw last to what the store shows."""
        for minion_id in ids:
            before = self.master.replica.applied(minion_id).stored
            now = self.master.store.stored(minion_id)
            live = self.live(minion_id)
            spared = {
                pair for pair in live if pair[1] in now.denied and self.state(pair) in OBSERVATIONS
            }
            lost = {(minion_id, key) for key in before.denied - now.denied} & live
            if not now.denied - before.denied:
                self.act("revoke", {p for p in lost if self.state(p) in OBSERVATIONS})
            if now.slot == before.slot:
                continue
            pair = (minion_id, now.key or b"")
            if now.state == ACCEPTED:
                ousted = {(minion_id, before.key or b"")} & live - {pair}
                self.act("revoke", ousted if before.state == ACCEPTED else set())
                self.act("accept", {pair})
            elif now.state == REJECTED:
                self.act("revoke", {pair} | {p for p in live if self.state(p) == ACCEPTED})
            elif before.slot or self.state(pair) in (ACCEPTED, REJECTED):
                undecided = {pair} if self.state(pair) in OBSERVATIONS else set()
                self.act("revoke", live - spared - undecided)


class Group(RuleBasedStateMachine):
    @initialize(count=st.integers(2, MOST), skews=st.lists(st.floats(-30000, 30000), min_size=5))
    def begin(self, count: int, skews: list[float]) -> None:
        self.members = [Member(Master(f"m{n}", skews[n])) for n in range(count)]
        self.away: list[Member] = []
        self.count = count

    def pick(self, number: int) -> Member:
        return self.members[number % len(self.members)]

    @rule(number=masters, minion_id=minion_ids, key=keys)
    def knock(self, number: int, minion_id: str, key: bytes) -> None:
        # Deleted and knocked again between two looks is what a delete event tells; see observer.
        member = self.pick(number)
        member.notice()
        member.master.knock(minion_id, key)

    @rule(number=masters, minion_id=minion_ids, denied=st.booleans())
    def accept(self, number: int, minion_id: str, denied: bool) -> None:
        member = self.pick(number)
        master = member.master
        if denied:
            # It replaces what is in the slot; a rejection there that was never noticed is no fact.
            member.notice()
        before = master.store.slot(minion_id)
        key = master.accept_denied(minion_id) if denied else master.accept(minion_id)
        if key:
            if (
                before
                and before[0] == ACCEPTED
                and (minion_id, before[1]) in member.live(minion_id)
            ):
                member.act("revoke", {(minion_id, before[1])} - {(minion_id, key)})
            member.act("accept", {(minion_id, key)})

    @rule(number=masters, minion_id=minion_ids)
    def reject(self, number: int, minion_id: str) -> None:
        member = self.pick(number)
        accepted = {pair for pair in member.live(minion_id) if member.state(pair) == ACCEPTED}
        held = member.master.replica.applied(minion_id).stored.key
        key = member.master.reject(minion_id)
        if minion_id in member.master.replica.held.all() and key != held:
            accepted -= {(minion_id, held or b"")}  # not seen in an emptied store
        member.act("revoke", {(minion_id, key), *accepted} if key else set())

    @rule(number=masters, minion_id=minion_ids)
    def delete(self, number: int, minion_id: str) -> None:
        member = self.pick(number)
        # As above: what came and went between two looks at the store is no fact.
        member.notice()
        held = minion_id in member.master.replica.held.all()
        if member.master.delete(minion_id) and not held:
            member.act("revoke", member.live(minion_id))

    @rule(number=masters)
    def notice(self, number: int) -> None:
        self.pick(number).notice()

    @rule(one=masters, other=masters, at_once=st.booleans())
    def meet(self, one: int, other: int, at_once: bool = True) -> None:
        a, b = self.pick(one), self.pick(other)
        if a is not b:
            exchange(a.master, b.master, at_once)
            both = a.told | a.shown | b.told | b.shown
            a.told = a.shown = b.told = b.shown = both

    @rule(
        one=masters,
        other=masters,
        ticks=st.integers(0, 60),
        strike_other=st.booleans(),
        at_once=st.booleans(),
    )
    def meet_and_crash(
        self, one: int, other: int, ticks: int, strike_other: bool, at_once: bool
    ) -> None:
        if self.pick(one) is self.pick(other):
            return
        struck = self.pick(other if strike_other else one).master
        struck.fuse.left = ticks
        try:
            self.meet(one, other, at_once)
        except Crash:
            struck.start()
            # How far it came is unknown; a start finishes what was journalled.
            self.meet(one, other, at_once)
        struck.fuse.left = None

    # -- replicas that are lost or old

    @rule(one=masters, other=masters, ticks=st.none() | st.integers(0, 40))
    def lose_replica(self, one: int, other: int, ticks: int | None) -> None:
        member, peer = self.pick(one), self.pick(other)
        if member is peer:
            return
        peer.notice()
        member.told = peer.told
        acts = []
        for minion_id in sorted(IDS):
            slot = member.master.store.slot(minion_id)
            record = peer.master.replica.get(minion_id).get(slot[1]) if slot else None
            decided = record and any(value.state in DECISIONS for value in record.values)
            if slot and slot[0] in DECISIONS and not decided:
                # Nobody knows how old that is: it revokes, and it opens nothing that was closed.
                kind = "accept" if slot[0] == ACCEPTED else "revoke"
                acts.append(Event(kind, {(minion_id, slot[1])}, frozenset()))
        member.told = member.shown = peer.told | set(acts)
        member.master.lose_replica()
        member.master.fuse.left = ticks
        try:
            member.master.adopt(peer.master)
        except Crash:
            member.master.start()
            if member.master.replica.meta.blank:
                member.master.adopt(peer.master)
        member.master.fuse.left = None
        member.notice()

    @rule(number=masters)
    def back_up(self, number: int) -> None:
        member = self.pick(number)
        member.notice()
        if not member.master.replica.held.all():
            member.backup = (member.master.backup(), member.told)

    @rule(number=masters, folders=st.booleans())
    def restore(self, number: int, folders: bool) -> None:
        member = self.pick(number)
        if member.backup is None or member.master.replica.held.all():
            return
        backup, known = member.backup
        member.master.restore(backup, folders)
        member.told = member.shown = known
        member.explain(IDS)
        member.notice()

    # -- key folders that vanish

    @rule(number=masters)
    def unmount(self, number: int) -> None:
        member = self.pick(number)
        member.notice()
        if member.master.replica.held.all():
            return
        decided = set()
        for minion_id in IDS:
            stored = member.master.store.stored(minion_id)
            if stored.state in DECISIONS:
                decided.add(minion_id)
            elif stored.slot or stored.denied:
                member.act("revoke", member.live(minion_id))
        before = {i: member.master.replica.get(i) for i in decided}
        member.master.unmount()
        assert member.master.replica.held.all().keys() == decided
        assert before == {i: member.master.replica.get(i) for i in decided}, "recorded"

    @rule(number=masters)
    def mount(self, number: int) -> None:
        member = self.pick(number)
        member.notice()  # as above: it covers what was done meanwhile
        member.master.mount()

    @rule(number=masters)
    def release(self, number: int) -> None:
        member = self.pick(number)
        held = member.master.replica.held.all()
        member.explain(held)
        member.master.keeper.release("", held)
        member.notice()

    # -- masters that come and go

    @rule(number=masters)
    def remove(self, number: int) -> None:
        if len(self.members) > 2:
            self.away.append(self.members.pop(number % len(self.members)))

    @rule(number=masters)
    def come_back(self, number: int) -> None:
        if self.away and len(self.members) < MOST:
            member = self.away.pop(number % len(self.away))
            member.master.start()
            self.members.append(member)

    @rule(number=masters, joined_first=st.booleans())
    def join(self, number: int, joined_first: bool) -> None:
        if len(self.members) == MOST:
            return
        peer = self.pick(number)
        member = Member(Master(f"m{self.count}"))
        self.count += 1
        if joined_first:
            member.master.lose_replica()  # its engine was never started before
            peer.notice()
            member.master.adopt(peer.master)
            member.told = member.shown = peer.told
        self.members.append(member)

    # -- what is to hold

    def teardown(self) -> None:
        if not hasattr(self, "members"):
            return
        for number in range(len(self.members)):
            self.mount(number)
        for _ in range(2):
            for one in range(len(self.members)):
                for other in range(len(self.members)):
                    self.meet(one, other)
        self.check_same_keys_everywhere()
        self.check_revocations_held()
        self.check_grants_held()
        self.check_no_silent_replacement()
        self.check_repeated_apply_is_idle()
        for member in (*self.members, *self.away):
            member.master.replica.close()

    def about(self, pair: Pair, kind: str) -> list[Event]:
        """The acts about *pair* that the group knows of."""
        known = self.members[0].shown
        return [event for event in known if pair in event.pairs and event.kind == kind]

    def check_same_keys_everywhere(self) -> None:  # I1, I5
        roots = {member.master.replica.records.root for member in self.members}
        assert len(roots) == 1, "replicas differ"
        for minion_id in IDS:
            records = self.members[0].master.replica.get(minion_id).values()
            slots = {member.master.store.slot(minion_id) for member in self.members}
            if len(accepted_keys(records)) > 1:
                continue  # a conflict: each keeps what it has
            assert len(slots) == 1, f"{minion_id}: {slots}"

    def check_revocations_held(self) -> None:  # I2, I3
        for minion_id in IDS:
            for key in KEYS:
                pair = (minion_id, key)
                grants = self.about(pair, "accept")
                stands = any(
                    not any(event in grant.past for grant in grants)
                    for event in self.about(pair, "revoke")
                )
                if stands or not grants:
                    for member in self.members:
                        assert member.master.store.slot(minion_id) != (ACCEPTED, key), (
                            f"{minion_id} is accepted on {member.master.name} against a revocation"
                        )

    def check_grants_held(self) -> None:  # I4, I8
        for minion_id in IDS:
            for key in KEYS:
                pair = (minion_id, key)
                if self.about(pair, "accept") and not self.about(pair, "revoke"):
                    assert self.members[0].state(pair) == ACCEPTED, f"{minion_id} was revoked"

    def check_no_silent_replacement(self) -> None:  # I4
        for member in self.members:
            for pair in member.master.store.replaced:
                assert self.about(pair, "revoke"), f"{pair[0]} was replaced"

    def check_repeated_apply_is_idle(self) -> None:  # I7
        for member in self.members:
            master = member.master
            before = (master.store.writes, master.rotations, master.replica.counter)
            master.settle()
            assert (master.store.writes, master.rotations, master.replica.counter) == before


Group.TestCase.settings = settings(
    max_examples=150,
    # Shrinking a history of this length takes minutes; the one that failed is readable enough.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestGroup = Group.TestCase
