"""Random histories of a group of masters, with crashes and partitions; invariants I1-I5 and I7."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from saltext_ha.replication.placement import accepted_keys
from saltext_ha.replication.record import ACCEPTED, DELETED
from tests.unit.model import IDS, KEYS, Crash, Master, exchange

masters = st.integers(0, 4)
minion_ids = st.sampled_from(sorted(IDS))
keys = st.sampled_from(sorted(KEYS))

Pair = tuple[str, bytes]


class Event:
    """One act of an operator, and the acts that this operator's store reflected."""

    def __init__(self, kind: str, pairs: set[Pair], past: frozenset[Event]) -> None:
        self.kind = kind
        self.pairs = pairs
        self.past = past


class Group(RuleBasedStateMachine):
    @initialize(count=st.integers(2, 5), skews=st.lists(st.floats(-30000, 30000), min_size=5))
    def begin(self, count: int, skews: list[float]) -> None:
        self.masters = [Master(f"m{n}", skews[n]) for n in range(count)]
        # What each store reflects, and what each replica has been told.
        self.shown: list[frozenset[Event]] = [frozenset() for _ in self.masters]
        self.told: list[frozenset[Event]] = [frozenset() for _ in self.masters]
        self.events: list[Event] = []

    def pick(self, number: int) -> int:
        return number % len(self.masters)

    def act(self, number: int, kind: str, pairs: set[Pair]) -> None:
        if pairs:
            event = Event(kind, pairs, self.shown[number])
            self.events.append(event)
            self.shown[number] |= {event}

    @rule(number=masters, minion_id=minion_ids, key=keys)
    def knock(self, number: int, minion_id: str, key: bytes) -> None:
        # Deleted and knocked again between two looks is what a delete event tells; see keeper.
        self.notice(number)
        self.masters[self.pick(number)].knock(minion_id, key)

    @rule(number=masters, minion_id=minion_ids, denied=st.booleans())
    def accept(self, number: int, minion_id: str, denied: bool) -> None:
        n = self.pick(number)
        master = self.masters[n]
        if denied:
            # It replaces what is in the slot; a rejection there that was never noticed is no fact.
            self.notice(number)
        before = master.store.slot(minion_id)
        key = master.accept_denied(minion_id) if denied else master.accept(minion_id)
        if key:
            if (
                before
                and before[0] == ACCEPTED
                and (minion_id, before[1]) in self.live(n, minion_id)
            ):
                self.act(n, "revoke", {(minion_id, before[1])} - {(minion_id, key)})
            self.act(n, "accept", {(minion_id, key)})

    @rule(number=masters, minion_id=minion_ids)
    def reject(self, number: int, minion_id: str) -> None:
        n = self.pick(number)
        accepted = {pair for pair in self.live(n, minion_id) if self.state(n, pair) == ACCEPTED}
        key = self.masters[n].reject(minion_id)
        self.act(n, "revoke", {(minion_id, key), *accepted} if key else set())

    @rule(number=masters, minion_id=minion_ids)
    def delete(self, number: int, minion_id: str) -> None:
        n = self.pick(number)
        # As above: what came and went between two looks at the store is no fact.
        self.notice(number)
        if self.masters[n].delete(minion_id):
            self.act(n, "revoke", self.live(n, minion_id))

    def live(self, n: int, minion_id: str) -> set[Pair]:
        """The keys of an id that this master knows: salt-key deletes and rejects ids, not keys."""
        records = self.masters[n].replica.get(minion_id)
        return {(minion_id, key) for key, record in records.items() if record.state != DELETED}

    def state(self, n: int, pair: Pair) -> str | None:
        return self.masters[n].replica.get(pair[0])[pair[1]].state

    @rule(number=masters)
    def notice(self, number: int) -> None:
        n = self.pick(number)
        self.masters[n].settle()
        self.told[n] |= self.shown[n]
        self.shown[n] = self.told[n]

    @rule(one=masters, other=masters)
    def meet(self, one: int, other: int) -> None:
        a, b = self.pick(one), self.pick(other)
        if a != b:
            exchange(self.masters[a], self.masters[b])
            both = self.told[a] | self.shown[a] | self.told[b] | self.shown[b]
            for n in (a, b):
                self.told[n] = self.shown[n] = both

    @rule(one=masters, other=masters, ticks=st.integers(0, 60), strike_other=st.booleans())
    def meet_and_crash(self, one: int, other: int, ticks: int, strike_other: bool) -> None:
        a, b = self.pick(one), self.pick(other)
        if a == b:
            return
        struck = self.masters[b if strike_other else a]
        struck.fuse.left = ticks
        try:
            self.meet(one, other)
        except Crash:
            struck.start()
            # How far it came is unknown; a start finishes what was journalled.
            self.meet(one, other)
        struck.fuse.left = None

    def teardown(self) -> None:
        if not hasattr(self, "masters"):
            return
        for _ in range(2):
            for one in self.masters:
                for other in self.masters:
                    if one is not other:
                        exchange(one, other)
        self.check_same_keys_everywhere()
        self.check_revocations_held()
        self.check_no_silent_replacement()
        self.check_repeated_apply_is_idle()
        for master in self.masters:
            master.replica.close()

    def check_same_keys_everywhere(self) -> None:  # I1, I5
        roots = {master.replica.records.root for master in self.masters}
        assert len(roots) == 1, "replicas differ"
        for minion_id in IDS:
            records = self.masters[0].replica.get(minion_id).values()
            slots = {master.store.slot(minion_id) for master in self.masters}
            if len(accepted_keys(records)) > 1:
                continue  # a conflict: each keeps what it has
            assert len(slots) == 1, f"{minion_id}: {slots}"

    def check_revocations_held(self) -> None:  # I2, I3
        for minion_id in IDS:
            for key in KEYS:
                pair = (minion_id, key)
                about = [event for event in self.events if pair in event.pairs]
                grants = [event for event in about if event.kind == "accept"]
                stands = any(
                    event.kind == "revoke" and not any(event in grant.past for grant in grants)
                    for event in about
                )
                if stands or not grants:
                    for master in self.masters:
                        assert master.store.slot(minion_id) != (ACCEPTED, key), (
                            f"{minion_id} is accepted on {master.name} against a revocation"
                        )

    def check_no_silent_replacement(self) -> None:  # I4
        for master in self.masters:
            for pair in master.store.replaced:
                assert any(pair in event.pairs and event.kind == "revoke" for event in self.events)

    def check_repeated_apply_is_idle(self) -> None:  # I7
        for master in self.masters:
            before = (master.store.writes, master.rotations, master.replica.counter)
            master.settle()
            assert (master.store.writes, master.rotations, master.replica.counter) == before


Group.TestCase.settings = settings(
    max_examples=200,
    # Shrinking a history of this length takes minutes; the one that failed is readable enough.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestGroup = pytest.mark.timeout(600)(Group.TestCase)
