"""What masters may have each other publish, and what they keep of what is returned."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import pytest

from saltext_ha.commands.minions.reachability import DEAF, OK, SILENT, UNKNOWN, judge
from saltext_ha.commands.minions.reachability import answer as matrix
from saltext_ha.common.errors import InvalidRecord
from saltext_ha.minions import job_answers, own_jobs
from saltext_ha.minions import returns as module
from saltext_ha.minions.job_answers import Answers, Count, Stray
from saltext_ha.minions.job_specs import (
    CMD,
    FUNCTIONS,
    MINE,
    MOVE,
    PING,
    REFRESH,
    RUNNING,
    WHERE,
    JobSpec,
    answer,
)
from saltext_ha.minions.publishing import new_jids
from saltext_ha.minions.returns import LEFT_OUT, Returns
from saltext_ha.salt_bus.intake import DEEPEST, HELD_AT_LEAST, TOLD, TOO_MUCH, MemoryBudget
from saltext_ha.transport import wire
from tests.unit.clock import Clock

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("order", "job"),
    [
        (JobSpec(PING, glob="web*"), ("test.ping", "web*", "glob", [])),
        (JobSpec(PING, ids=("web1", "db1")), ("test.ping", ["web1", "db1"], "list", [])),
        (JobSpec(WHERE, glob="*"), ("ha.current_master", "*", "glob", [])),
        (
            JobSpec(MOVE, ids=("web1",), to="10.0.0.2:4506", test=True),
            (
                "ha.failover",
                ["web1"],
                "list",
                [{"__kwarg__": True, "test": True, "to": "10.0.0.2:4506"}],
            ),
        ),
    ],
)
def test_a_job(order: JobSpec, job: tuple[Any, ...]) -> None:
    assert order.job() == job
    assert JobSpec.from_wire(order.to_wire()) == order


GOOD: dict[str, Any] = {"what": PING, "glob": "*", "ids": [], "to": "", "test": False}


@pytest.mark.parametrize(
    "change",
    [
        {"what": "cmd.run"}, {"what": "test.ping"}, {"what": None}, {"what": ["ping"]},
        {"glob": ""}, {"glob": "a b"}, {"glob": "G@os:Linux and *"}, {"glob": "web1,db1"},
        {"glob": "G@os:Linux"},
        {"glob": "*" * 5}, {"glob": "w" * 300}, {"glob": "web1\n"}, {"glob": 5}, {"glob": "a/b"},
        {"ids": ["web1"]}, {"glob": "", "ids": ["../web1"]}, {"glob": "", "ids": ["a,b"]},
        {"glob": "", "ids": [5]}, {"glob": "", "ids": "web1"}, {"glob": "", "ids": ["w"] * 1001},
        {"what": MOVE}, {"test": 1}, {"test": None}, {"to": None},
        {"what": MOVE, "glob": "", "ids": ["web1"], "to": "m2; reboot"},
        {"what": MOVE, "glob": "", "ids": ["web1"], "to": "-x"},
        {"what": MOVE, "glob": "", "ids": ["web1"], "to": "[::1"},
    ],
)  # fmt: skip
def test_nothing_else_is_published(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        JobSpec.from_wire({**GOOD, **change})


def test_of_running_jobs_only_their_ids_are_kept() -> None:
    jobs = [{"jid": "20261124000000000001", "arg": ["secret"]}, {"pid": 3}, "x", {"jid": 5}]
    assert answer(RUNNING, jobs) == ["20261124000000000001"]
    assert answer(RUNNING, "not available") == []


@pytest.mark.parametrize("what", [REFRESH, MINE])
def test_of_a_refresh_nothing_is_kept(what: str) -> None:
    assert answer(what, {"whatever": "a minion says"}) == {}
    assert answer(what, "not available") == {"error": "not available"}


def test_only_these_functions() -> None:
    assert FUNCTIONS == {
        "ping": "test.ping",
        "where": "ha.current_master",
        "move": "ha.failover",
        "report": "ha.failover_report",
        "running": "saltutil.running",
        "refresh": "saltutil.refresh_pillar",
        "mine": "mine.update",
    }
    for raw in (None, [], "ping", 5):
        with pytest.raises(InvalidRecord):
            JobSpec.from_wire(raw)


@pytest.mark.parametrize("entry", ["m2", "10.0.0.2", "10.0.0.2:4506", "::1", "[::1]:4506", "a.b-c"])
def test_where_to(entry: str) -> None:
    assert JobSpec(MOVE, ids=("web1",), to=entry).to == entry


def test_answers_are_cut_to_what_is_needed() -> None:
    assert answer(PING, True) is True
    assert answer(PING, "x" * 10_000) is False
    assert answer(WHERE, "'ha.current_master' is not available.") == {
        "error": "'ha.current_master' is not available."
    }
    told = {"type": "failover", "masters": ["m1", 5], "address": "m1", "secret": "x", "note": {}}
    assert answer(WHERE, told) == {
        "type": "failover", "masters": ["m1", "5"], "address": "m1", "note": "{}",
    }  # fmt: skip
    assert len(answer(MOVE, {"comment": "x" * 10_000})["comment"]) == 300
    assert len(answer(WHERE, {"masters": ["m"] * 10_000})["masters"]) == 100


MOMENT = datetime.datetime(2026, 1, 31, 3, 12, 45)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({0: {"local_addr": "10.0.0.1"}}, {"0": {"local_addr": "10.0.0.1"}}),
        ({None: 1, b"key\xff": (2, [3])}, {"None": 1, "key\ufffd": [2, [3]]}),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        ("cut \udcff", "cut ?"),
        ({"at": MOMENT}, {"at": "2026-01-31 03:12:45"}),
        ([float("nan"), float("-inf"), 0.5], ["nan", "-inf", 0.5]),
        ([2**64 - 1, 2**64, -(2**63) - 1], [2**64 - 1, str(2**64), str(-(2**63) - 1)]),
        ([None, True, 7, "text"], [None, True, 7, "text"]),
    ],
)
def test_what_a_command_returns_travels_and_is_shown(value: Any, kept: Any) -> None:
    """What one minion returns must not cost the returns of all others of its master."""
    found = answer(CMD, value)
    assert found == kept
    assert wire.unpack(wire.pack({"value": found})) == {"value": kept}
    assert json.loads(json.dumps(found, allow_nan=False)) == kept


def test_what_a_peer_says_was_returned_is_shown_too() -> None:
    endless: Any = []
    for _ in range(500):
        endless = [endless]
    raw = {"targeted": ["web1", "web2"], "returned": [["web1", 0.1, {"a": b"\xff"}],
                                                       ["web2", 0.1, endless]]}  # fmt: skip
    returned = job_answers.read_answers(raw).returned
    assert returned["web1"] == (0.1, {"a": "\ufffd"})
    deepest = json.dumps(returned["web2"][1])
    assert TOO_MUCH in deepest
    assert deepest.count("[") < 3 * DEEPEST


def test_jids_are_different_and_look_like_salts() -> None:
    jids = new_jids(5)
    assert len(set(jids)) == 5
    assert all(len(jid) == 20 and jid.isdigit() for jid in jids)


# -- returns


def event(jid: str, minion_id: str, value: Any = True, **more: Any) -> tuple[str, dict[str, Any]]:
    return f"salt/job/{jid}/ret/{minion_id}", {"id": minion_id, "return": value, **more}


def test_only_what_is_expected_is_kept_and_only_for_a_while() -> None:
    clock = Clock(0.0)
    returns = Returns(clock)
    came: list[int] = []
    returns.arrived = lambda: came.append(1)
    returns(*event("1", "web1"))
    returns.expect(["1", "2"], 10)
    returns.expect(["1"], 10, keep=bool)
    for job in (event("1", "web1", "long"), event("2", "db1", "long"), event("3", "web1")):
        returns(*job)
    returns("salt/job/1/ret/web2", {"id": "web3", "return": 1})
    assert returns.of("1")["web1"].value is True
    assert returns.of("2")["db1"].value is None  # another master's job: who, not what
    assert (returns.count("1"), returns.count("3"), len(came)) == (1, 0, 2)
    returns(*event("1", "web1", None))
    assert returns.of("1")["web1"].value is True  # the first one counts
    clock.now = 11
    returns.expect(["4"], 10)
    assert returns.count("1") == 0


def test_what_is_kept_of_a_job_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RETURNS", 3)
    monkeypatch.setattr(module, "MAX_STRAYS", 2)
    returns = Returns()
    returns.expect(["2", "3"], 10)
    returns.expect(["2"], 10, bool)
    for minion_id in ("a", "b", "c", "d"):
        for jid in ("1", "2", "3"):
            returns(*event(jid, minion_id))
    assert [returns.count(jid) for jid in ("1", "2", "3")] == [0, 3, 2]


def test_a_job_whose_time_is_not_over_makes_no_room_for_younger_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_JOBS", 3)
    clock = Clock(0.0)
    returns = Returns(clock)
    returns.expect(["long"], 310, str)
    returns.expect(["short"], 10, str)
    returns(*event("long", "web1", "done"))
    with pytest.raises(InvalidRecord, match="3 jobs are waited for already; try again later"):
        returns.expect(["3", "4"], 10)
    returns.expect(["3"], 10)
    returns.expect(["3", "long"], 10)  # those are known
    clock.now = 11  # the time of the others is over
    returns.expect(["5", "6"], 10)
    returns(*event("long", "web2", "done"))
    assert set(returns.of("long")) == {"web1", "web2"}


def test_a_job_that_is_over_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JOBS", 2)
    clock = Clock(0.0)
    room = MemoryBudget()
    returns = Returns(clock, room)
    for number in range(10):
        returns.expect([str(number)], 300, str)
        returns(*event(str(number), "web1", "done"))
        returns.over([str(number), "never heard of"], 5)
        assert returns.count(str(number)) == 1, "who asks again is answered again"
    assert [returns.count(str(number)) for number in range(7, 10)] == [0, 1, 1]
    clock.now = 6
    returns.forget_old()
    assert room.held == 0


def test_another_masters_job_makes_room_for_one_that_keeps_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_JOBS", 2)
    returns = Returns()
    returns.expect(["1", "2"], 300)
    returns.expect(["3"], 300, str)
    for jid in ("1", "2", "3"):
        returns(*event(jid, "web1"))
    assert [returns.count(jid) for jid in ("1", "2", "3")] == [0, 1, 1]


def test_only_whom_it_was_for_has_returned_it() -> None:
    room = MemoryBudget()
    returns = Returns(memory=room)
    returns.expect(["1"], 10, str)
    for minion_id in ("web1", "made-up", "x" * 256, "../up", ""):
        returns(*event("1", minion_id))
    assert set(returns.of("1")) == {"web1", "made-up"}
    before = room.held
    returns.narrow("1", frozenset({"web1", "web2"}))
    assert 0 < room.held < before
    returns(*event("1", "made-up"))
    returns(*event("1", "web2"))
    assert set(returns.of("1")) == {"web1", "web2"}


def test_what_is_kept_of_minions_is_bounded_in_all() -> None:
    clock = Clock()
    room = MemoryBudget(clock)
    returns = Returns(clock, room)
    returns.expect(["1", "2"], 10, str)
    for number in range(50):
        returns(*event("1", f"web{number}", "x" * 1_000_000))
    came = returns.of("1").values()
    assert len(came) == 50, "all have returned"
    assert 20 < sum(each.value is not LEFT_OUT for each in came) < 40
    assert room.held <= HELD_AT_LEAST
    assert not room.note()
    for number in range(10_000):
        returns(*event("1", f"db{number}", "x" * 1_000))
    assert 50 < returns.count("1") < 10_000
    assert room.held <= HELD_AT_LEAST
    assert "left out" in room.note()
    room.suit(10_000)  # more minions, more room
    returns(*event("2", "db1", "x" * 1_000))
    returns(*event("2", "db2", "x" * 1_000_000))
    assert [each.value is LEFT_OUT for each in returns.of("2").values()] == [False, True]
    clock.now += 11
    returns.forget_old()
    assert (room.held, returns.count("1")) == (0, 0)
    assert room.note()
    clock.now += TOLD
    assert not room.note()


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ({"counts": {"1": [3, 2, 1]}}, Count(3, 2, 1)),
        ({"counts": {"1": [None, 0, 0]}}, Count(None, 0, 0)),
        *(
            ({"counts": counts}, "answered nonsense")
            for counts in (None, [3, 2, 1], {}, {"1": 3}, {"1": [3, 2]}, {"1": [[], 2, 1]},
                           {"1": [3, None, 1]}, {"1": [True, 2, 1]}, {"2": [3, 2, 1]})
        ),
    ],
)  # fmt: skip
def test_how_far_a_job_is_elsewhere(told: dict[str, Any], count: Count | str) -> None:
    if isinstance(count, Count):
        assert job_answers.read_count(told, "1") == count
    else:
        with pytest.raises(InvalidRecord, match=f"^{re.escape(count)}$"):
            job_answers.read_count(told, "1")


def test_how_far_a_job_is_here() -> None:
    returns = Returns()
    returns.expect(["1"], 10, str)
    returns(*event("1", "stranger", retcode=1))
    assert own_jobs._counted(returns, "1") == [None, 0, 0], "whose that is, is not known yet"
    returns.narrow("1", frozenset({"web1", "web2", "web3"}))
    returns(*event("1", "web1", retcode=3))
    returns(*event("1", "web2", retcode=0))
    assert own_jobs._counted(returns, "1") == [3, 2, 1]
    assert own_jobs._counted(returns, "2") == [None, 0, 0]


# -- the matrix


@pytest.mark.parametrize(
    ("row", "kind", "of", "state", "said"),
    [
        ("hears hears", "list", 2, OK, ""),
        ("hears hears", "", 0, OK, ""),
        ("hears silent", "failover", 2, OK, ""),
        ("silent hears", "str", 1, OK, ""),
        ("hears silent", "list", 2, DEAF, "deaf to m2"),
        ("hears silent", "list", 0, DEAF, "deaf to m2"),
        ("hears silent", "list", 1, OK, ""),
        ("hears nokey", "list", 2, DEAF, "no accepted key on m2"),
        ("hears silent", "", 0, UNKNOWN, "right for failover, wrong for hot-hot"),
        ("silent silent", "failover", 2, SILENT, "hears no master"),
        ("silent unknown", "failover", 2, UNKNOWN, "not heard by m1"),
        ("unknown unknown", "", 0, UNKNOWN, "nobody could ask it"),
        ("hears unknown", "list", 2, OK, ""),  # that m2 could not ask is said of m2
        ("hears silent unknown", "list", 3, DEAF, "deaf to m2"),
        ("hears hears silent", "list", 2, OK, ""),
    ],
)
def test_whether_a_minion_hears_whom_it_has_to(
    row: str, kind: str, of: int, state: str, said: str
) -> None:
    cells = {f"m{n}": c.replace("nokey", "no key") for n, c in enumerate(row.split(), 1)}
    judged = judge(cells, kind, of)
    assert judged[0] == state
    assert said in judged[1]
    assert bool(said) == bool(judged[1])


WEB = frozenset({"web1"})


def table(*answers: Answers, strays: Any = ()) -> dict[str, Any]:
    named = {f"m{number}": each for number, each in enumerate(answers, 1)}
    return matrix(["web1"], named, strays, {"web1": ("list", len(answers))}, 5)


HEARD = Answers(WEB, {"web1": (0.02, True)})


def test_the_matrix() -> None:
    good = table(HEARD, HEARD)
    assert (good["retcode"], good["partial"], good["counts"]) == (0, False, {"ok": 1})
    assert good["minions"][0]["answers"]["m2"] == {"state": "hears", "seconds": 0.02}
    deaf = table(HEARD, Answers(WEB))
    assert (deaf["retcode"], deaf["minions"][0]["state"]) == (1, "deaf")
    partial = table(HEARD, Answers(error="timed out"))
    assert (partial["retcode"], partial["partial"]) == (2, True)
    assert partial["unknown"] == {"m2": "timed out"}


def test_who_answers_another_master_is_not_well() -> None:
    astray = table(HEARD, HEARD, strays=[Stray("m1", "m2", ("web1", "nobody"))])
    assert astray["strays"] == [{"published": "m1", "arrived": "m2", "count": 1, "ids": ["web1"]}]
    assert (astray["retcode"], astray["counts"]) == (1, {"astray": 1})
    assert "asked by m1, it answered m2" in astray["minions"][0]["note"]
    # One verdict: what a stranger returns changes neither table nor exit status.
    forged = table(HEARD, HEARD, strays=[Stray("m1", "m2", ("nobody",))])
    assert (forged["retcode"], forged["strays"], forged["counts"]) == (0, [], {"ok": 1})
