"""Which branches are repaired with whom, and that nobody is held up by that for long."""

from __future__ import annotations

from typing import Any

import pytest

from proving.simulation import scenarios
from proving.simulation.group import Settings
from proving.simulation.keys import Keys
from proving.simulation.network import Conditions
from proving.simulation.scenarios import Case
from saltext_ha.replication.digest import FANOUT, bucket_of
from saltext_ha.replication.record import ACCEPTED
from saltext_ha.sync import rounds
from saltext_ha.sync.link import Link
from saltext_ha.sync.repair_leases import EXPECTED, HELD, MANY, SHARED, RepairLeases
from saltext_ha.sync.rounds import PUT_OFF

BUCKET = bucket_of("web1")
BRANCH = BUCKET // FANOUT
OTHER = (BRANCH + 1) % FANOUT


def question(*branches: int, shared: bool = True) -> dict[str, Any]:
    return {"buckets": [[branch * FANOUT, []] for branch in branches], SHARED: shared}


def asked(leases: RepairLeases, peer: str, *branches: int) -> list[int]:
    admitted, _ = leases.admit(question(*branches), peer, 0.0)
    return [bucket // FANOUT for bucket, _ in admitted["buckets"]]


@pytest.fixture
def leases() -> RepairLeases:
    return RepairLeases("m2")


def test_one_link_repairs_a_branch_at_a_time(leases: RepairLeases) -> None:
    assert leases.take([BRANCH, OTHER], "m3", 0.0) == [BRANCH, OTHER]
    assert leases.take([BRANCH, OTHER], "m4", 0.0) == []
    leases.free([OTHER], "m4")
    assert leases.take([OTHER], "m4", 0.0) == [], "only who holds it gives it back"
    leases.free([BRANCH], "m3")
    assert leases.take([BRANCH, OTHER], "m4", 0.0) == [BRANCH]


def test_a_peer_that_died_holds_nobody_up_for_long(leases: RepairLeases) -> None:
    leases.take([BRANCH], "m3", 0.0)
    assert not leases.open_to(BRANCH, "m4", HELD - 1)
    assert leases.open_to(BRANCH, "m4", HELD)
    assert leases.take([BRANCH], "m4", HELD) == [BRANCH]


def test_who_asks_again_and_again_does_not_hold_on_to_it(leases: RepairLeases) -> None:
    """What that peer sends is refused, for instance."""
    for now in range(0, int(HELD), 3):
        leases.admit(question(BRANCH), "m3", now)
    assert leases.take([BRANCH], "m4", HELD) == [BRANCH]


def test_a_branch_that_does_not_exist_is_not_kept(leases: RepairLeases) -> None:
    _, taken = leases.admit(question(*range(FANOUT, FANOUT + 1000)), "m3", 0.0)
    assert taken == []


def test_what_is_being_fetched_is_not_asked_of_others(leases: RepairLeases) -> None:
    leases.take([BRANCH], "m3", 0.0)
    assert asked(leases, "m4", BRANCH, OTHER) == [OTHER]


def test_what_a_peer_is_to_send_is_not_asked_of_others_until_it_came(leases: RepairLeases) -> None:
    _, taken = leases.admit(question(BRANCH, OTHER), "m3", 0.0)
    leases.answered(taken, {"want": [["web1", b"key"]]}, "m3")
    assert asked(leases, "m4", BRANCH, OTHER) == [OTHER]
    assert asked(leases, "m3", BRANCH) == [BRANCH]
    leases.received(["web1"], "m4")
    assert not leases.open_to(BRANCH, "m4", 0.0)
    leases.received(["web1"], "m3")
    assert leases.open_to(BRANCH, "m4", 0.0)


def test_of_two_that_ask_each_other_the_lower_name_goes_first() -> None:
    one, two = RepairLeases("m1"), RepairLeases("m2")
    one.take([BRANCH], "m2", 0.0)
    two.take([BRANCH], "m1", 0.0)
    assert asked(one, "m2", BRANCH) == []
    assert asked(two, "m1", BRANCH) == [BRANCH]


def test_who_must_know_all_is_told_all(leases: RepairLeases) -> None:
    # A master without a replica must not take its keys in before it knows every tombstone.
    leases.take([BRANCH], "m3", 0.0)
    for asks in (question(BRANCH, shared=False), {"buckets": [[BUCKET, []]]}):
        assert leases.admit(asks, "m4", 0.0) == (asks, [])


def test_nonsense_is_left_to_whoever_refuses_it(leases: RepairLeases) -> None:
    for entries in (None, 7, [None, [], [True], ["7"]]):
        asks = {"buckets": entries, SHARED: True}
        assert leases.admit(asks, "m4", 0.0) == (asks, [])


def bytes_of_two_bursts() -> int:
    """What it costs that an operator accepts thousands, and more while they are on their way."""
    case = Case(Keys(1, 40_000, 3), Settings(3), Conditions(), 1)
    pending = case.keys.pending(4_000)
    with case.group() as group:
        for some in (pending[:3_000], pending[3_000:]):
            group.masters[0].decide((index, ACCEPTED) for index in some)
            group.run(1.5)
        group.until_level(60.0)
        return sum(group.network.traffic.bytes[what] for what in scenarios.CAUSED)


def test_what_is_being_pushed_is_not_asked_for_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = bytes_of_two_bursts()
    with monkeypatch.context() as patch:
        patch.setattr(RepairLeases, "expects_more", lambda self, now: False)
        assert patient < 0.8 * bytes_of_two_bursts()
    monkeypatch.setattr(rounds, "MANY", 10**9)  # as if nothing were to be sent
    assert patient < 0.8 * bytes_of_two_bursts()


def test_a_peer_that_pushes_without_end_holds_no_repair_up_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(Keys(1, 2_000, 3), Settings(3), Conditions(), 1)
    monkeypatch.setattr(RepairLeases, "expects_more", lambda self, now: True)
    monkeypatch.setattr(Link, "push", lambda self, records: None)
    assert 0.9 * PUT_OFF < max(scenarios.accept(case, samples=3).last) < 3 * PUT_OFF


def test_few_records_put_nothing_off(leases: RepairLeases) -> None:
    with leases.receiving(MANY - 1, lambda: 0.0):
        assert not leases.expects_more(0.0)
    assert not leases.expects_more(0.0)


def test_more_is_expected_while_many_are_taken_in_and_shortly_afterwards(
    leases: RepairLeases,
) -> None:
    with leases.receiving(MANY, lambda: 60.0):
        assert leases.expects_more(59.0)
    assert leases.expects_more(60.0 + EXPECTED - 0.1)
    assert not leases.expects_more(60.0 + EXPECTED)


def test_a_new_master_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(Keys(1, 2_000, 8), Settings(8), Conditions(), 1)
    claimed = scenarios.cold(case).bytes
    monkeypatch.setattr(RepairLeases, "_take", lambda self, branches, *rest: list(branches))
    monkeypatch.setattr(RepairLeases, "open_to", lambda *arguments: True)
    assert claimed < 0.6 * scenarios.cold(case).bytes
