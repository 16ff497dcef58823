"""What events of the bus tell of minions, and what follows from it when masters put it together."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from lab import wait_for
from saltext_ha.commands.minions.minions import MasterSights
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.minions import locator, presence
from saltext_ha.minions.connections import audience, is_ours, subscribers
from saltext_ha.minions.locator import (
    BOUND,
    PARTLY,
    SEEN,
    SILENT,
    UNKNOWN,
    accounted,
    gone,
    locate,
    reached_by,
)
from saltext_ha.minions.presence import FRESH, Presence, Sight
from tests.tools import IPV6
from tests.unit.clock import Clock

pytestmark = pytest.mark.core

JID = "20260131031245123456"


@pytest.fixture
def ears(clock: Clock) -> Presence:
    return Presence(lambda address, port: (address, port) == ("10.0.0.1", 4506), clock)


def sent(minion_id: str, data: Any = None) -> dict[str, Any]:
    """An event as the master fires it for a minion."""
    return {"id": minion_id, "cmd": "_minion_event", "data": data, "tok": b"", "pretag": None}


def returned(minion_id: str, **more: Any) -> dict[str, Any]:
    return {"id": minion_id, "fun": "test.ping", "return": True, "jid": JID, **more}


def one(ears: Presence) -> Sight:
    return ears.sights(["web1"])["web1"]


@pytest.mark.parametrize(
    ("tag", "data", "by"),
    [
        ("salt/minion/web1/start", sent("web1"), "start"),
        ("salt/ha/minion/web1/failover", sent("web1"), "failover"),
        ("salt/beacon/web1/load/", {"id": "web1", "1m": 3}, "beacon"),
        (f"salt/job/{JID}/ret/web1", returned("web1", schedule="backup"), "schedule"),
        ("salt/ha/minion/web1/bound", sent("web1", {"type": "failover"}), "watchdog"),
    ],
)
def test_what_only_the_daemon_of_a_bound_minion_does_is_sure(
    ears: Presence, clock: Clock, tag: str, data: dict[str, Any], by: str
) -> None:
    ears(tag, data)
    clock.now += 12
    sight = one(ears)
    assert (sight.sure, sight.sure_by, sight.likely) == (12, by, None)


@pytest.mark.parametrize(
    ("tag", "data", "by"),
    [
        ("salt/auth", {"id": "web1", "act": "accept", "result": True}, "auth"),
        (f"salt/job/{JID}/ret/web1", returned("web1"), "return"),  # published by somebody else
        ("salt/ha/made-up", sent("web1"), "event"),
        ("salt/presence/present", {"present": ["web1", "web2"]}, "presence"),  # by its address
        # Of another minion, by its tag; not by the id in the data.
        ("salt/minion/db1/start", sent("web1"), "event"),
    ],
)
def test_what_salt_call_does_too_is_likely(
    ears: Presence, tag: str, data: dict[str, Any], by: str
) -> None:
    ears(tag, data)
    sight = one(ears)
    assert (sight.sure, sight.likely_by) == (None, by)
    assert not ears.sights(["db1"])


@pytest.mark.parametrize(
    ("tag", "data"),
    [
        ("salt/auth", {"id": "web1", "act": "pend"}),
        ("salt/auth", {"id": "web1", "act": "accept", "__peer_id": "m2"}),  # heard by another
        ("salt/minion/web1/start", {"id": "web1"}),  # not from a minion
        (f"salt/job/{JID}/ret/web1", returned("db1")),
        (f"salt/job/{JID}/ret/web1", "text"),
        ("salt/presence/present", {"present": "web1"}),
        ("salt/presence/present", {"present": [None, 5, [], "", "w" * 300]}),
        ("salt/ha/minion/web1/bound", sent("web1", ["web1"])),
        ("salt/key", {"id": "web1", "act": "accept"}),
    ],
)
def test_what_tells_nothing(ears: Presence, tag: str, data: Any) -> None:
    ears(tag, data)
    assert not ears.sights(["web1"])


def test_the_return_of_a_job_that_was_published_here_is_sure(ears: Presence) -> None:
    ears(f"salt/job/{JID}/new", {"jid": JID, "minions": ["web1"]})
    answer = {"type": "list", "masters": ["10.0.0.1", "10.0.0.2"], "connected": True}
    ears(
        f"salt/job/{JID}/ret/web1", returned("web1", fun="ha.current_master", **{"return": answer})
    )
    sight = one(ears)
    assert (sight.sure_by, sight.type, sight.of) == ("job", "list", 2)


@pytest.mark.parametrize(
    ("addresses", "port", "sure"),
    [
        (["10.0.0.1"], 4506, True),
        (["fe80::1", "10.0.0.1"], 4506, True),
        (["10.0.0.2"], 4506, False),
        (["10.0.0.1"], 4508, False),
        (None, 4506, False),
        ([5], None, False),
    ],
)
def test_a_report_goes_to_all_masters_of_a_hot_minion_and_is_about_one(
    ears: Presence, addresses: Any, port: Any, sure: bool
) -> None:
    report = {"type": "list", "addresses": addresses, "port": port, "of": 2, "every": 300}
    ears("salt/ha/minion/web1/bound", sent("web1", report))
    sight = one(ears)
    assert (sight.sure is not None, sight.likely is not None) == (sure, not sure)
    assert (sight.type, sight.of, sight.lasts) == ("list", 2, 660)


def test_no_minion_counts_as_bound_for_long_because_it_was_said_once(ears: Presence) -> None:
    report = {"type": "failover", "every": 86400}
    ears("salt/ha/minion/web1/bound", sent("web1", report))
    sight = one(ears)
    assert sight.lasts == 7200


def test_nonsense_in_a_report_is_not_kept(ears: Presence) -> None:
    for report in (
        {"type": [], "of": -1, "every": float("nan")},
        {"type": "failover", "of": 10**9, "every": 1e9},
        {"type": {}, "of": "2", "every": "x"},
    ):
        ears("salt/ha/minion/web1/bound", sent("web1", report))
        sight = one(ears)
        assert (sight.type, sight.of, sight.lasts) == ("", 0, FRESH)


def test_memory_is_bounded(ears: Presence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "MAX_IDS", 3)
    monkeypatch.setattr(presence, "MAX_JOBS", 2)
    for name in ("a", "b", "c", "a", "d"):
        ears("salt/auth", {"id": name, "act": "accept"})
        ears.accept([name])
    assert sorted(ears.sights("abcd")) == ["a", "c", "d"]
    for jid in ("1", "2", "3"):
        ears(f"salt/job/{jid}/new", {})
    ears("salt/job/1/ret/d", returned("d"))
    ears("salt/job/3/ret/c", returned("c"))
    sights = ears.sights("cd")
    assert (sights["d"].sure, sights["c"].sure_by) == (None, "job")


def test_ids_that_are_made_up_cost_nobody_a_place(
    ears: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "MAX_STRANGERS", 3)
    ears("salt/minion/web1/start", sent("web1"))
    assert ears.newcomers() == ["web1"]
    ears.accept(["web1", "web2"])
    for number in range(9):
        name = f"made-up{number}"
        ears(f"salt/minion/{name}/start", sent(name))
    assert ears.sights(["web1"])
    names = [f"made-up{number}" for number in range(9)]
    assert sorted(ears.sights(names)) == names[-3:]
    assert ears.newcomers() == names[-3:]  # nobody is to be asked about the others
    ears("salt/minion/web1/start", sent("web1"))
    ears(f"salt/minion/{names[-1]}/start", sent(names[-1]))
    assert ears.newcomers() == []


def test_what_is_said_of_a_newcomer_is_kept_when_its_key_is_known(ears: Presence) -> None:
    report = {"type": "failover", "of": 2, "every": 300}
    ears("salt/ha/minion/web1/bound", sent("web1", report))
    before = one(ears)
    ears.accept(["web1"])
    assert one(ears) == before
    found = (before.sure_by, before.type, before.of, before.lasts)
    assert found == ("watchdog", "failover", 2, 660)


def test_no_peer_makes_evidence_last_for_ever() -> None:
    raw = Sight(1.5, "job", None, "", "failover", 2, 1e9).to_wire()
    assert Sight.from_wire(raw).lasts == presence.MOST_LASTING


def test_a_sight_travels() -> None:
    for sight in (Sight(), Sight(1.5, "job", 2.0, "auth", "failover", 2, 660.0)):
        assert Sight.from_wire(sight.to_wire()) == sight


@pytest.mark.parametrize(
    "raw",
    [
        None, [], [1, "job"], [1, "nonsense", None, "", "", 0, 9], ["1", "job", None, "", "", 0, 9],
        [float("inf"), "job", None, "", "", 0, 900], [-1, "job", None, "", "", 0, 900],
        [None, "", None, "", "sorcery", 0, 900], [None, "", None, "", "", True, 900],
        [None, "", None, "", [], 0, 900], [1, ["job"], None, "", "", 0, 900],
    ],
)  # fmt: skip
def test_a_peer_cannot_send_nonsense(raw: Any) -> None:
    with pytest.raises(InvalidRecord, match="malformed sight"):
        Sight.from_wire(raw)


# -- put together


ALL = ("m1", "m2")


def at(age: float, by: str = "job", **more: Any) -> Sight:
    return Sight(sure=age, sure_by=by, **more)


def likely(age: float) -> Sight:
    return Sight(likely=age, likely_by="auth")


@pytest.mark.parametrize(
    ("sights", "state", "masters", "seen"),
    [
        ({}, UNKNOWN, [], None),
        ({"m1": at(12)}, BOUND, ["m1"], 12),
        ({"m1": at(FRESH + 1)}, SILENT, [], FRESH + 1),
        ({"m1": at(1000, lasts=1200.0)}, BOUND, ["m1"], 1000),  # said itself when it reports again
        ({"m1": likely(5)}, SEEN, ["m1"], 5),
        ({"m1": likely(FRESH + 1)}, SILENT, [], FRESH + 1),
        # Nobody knows what it is: both are true.
        ({"m1": at(30), "m2": at(10)}, BOUND, ["m1", "m2"], 10),
        # One at a time: the last one, and not that of salt-call.
        ({"m1": at(30, type="failover"), "m2": at(10)}, BOUND, ["m2"], 10),
        ({"m1": at(30, type="failover"), "m2": likely(1)}, BOUND, ["m1"], 30),
        ({"m1": at(2000, type="failover"), "m2": at(1500)}, SILENT, [], 1500),
        ({"m1": at(2000, type="failover"), "m2": likely(7)}, SEEN, ["m2"], 7),
        ({"m1": at(30, type="list", of=2), "m2": at(10)}, BOUND, ["m1", "m2"], 10),
        ({"m1": at(30, type="list", of=2), "m2": at(FRESH + 1)}, PARTLY, ["m1"], 30),
        ({"m1": at(30, type="list", of=1)}, BOUND, ["m1"], 30),
        ({"m1": at(30, type="list", of=3), "m2": at(1)}, BOUND, ["m1", "m2"], 1),  # third: not ours
    ],
)
def test_where_a_minion_is(
    sights: dict[str, Sight], state: str, masters: list[str], seen: float | None
) -> None:
    row = locate(sights, ALL)
    assert (row["state"], row["masters"], row["seen"]) == (state, masters, seen)
    assert (state == PARTLY) == ("not heard lately on m2" in row["note"])


@pytest.mark.parametrize(
    ("sights", "masters"),
    [
        ({"m1": at(30)}, ["m1"]),
        ({"m1": at(30), "m2": likely(60)}, ["m1"]),
        ({"m1": at(30), "m2": likely(1)}, None),
        # Of a failover minion without the watchdog nobody says what it is: it left m1 for m2.
        ({"m1": at(500), "m2": at(20, by="start")}, None),
        ({"m1": at(30), "m2": at(10)}, None),
        ({"m1": at(FRESH + 1), "m2": at(10)}, ["m2"]),
        ({"m1": at(500, type="failover"), "m2": at(20)}, ["m2"]),
        ({"m1": at(30, type="list", of=2), "m2": at(10)}, ["m1", "m2"]),
        ({"m1": at(30, type="list", of=1), "m2": at(10)}, ["m1", "m2"]),
        # Started since it was said what it is: perhaps with another configuration.
        ({"m1": at(500, type="list", of=2), "m2": at(20, by="start")}, None),
        ({"m1": at(20, type="list", of=2), "m2": at(500, by="start")}, ["m1", "m2"]),
        ({"m1": at(500, type="failover"), "m2": at(20, by="start")}, None),
    ],
)
def test_on_which_master_it_hears_a_job(
    sights: dict[str, Sight], masters: list[str] | None
) -> None:
    assert reached_by(sights, ALL) == masters


@pytest.mark.parametrize(
    ("sights", "note"),
    [
        ({"m1": at(30)}, ""),
        ({"m1": at(30), "m2": likely(60)}, ""),
        ({"m1": at(500, type="failover"), "m2": at(20)}, ""),
        # Salt's own failover of a minion that never said what it is.
        ({"m1": at(500), "m2": at(20, by="start")}, "unless it is hot-hot, it is with m2 only"),
        ({"m1": at(30), "m2": likely(1)}, "has authenticated at or sent something to m2 since"),
        ({"m1": at(30, type="failover"), "m2": likely(1)}, "sent something to m2 since"),
        ({"m1": at(30, type="list", of=2), "m2": at(10)}, ""),
    ],
)
def test_a_doubt_where_it_is_is_told(sights: dict[str, Sight], note: str) -> None:
    """Just where a job would not be published by it alone."""
    row = locate(sights, ALL)
    assert row["state"] == BOUND
    assert note in row["note"]
    assert bool(row["note"]) == (reached_by(sights, ALL) is None)


def test_where_nobody_is_subscribed_nobody_is_bound() -> None:
    def told(connections: int | None, sight: Sight) -> str:
        known = MasterSights()
        row = ["web1", *sight.to_wire()]
        known.add({"connections": connections, "listening": 5.0, "minions": [row]}, {"web1"})
        known.forget_connected()
        return str(locate({"m1": known.sights["web1"]}, ALL)["state"])

    assert told(1, at(500)) == BOUND
    assert told(None, at(500)) == BOUND, "the system does not say"
    assert told(0, at(500)) == SILENT
    assert told(0, at(2)) == BOUND, "it may have come since they were counted"


def test_whom_fewer_connections_than_minions_give_away() -> None:
    new = 10.0
    rows = [
        locate({"m1": at(30)}, ALL),
        locate({"m1": at(500)}, ALL),
        locate({"m1": at(5)}, ALL),
        locate({"m2": at(500, type="list", of=2), "m1": at(40)}, ALL),
        locate({"m2": at(FRESH + 1)}, ALL),
        locate({}, ALL),
    ]
    assert gone(rows, {"m1": 4, "m2": 1}, new) == {}
    assert gone(rows, {"m1": 3, "m2": 1}, new) == {}, "the newest may not have been counted"
    assert gone(rows, {"m1": 2, "m2": 0}, new) == {"m1": 1, "m2": 1}
    assert gone(rows, {"m1": None}, new) == {}, "nobody knows"
    assert gone(rows, {"m1": 9, "m2": 9}, new) == {}


def test_where_the_connections_are_just_those_of_the_minions_each_is_where_it_was_heard() -> None:
    hot, fixed = locate({"m1": at(500), "m2": at(20)}, ALL), locate({"m1": at(30)}, ALL)
    assert accounted([hot, fixed], {"m1": 2, "m2": 1})
    for connections in ({"m1": 1, "m2": 1}, {"m1": 3, "m2": 1}, {"m1": 2, "m2": None}):
        assert not accounted([hot, fixed], connections)
    # A connection may be that of the one of which nothing is known.
    assert not accounted([hot, fixed, locate({}, ALL)], {"m1": 2, "m2": 1})


def test_who_answers_several_masters_at_once_is_bound_to_several(ears: Presence) -> None:
    def known(minion_id: str = "web1") -> tuple[str, int]:
        sight = ears.sights([minion_id])[minion_id]
        return sight.type, sight.of

    start = {"id": "web1", "cmd": "_minion_event"}
    ears("salt/minion/web1/start", start)
    ears.hot({"web1": 2, "stranger": 2})
    assert (known(), ears.sights(["stranger"])) == (("list", 2), {})
    ears("salt/minion/web1/start", start)
    assert known() == ("", 0), "it may have been configured anew"
    said = {"type": "failover", "addresses": [], "port": 4506, "of": 3, "every": 300}
    ears("salt/ha/minion/web1/bound", {**start, "data": said})
    ears.hot({"web1": 2})
    assert known() == ("failover", 3), "what it says of itself counts more"


def test_all_that_is_known_is_in_the_answer() -> None:
    row = locate({"m1": at(30, type="failover"), "m2": likely(1)}, ALL)
    assert row["on"] == {"m1": {"seen": 30, "by": "job"}, "m2": {"seen": 1, "by": "auth"}}
    assert row["by"] == "job"


# -- connections

NOBODYS = 1
"""
A port that nobody has. Any other may be in use at another address of this machine, where tests run
side by side.
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", pytest.param("::1", marks=IPV6)])
def test_connections_to_the_publisher_are_counted(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        opts = {"publish_port": port, "interface": host}
        assert subscribers(opts) == 0
        with socket.create_connection((host, port)), server.accept()[0]:
            assert subscribers(opts) == 1
            assert (subscribers({**opts, "interface": "0.0.0.0"}) or 0) >= 1
            assert subscribers({**opts, "interface": "127.0.0.8"}) == 0
            assert subscribers({**opts, "publish_port": NOBODYS}) == 0
            assert audience(opts) == 1
        wait_for(lambda: audience(opts) == 0, 60, "it has no more connections")
    assert audience({**opts, "publish_port": NOBODYS}) is None, "nobody is seen to listen"


def test_connections_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("saltext_ha.minions.connections.PROC", tmp_path / "absent")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            assert subscribers({"publish_port": port, "interface": "127.0.0.1"}) == 1
            assert audience({"publish_port": port, "interface": "127.0.0.1"}) == 1
    assert audience({"publish_port": NOBODYS}) is None


@pytest.mark.parametrize(
    ("interface", "address", "port", "ours"),
    [
        ("127.0.0.1", "127.0.0.1", 4506, True),
        ("127.0.0.1", "127.0.0.1", 4507, False),
        ("127.0.0.1", "127.0.0.2", 4506, False),
        ("0.0.0.0", "127.0.0.1", 4506, True),
        ("0.0.0.0", "192.0.2.1", 4506, False),
        ("::", "::1", 4506, True),
        ("0.0.0.0", "m1", 4506, False),
    ],
)
def test_an_address_of_ours(interface: str, address: str, port: int, ours: bool) -> None:
    assert is_ours({"interface": interface, "ret_port": 4506}, address, port) is ours


@pytest.mark.parametrize(
    ("counts", "asked", "lost", "found"),
    [
        ({}, True, 0, (0, 0, 0)),
        ({"bound": 3, "partly": 2, "silent": 4, "seen": 1, "unknown": 7}, True, 0, (5, 4, 8)),
        # It may be on the master that did not answer.
        ({"bound": 3, "silent": 4}, False, 0, (3, 0, 4)),
        # Two masters have lost connections of minions that were heard there.
        ({"bound": 3, "silent": 4}, True, 2, (1, 4, 2)),
        ({"bound": 1}, True, 2, (0, 0, 1)),
    ],
)
def test_how_many_are_online(
    counts: dict[str, int], asked: bool, lost: int, found: tuple[int, int, int]
) -> None:
    online, offline, unknown = found
    assert locator.online(counts, asked, lost) == {
        "online": online,
        "offline": offline,
        "unknown": unknown,
    }
