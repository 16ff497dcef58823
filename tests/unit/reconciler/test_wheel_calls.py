"""Who acts on keys, told by events as salt-master of each release fires them."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.reconciler import wheel_calls
from saltext_ha.reconciler.hints import Hint, read_hint
from saltext_ha.reconciler.wheel_calls import LINGER, LONGEST, MAX_CALLS, ONE_CALL, WheelCalls, name
from saltext_ha.replication.record import ACCEPTED, DELETED, REJECTED

pytestmark = pytest.mark.core


class Bus:
    """Events in the order in which a master's bus carries them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls = WheelCalls(lambda: self.now)
        self._jid = 0

    def new(self, user: Any, fun: Any, *arguments: Any, told: bool = True, **more: Any) -> str:
        self._jid += 1
        data = {"fun": f"wheel.key.{fun}", "jid": str(self._jid), "user": user, **more}
        if told:
            data["fun_args"] = list(arguments)
        self.calls.heard(f"salt/wheel/{self._jid}/new", data)
        return str(self._jid)

    def ret(self, jid: str, user: str, fun: str) -> None:
        data = {"fun": f"wheel.key.{fun}", "jid": jid, "user": user, "return": {}, "success": True}
        self.calls.heard(f"salt/wheel/{jid}/ret", data)

    def who(self, minion_id: str, state: str = ACCEPTED, **how: float) -> str:
        return self.calls.who(minion_id, state, **how)


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.mark.parametrize(
    "arguments",
    [
        ["web1", {"include_denied": False, "include_rejected": False}],
        ["web1"],
        ["web*"],
        ["db1,web1"],
        [["db1", "web[12]"]],
        [{"match": "web1"}],
        [{"minions_pre": ["db1", "web1"]}, {"include_denied": False}],
        [{"match": {"minions_pre": ["web1"]}}],
    ],
)
def test_the_arguments_name_the_minions_in_whatever_form(bus: Bus, arguments: list[Any]) -> None:
    bus.new("alice", "accept", *arguments)
    assert bus.who("web1") == "alice"
    assert bus.who("web10") == ("alice" if arguments == ["web*"] else "")
    assert bus.who("mail1") == ""
    assert bus.who("web1", DELETED) == ""


@pytest.mark.parametrize(
    ("fun", "state"),
    [
        ("accept", ACCEPTED),
        ("accept_dict", ACCEPTED),
        ("gen_accept", ACCEPTED),
        ("reject", REJECTED),
        ("reject_dict", REJECTED),
        ("delete", DELETED),
        ("delete_dict", DELETED),
    ],
)
def test_a_function_is_credited_with_what_it_does(bus: Bus, fun: str, state: str) -> None:
    bus.new("alice", fun, "web1")
    found = {s: bus.who("web1", s) for s in (ACCEPTED, REJECTED, DELETED)}
    assert found == {s: "alice" if s == state else "" for s in found}


def test_the_two_calls_of_3006_and_3007_are_one(bus: Bus) -> None:
    outer = bus.new("alice", "accept", told=False)
    assert bus.who("web1") == ""
    inner = bus.new("UNKNOWN", "accept", "web1", {"include_denied": False})
    assert bus.who("web1") == "alice"
    assert bus.who("web2") == ""
    bus.ret(inner, "UNKNOWN", "accept")
    bus.ret(outer, "alice", "accept")
    # A call that has its arguments takes no others.
    bus.new("UNKNOWN", "accept", "web2")
    assert bus.who("web2") == ""


def test_when_either_may_have_been_meant_both_are_named(bus: Bus) -> None:
    for user in ("bob", "alice"):
        bus.new(user, "accept", told=False)
    bus.new("carol", "reject", told=False)
    bus.new("UNKNOWN", "accept", "web1")
    bus.new("UNKNOWN", "accept", "web2")
    assert bus.who("web1") == bus.who("web2") == "alice or bob"
    assert bus.who("web1", REJECTED) == ""


def test_a_local_call_names_nobody(bus: Bus) -> None:
    bus.new("UNKNOWN", "accept", "web1")
    assert bus.who("web1") == ""


def test_a_call_that_is_over_is_remembered_for_a_moment(bus: Bus) -> None:
    jid = bus.new("alice", "accept", "*")
    bus.now += 60
    assert bus.who("web1") == "alice"
    bus.ret(jid, "alice", "accept")
    bus.now += ONE_CALL + 0.1
    assert bus.who("web1") == "alice"
    assert bus.who("web1", within=ONE_CALL) == ""
    bus.new("bob", "accept", "web1")
    assert bus.who("web1") == "bob"
    assert bus.who("web2") == "alice"
    bus.now += LINGER
    assert bus.who("web2") == ""


