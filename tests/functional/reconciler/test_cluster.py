"""Keepers beside Salt's own cluster, which moves the same keys at any moment between ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path

import pytest

from saltext_ha.replication.record import ACCEPTED, DELETED, PENDING
from tests.functional.keepers import KEYS, Master, decided, exchange, shared

pytestmark = pytest.mark.core

ORDERS = pytest.mark.parametrize(
    "order", list(permutations(("salt", "look", "hear"))), ids="-".join
)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[Master, Master]]:
    pair = Master(tmp_path, "m1"), Master(tmp_path, "m2")
    for master in pair:
        master.restart(deleted_by_salt=True)
    yield pair
    for master in pair:
        master.replica.close()


def play(order: Sequence[str], m1: Master, m2: Master, salt: Callable[[], None]) -> None:
    """What happened on *m1* reaches *m2*: by Salt, by a look at its folders, by our message."""
    m1.scan()
    steps = {"salt": salt, "look": m2.settle, "hear": lambda: m2.learn(m1.records())}
    for name in order:
        steps[name]()
    exchange(m1, m2)


def at_rest(m1: Master, m2: Master) -> None:
    """All is the same, and nothing more is written or revoked, whoever looks or talks."""

    def state() -> tuple[object, ...]:
        return tuple(
            (m.records(), m.files(), m.revoked, m.replica.dirty(), m.replica.conflicts())
            for m in (m1, m2)
        )

    before = state()
    assert m1.files() == m2.files()
    assert m1.replica.records.root == m2.replica.records.root
    assert not m1.replica.conflicts()
    exchange(m1, m2)
    exchange(m2, m1)
    assert state() == before


@ORDERS
@pytest.mark.parametrize("state", [ACCEPTED, PENDING])
def test_a_deletion_that_salt_carries_over_too(
    members: tuple[Master, Master], order: tuple[str, ...], state: str
) -> None:
    m1, m2 = members
    m1.knock("web1", state=state)
    exchange(m1, m2)
    m1.remove("web1")
    play(order, m1, m2, lambda: m2.remove("web1"))
    assert m1.files() == m2.files() == {}
    assert m1.state("web1") == m2.state("web1") == DELETED
    # Salt makes a new AES key on m1 only: a minion of m2 would go on with the old one.
    assert m2.revoked == (1 if state == ACCEPTED else 0)
    at_rest(m1, m2)


@ORDERS
def test_an_automatic_acceptance_that_salt_carries_over_too(
    members: tuple[Master, Master], order: tuple[str, ...]
) -> None:
    m1, m2 = members
    m1.knock("web1")
    exchange(m1, m2)
    m1.move("web1", PENDING, ACCEPTED)

    def store() -> None:
        m2.remove("web1")  # as localfs_key does before it writes
        m2.knock("web1", state=ACCEPTED)

    play(order, m1, m2, store)
    assert m1.files() == m2.files() == {(ACCEPTED, "web1"): KEYS[0]}
    assert (m1.revoked, m2.revoked) == (0, 0)
    at_rest(m1, m2)


def test_salt_deletes_in_the_middle_of_our_own_deletion(members: tuple[Master, Master]) -> None:
    m1, m2 = members
    decided(m1, m2, ACCEPTED, DELETED)
    m2.store.between = lambda: m2.remove("web1")
    exchange(m1, m2)
    assert m1.files() == m2.files() == {}
    assert m2.revoked == 1
    at_rest(m1, m2)


def test_a_deletion_while_salt_was_down_here_is_made_up_for(members: tuple[Master, Master]) -> None:
    m1, m2 = members
    shared(m1, m2, "web1", "web2")
    m1.remove("web1")
    m1.scan()
    m2.restart(deleted_by_salt=True)
    exchange(m1, m2)
    assert m2.files() == {(ACCEPTED, "web2"): KEYS[0]}
    assert m2.revoked == 1
    at_rest(m1, m2)
