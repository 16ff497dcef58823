"""What is pushed first, and that nothing is forgotten that did not arrive."""

from __future__ import annotations

import pytest

from saltext_ha.common.batches import BATCH
from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING, REJECTED, Dot, Record, Value
from saltext_ha.sync.outbox import Outbox

pytestmark = pytest.mark.core


def record(minion_id: str, state: str, counter: int = 1) -> Record:
    value = Value(Dot("0" * 16, counter), state, 0.0, "", "m1")
    return Record(minion_id, b"key", "text", (value,), (("0" * 16, counter),))


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def ids(outbox: Outbox) -> list[str]:
    return [waiting.record.minion_id for waiting in outbox.first()]


def test_revocations_go_before_decisions_and_these_before_knocks(outbox: Outbox) -> None:
    everything = [
        *(record(f"stranger{number}", PENDING) for number in range(3 * BATCH)),
        *(record("new", ACCEPTED), record("gone", DELETED), record("bad", REJECTED)),
    ]
    outbox.put(everything, 0.0)
    assert ids(outbox) == ["gone", "bad"]
    outbox.arrived(everything[-2:])
    assert ids(outbox) == ["new"]
    outbox.arrived(everything[-3:])
    # A large message of knocks would hold up what comes next.
    assert len(ids(outbox)) == BATCH
    outbox.arrived(everything)
    assert not outbox


def test_what_changed_while_it_was_sent_is_sent_again(outbox: Outbox) -> None:
    old, new = record("web1", ACCEPTED), record("web1", ACCEPTED, 2)
    outbox.put([old], 1.0)
    outbox.put([new], 2.0)
    outbox.arrived([old])
    assert outbox.first() == [(new, 1.0)]


def test_who_was_deleted_and_knocks_at_once_is_still_told_of_first(outbox: Outbox) -> None:
    outbox.put([record("stranger", PENDING), record("web1", DELETED)], 0.0)
    outbox.put([record("web1", PENDING, 2)], 0.0)
    assert ids(outbox) == ["web1"]


def test_what_goes_first_is_kept_longest(outbox: Outbox) -> None:
    outbox.put([record(f"stranger{number}", PENDING) for number in range(20)], 0.0)
    outbox.put([record("web1", DELETED)], 0.0)
    outbox.trim(11)
    assert len(outbox) == 21
    outbox.trim(10)
    assert len(outbox) == 10
    assert ids(outbox) == ["web1"]


def test_for_a_peer_that_is_down_decisions_are_kept(outbox: Outbox) -> None:
    outbox.put([record("stranger", PENDING)], 0.0)
    assert not outbox.has_decisions()
    outbox.put([record("web1", ACCEPTED)], 0.0)
    outbox.forget_knocks()
    assert outbox.has_decisions()
    assert ids(outbox) == ["web1"]