def test_a_call_that_never_ends_is_forgotten(bus: Bus) -> None:
    bus.new("alice", "accept", "*")
    bus.now += LONGEST + 1
    assert bus.who("web1") == ""


def test_no_flood_of_calls_fills_the_memory(bus: Bus) -> None:
    for number in range(10 * MAX_CALLS):
        bus.new("alice", "accept", f"web{number}")
        assert len(bus.calls._calls) <= MAX_CALLS
    assert bus.who(f"web{number}") == "alice"
    assert bus.who("web0") == ""


def test_no_call_costs_much_whatever_its_arguments(bus: Bus) -> None:
    """By "pretag" a minion can have Salt fire wheel events, too."""
    for _ in range(MAX_CALLS):
        globs = [f"*{number}*x*" for number in range(20_000)]
        names = [f"web{number}" for number in range(20_000)]
        bus.new("evil", "accept", *globs, *names)
    kept = [(len(call.globs), len(call.names)) for call in bus.calls._calls.values()]
    assert max(kept) <= (wheel_calls.MOST_GLOBS, wheel_calls.MOST_NAMED)
    bus.new("evil", "delete", "*a" * 9, "b" * 300 + "*")
    assert bus.who("aaaaaaaaa", DELETED) == ""
    bus.new("alice", "delete", *(f"web{number}" for number in range(5000)))
    assert bus.who("web4999", DELETED) == "alice"


def test_a_minion_cannot_speak_for_an_operator(bus: Bus) -> None:
    # What a minion sends under a tag of its choice carries its id, unless it is made with "pretag".
    bus.new("alice", "accept", "web1", id="evil", tag="x", data={}, cmd="_minion_event")
    assert bus.who("web1") == ""


@pytest.mark.parametrize("data", [None, "text", [], {}, {"fun": ["x"]}, {"fun": {}}])
def test_what_is_no_wheel_event_is_ignored(bus: Bus, data: Any) -> None:
    bus.calls.heard("salt/wheel/1/new", data)
    bus.calls.heard("salt/wheel", data)
    bus.calls.heard("", data)
    bus.calls.heard("salt/wheel/1/ret", {"fun": "wheel.key.accept"})
    bus.new(["no", "name"], "accept", "web1")
    bus.new("alice", "accept", None, {"a": 1, "b": [None, {"c": 2.5}]})
    bus.calls.heard("salt/wheel/7/new", {"fun": "wheel.config.values", "user": "alice"})
    assert bus.who("web1") == ""


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("alice", "alice"),
        ("DOMAIN\\alice smith", "DOMAIN\\alice smith"),
        ("al\nice\x1b[2J", "al?ice?[2J"),
        ("al\U00040000ice", "al\U00040000ice"),  # in no Unicode yet
        ("x" * 500, "x" * wheel_calls.LONGEST_NAME),
        ("", ""),
        (None, ""),
        ({"name": "alice"}, ""),
    ],
)
def test_a_name_can_be_shown_and_sent(user: Any, shown: str) -> None:
    assert name(user) == shown


@pytest.mark.parametrize("act", ["accept", "accepted"])
def test_hints_name_the_caller_of_the_wheel(bus: Bus, act: str) -> None:
    event = {"id": "web1", "act": act, "result": True}
    assert read_hint("salt/key", event, bus.calls) == Hint("web1", "operator", False)
    jid = bus.new("alice", "accept", "web1")
    assert read_hint("salt/key", event, bus.calls) == Hint("web1", "alice", False)
    deleted = {"id": "web1", "act": "delete", "result": True}
    assert read_hint("salt/key", deleted, bus.calls) == Hint("web1", "operator", True)
    bus.ret(jid, "alice", "accept")
    bus.now += 2
    assert read_hint("salt/key", event, bus.calls) == Hint("web1", "operator", False)


def test_a_knock_decides_nothing_unless_it_is_accepted_at_once(bus: Bus) -> None:
    for act, by in (("pend", ""), ("denied", ""), ("full", ""), (None, ""), ("accept", "minion")):
        event = {"id": "web1", "act": act}
        assert read_hint("salt/auth", event, bus.calls) == Hint("web1", by, False)


@pytest.mark.parametrize("data", [None, [], {}, {"id": None}, {"id": ["web1"]}])
def test_events_without_an_id_are_no_hints(bus: Bus, data: Any) -> None:
    assert read_hint("salt/key", data, bus.calls) is None
    assert read_hint("salt/wheel/1/new", {"id": "web1"}, bus.calls) is None
    assert read_hint("salt/key", {"id": "web1", "act": [1]}, bus.calls) == Hint(
        "web1", "operator", False
    )
