"""What masters may have each other publish, and what they keep of what is returned."""

from __future__ import annotations

from typing import Any

import pytest

from saltext_ha.errors import InvalidRecord
from saltext_ha.service import returns as module
from saltext_ha.service.jobs import Answers, Stray, new_jids
from saltext_ha.service.orders import FUNCTIONS, MOVE, PING, WHERE, Order, answer
from saltext_ha.service.reach import DEAF, OK, SILENT, UNKNOWN, judge
from saltext_ha.service.reach import answer as matrix
from saltext_ha.service.returns import Returns

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("order", "job"),
    [
        (Order(PING, glob="web*"), ("test.ping", "web*", "glob", [])),
        (Order(PING, ids=("web1", "db1")), ("test.ping", ["web1", "db1"], "list", [])),
        (Order(WHERE, glob="*"), ("ha.current_master", "*", "glob", [])),
        (
            Order(MOVE, ids=("web1",), to="10.0.0.2:4506", test=True),
            (
                "ha.failover",
                ["web1"],
                "list",
                [{"__kwarg__": True, "test": True, "to": "10.0.0.2:4506"}],
            ),
        ),
    ],
)
def test_a_job(order: Order, job: tuple[Any, ...]) -> None:
    assert order.job() == job
    assert Order.from_wire(order.to_wire()) == order


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
        Order.from_wire({**GOOD, **change})


def test_only_these_functions() -> None:
    assert set(FUNCTIONS.values()) == {"test.ping", "ha.current_master", "ha.failover"}
    for raw in (None, [], "ping", 5):
        with pytest.raises(InvalidRecord):
            Order.from_wire(raw)


@pytest.mark.parametrize("entry", ["m2", "10.0.0.2", "10.0.0.2:4506", "::1", "[::1]:4506", "a.b-c"])
def test_where_to(entry: str) -> None:
    assert Order(MOVE, ids=("web1",), to=entry).to == entry


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


def test_jids_are_different_and_look_like_salts() -> None:
    jids = new_jids(5)
    assert len(set(jids)) == 5
    assert all(len(jid) == 20 and jid.isdigit() for jid in jids)


# -- returns


def event(jid: str, minion_id: str, value: Any = True, **more: Any) -> tuple[str, dict[str, Any]]:
    return f"salt/job/{jid}/ret/{minion_id}", {"id": minion_id, "return": value, **more}


def test_only_what_is_expected_is_kept_and_only_for_a_while() -> None:
    now = [0.0]
    returns = Returns(lambda: now[0])
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
    now[0] = 11
    returns.expect(["4"], 10)
    assert returns.count("1") == 0


def test_expected_jobs_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JOBS", 2)
    monkeypatch.setattr(module, "MAX_RETURNS", 2)
    returns = Returns()
    returns.expect(["1", "2", "3"], 10)
    for minion_id in ("a", "b", "c"):
        returns(*event("1", minion_id))
        returns(*event("3", minion_id))
    assert (returns.count("1"), returns.count("3")) == (0, 2)


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


def table(*answers: Answers, strays: Any = (), kind: str = "list") -> dict[str, Any]:
    named = {f"m{number}": each for number, each in enumerate(answers, 1)}
    return matrix(["web1"], named, strays, {"web1": (kind, len(answers))}, 5)


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
    astray = table(HEARD, HEARD, strays=[Stray("m1", "m2", ("web1",))])
    assert astray["retcode"] == 1
    assert astray["strays"] == [{"published": "m1", "arrived": "m2", "count": 1, "ids": ["web1"]}]
