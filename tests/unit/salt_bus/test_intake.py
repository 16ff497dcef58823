"""What is let in of an event."""

from __future__ import annotations

import datetime
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltext_ha.common.errors import InvalidRecord
from saltext_ha.keystore import minion_key
from saltext_ha.salt_bus.intake import (
    ANSWER,
    DEEPEST,
    LONGEST_TAG,
    SMALL,
    TOO_MUCH,
    Size,
    fits,
    fitted,
    take,
)

pytestmark = pytest.mark.core

TAG = "salt/auth"


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("tag", "data"),
    [
        (7, {"id": "web1"}),
        (b"salt/auth", {"id": "web1"}),
        ("salt/" + "x" * LONGEST_TAG, {"id": "web1"}),
        *((TAG, data) for data in (None, 7, "text", ["id"])),
        *((TAG, {"id": i}) for i in ("x" * 256, "", 7, None, ["web1"], "../up", "a\x00", ".x")),
    ],
)
def test_what_no_event_is_like(tag: Any, data: Any) -> None:
    assert take(tag, data) is None


def test_only_what_somebody_reads_is_let_in() -> None:
    data = {"id": "web1", "act": "pend", "pub": "a key", "return": {"a": [1, None, 2.5, True]}}
    assert take(TAG, data) == {"id": "web1", "act": "pend", "return": data["return"]}


@pytest.mark.parametrize(
    "value",
    [
        "x" * (ANSWER.characters + 1),
        [1] * (ANSWER.values + 1),
        dict.fromkeys(range(ANSWER.values + 1)),
        {"x" * (ANSWER.characters + 1): 1},
        nested(DEEPEST),
        nested(100_000),
        [["x" * 1000] * 50] * 30,
        object(),
        10**400,
    ],
)
def test_a_field_that_is_too_large(value: Any) -> None:
    assert not fits(value, ANSWER)
    taken = take("salt/job/1/ret/web1", {"id": "web1", "return": value, "data": value})
    assert taken == {"id": "web1", "return": TOO_MUCH}


def test_a_large_highstate_is_an_answer() -> None:
    """What an operator asks for; 300 states were too much once."""
    state = {
        "name": "/etc/nginx/conf.d/site.conf", "changes": {"diff": "-a\n+b\n" * 10},
        "result": True, "comment": "File /etc/nginx/conf.d/site.conf updated",
        "__sls__": "nginx.sites", "__run_num__": 7, "start_time": "12:00:00.123456",
        "duration": 12.3, "__id__": "site.conf",
    }  # fmt: skip
    states = {f"file_|-{n}_|-/etc/nginx/conf.d/{n}_|-managed": state for n in range(1_200)}
    data = {"id": "web1", "return": states}
    assert take("salt/job/1/ret/web1", data) == data


def test_a_time_is_an_answer() -> None:
    value = {"at": datetime.datetime(2026, 1, 31), "day": datetime.date(2026, 1, 31)}
    taken = take("salt/job/1/ret/web1", {"id": "web1", "return": value, "data": value})
    assert taken == {"id": "web1", "return": value}
    many = [datetime.date(2026, 1, 31)] * 10
    assert fits(many, Size(100, 400), dates=True)
    assert not fits(many, Size(100, 300), dates=True)


def test_bytes_take_room_in_a_message() -> None:
    large, small = b"x" * 1000, "x" * 100
    assert fitted({"web1": large, "web2": small}, 500, "?") == {"web1": "?", "web2": small}


@pytest.mark.parametrize("value", [nested(100_000), {"x": nested(100_000)}, ["x" * 1_000_000]])
def test_an_id_that_is_none_is_not_even_shown(value: Any) -> None:
    assert take(TAG, {"id": value}) is None
    with pytest.raises(InvalidRecord) as error:
        minion_key.check_id(value)
    assert len(str(error.value)) < 200


def test_present_minions_are_ids() -> None:
    present = ["web1", 7, "x" * 256, None, "db1"]
    assert take("salt/presence/present", {"present": present}) == {"present": ["web1", "db1"]}


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(plain)
def test_what_fits_is_no_larger_than_it_may_be(value: Any) -> None:
    size = Size(20, 50)
    if fits(value, size):
        assert len(msgpack.packb(value)) <= 9 * (2 * size.values + 1) + 4 * size.characters


def test_nothing_is_left_out_of_what_is_proper() -> None:
    assert fits({"findings": [{"code": "HA101", "detail": "x" * 300}] * 10}, SMALL)


def test_the_largest_make_room_for_the_others() -> None:
    answers = {"evil": ["x" * 300] * 100, "bad": ["x" * 300] * 50, "web1": "fine", "web2": "fine"}
    assert fitted(answers, 100_000, {}) == answers
    assert fitted(answers, 20_000, {"error": "no"}) == {
        **answers,
        "evil": {"error": "no"},
    }
    both = fitted(answers, 1_000, None)
    assert both == {"evil": None, "bad": None, "web1": "fine", "web2": "fine"}
    assert len(msgpack.packb(both)) <= 1_000
