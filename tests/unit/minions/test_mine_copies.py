"""Which copies of peers are taken, and what of their answers makes no sense; without a cache."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.minions.mine_copies import (
    LARGEST,
    MOST_BYTES,
    PAGE,
    Copies,
    Offer,
    Taken,
    newer,
    read_changes,
    read_copies,
)
from saltext_ha.minions.mines import TOLERANCE
from saltext_ha.minions.minion_cache import GRAINS, MINE, Name, unpacked, why_not

WEB1: Name = (MINE, "web1")
WEB2: Name = (MINE, "web2")
NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("offered", "mark", "at", "taken", "is_newer"),
    [
        (Offer(50.0, 1), 0, 0.0, None, True),
        (Offer(50.0, 1), 7, 50.0 - TOLERANCE - 0.1, None, True),
        (Offer(50.0, 1), 7, 50.0 - TOLERANCE, None, False),
        (Offer(50.0, 1), 7, 60.0, None, False),
        # What m2 sent, and wrote anew since.
        (Offer(50.0, 1), 7, 49.0, Taken("m2", 1, 7), False),
        (Offer(50.0, 2), 7, 49.0, Taken("m2", 1, 7), True),
        (Offer(40.0, 2), 7, 49.0, Taken("m2", 1, 7), False),
        # What another one sent.
        (Offer(50.0, 2), 7, 49.0, Taken("m3", 1, 7), False),
    ],
)
def test_a_copy_is_taken_if_it_is_newer_than_the_one_here(
    offered: Offer, mark: int, at: float, taken: Taken | None, is_newer: bool
) -> None:
    assert newer(offered, "m2", mark, at, taken) is is_newer


def test_what_changed_since_is_told_in_pages() -> None:
    copies = Copies()
    names = [(MINE, f"web{n}") for n in range(PAGE + 3)]
    copies.look(dict.fromkeys(names, 1))
    first, upto, more = copies.since("", 0)
    assert ([name for name, _ in first], more) == (names[:PAGE], True)
    second, upto, more = copies.since(copies.epoch, upto)
    assert ([name for name, _ in second], more) == (names[PAGE:], False)
    assert copies.since(copies.epoch, upto) == ([], upto, False)
    copies.look({**dict.fromkeys(names[:-1], 1), names[5]: 2})
    changed, upto, more = copies.since(copies.epoch, upto)
    assert (changed, more) == ([(names[5], 2)], False)
    # After a restart of this engine, its peers begin anew.
    assert len(copies.since("of an earlier process", upto)[0]) == PAGE


def test_a_page_is_told_without_a_look_at_all_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies()
    names = [(MINE, f"web{n}") for n in range(3 * PAGE)]
    copies.look(dict.fromkeys(names, 1))
    copies.since(copies.epoch, 0)
    monkeypatch.setattr(copies, "_copies", None)
    for n in (0, PAGE, 2 * PAGE):
        page, upto, more = copies.since(copies.epoch, n)
        assert ([name for name, _ in page], more) == (names[n : n + PAGE], n < 2 * PAGE)
        assert upto == n + PAGE


def test_whom_a_copy_came_from_is_forgotten_when_somebody_writes_it() -> None:
    copies = Copies()
    copies.took(WEB1, Taken("m2", 5, 6))
    assert copies.taken(WEB1) == Taken("m2", 5, 6)
    assert copies.since("", 0)[0] == [(WEB1, 6)]
    copies.look({WEB1: 6})
    assert copies.taken(WEB1)
    copies.look({WEB1: 8})
    assert copies.taken(WEB1) is None
    copies.look({})
    assert copies.mark(WEB1) == 0


def test_ages_count_from_the_question() -> None:
    answer = {"changed": [["mine", "web1", 3.0, 9], ["grains", "web1", 1e300, 9, "of later"]]}
    assert read_changes(answer, NOW) == {WEB1: Offer(NOW - 3, 9), (GRAINS, "web1"): Offer(1.0, 9)}


@pytest.mark.parametrize(
    "changed",
    [
        None,
        {},
        [["mine", "web1", 3.0]],
        [["pillar", "web1", 3.0, 9]],
        [["mine", "../web1", 3.0, 9]],
        [["mine", "", 3.0, 9]],
        [["mine", "x" * 254, 3.0, 9]],
        [["mine", "web1", -3.0, 9]],
        [["mine", "web1", float("nan"), 9]],
        [["mine", "web1", float("inf"), 9]],
        [["mine", "web1", 3, 9]],
        [["mine", "web1", 3.0, "9"]],
        [["mine", "web1", 3.0, 9]] * (PAGE + 1),
    ],
)
def test_changes_that_make_no_sense_are_refused(changed: Any) -> None:
    with pytest.raises(InvalidRecord):
        read_changes({"changed": changed}, NOW)


def test_copies_of_one_answer_have_an_upper_limit() -> None:
    names = [(MINE, "web1"), (MINE, "web2"), (MINE, "web3")]
    copies = [[*name, 3.0, 9, bytes(MOST_BYTES // 2)] for name in names]
    assert len(read_copies({"copies": copies[:2]}, names, NOW)) == 2
    with pytest.raises(InvalidRecord, match="more than"):
        read_copies({"copies": copies}, names, NOW)


@pytest.mark.parametrize(
    "copies",
    [
        None,
        [["mine", "web1", 3.0, 9, "text"]],
        [["mine", "web2", 3.0, 9, b"\x80"]],
        [["mine", "web1", 3.0, 9, b"\x80"]] * 2,
        [["mine", "web1", 3.0, 9, b"\x80" + bytes(LARGEST)]],
    ],
)
def test_copies_that_make_no_sense_are_refused(copies: Any) -> None:
    with pytest.raises(InvalidRecord):
        read_copies({"copies": copies}, [WEB1], NOW)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x80\x80",
        msgpack.packb(["web1"]),
        msgpack.packb({1: "web1"}),
        msgpack.packb({"a": msgpack.ExtType(5, b"x")}),
        msgpack.packb({"a": msgpack.ExtType(78, b"no time")}),
        msgpack.packb({"a": msgpack.ExtType(79, b"no constant")}),
        b"\x81\xa1a" + b"\x91" * 1022 + b"\x90",  # as grains before 3008, one level more
        b"\x81\xa1a" + b"\x91" * 200_000,
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
    ],
)
def test_contents_that_salt_would_not_store_are_refused(packed: bytes) -> None:
    with pytest.raises(InvalidRecord):
        unpacked(packed)


def test_which_caches_can_be_shared() -> None:
    assert why_not({}) == ""
    assert why_not({"cache": "localfs", "minion_data_cache": True}) == ""
    assert why_not({"minion_data_cache": False}) == "minion_data_cache is off"
    assert why_not({"cache": "redis"}).startswith("cache is redis, ")
