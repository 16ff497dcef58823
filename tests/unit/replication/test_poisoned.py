"""Records that claim what nobody wrote, and what takes their place."""

from __future__ import annotations

import pytest

from saltext_ha.replication.poisoned import KEPT, is_poisoned, mends, rewritten
from saltext_ha.replication.record import ACCEPTED, DELETED, Dot, Record, Value, decide, merge
from saltext_ha.replication.vouching import MOST_OF_ONE, MOST_WRITES

ACCEPT = Value(Dot("a", 3), ACCEPTED, 0.0, "", "")
CLEAN = Record("web1", b"k", "", (ACCEPT,), (("a", 3),))
FRESH = Value(Dot("new", 1), DELETED, 0.0, "root via ha.rewrite", "m1")


def claiming(record: Record, *context: tuple[str, int]) -> Record:
    return record._replace(context=tuple(sorted({**dict(record.context), **dict(context)}.items())))


MUTED = claiming(CLEAN, ("a", 2**53 - 1))
WIDE = claiming(CLEAN, *((f"n{number}", 1) for number in range(MOST_OF_ONE)))


@pytest.mark.parametrize("record", [MUTED, WIDE])
def test_a_write_under_a_new_name_takes_the_place_of_what_claims_too_much(record: Record) -> None:
    assert is_poisoned(record)
    fresh = rewritten(record, [Dot("a", 2**53 - 2), ACCEPT.dot], FRESH)
    assert not is_poisoned(fresh)
    assert fresh.context == (("a", 3), ("new", 1))
    assert mends(fresh, record)
    # Where the record is as it should be, it is merged as any other.
    assert merge(CLEAN, fresh).values == (FRESH,)
    assert not mends(fresh, CLEAN)


def test_what_claims_too_much_and_says_something_of_its_own_stays_beside() -> None:
    theirs = decide(CLEAN, dict(CLEAN.context), FRESH)
    rejected = decide(MUTED, dict(MUTED.context), ACCEPT._replace(dot=Dot("b", 2**50)))
    # An old copy of a key that was decided about since is no cure.
    assert not mends(CLEAN, rejected)
    assert not mends(MUTED, MUTED)
    assert mends(CLEAN, MUTED)
    assert mends(theirs, WIDE)


def test_limits() -> None:
    assert not is_poisoned(claiming(CLEAN, ("a", MOST_WRITES)))
    assert is_poisoned(claiming(CLEAN, ("a", MOST_WRITES + 1)))
    assert not is_poisoned(claiming(CLEAN, *((f"n{n}", 1) for n in range(MOST_OF_ONE - 1))))
    past = [Dot(f"n{number}", 1) for number in range(2 * KEPT)]
    assert len(rewritten(WIDE, past, FRESH).context) == KEPT
