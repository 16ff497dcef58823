"""How long silent minions are pinged for, and what is said of those that were not."""

from __future__ import annotations

import asyncio
import fnmatch
import time
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.commands.minions import where as module
from saltext_ha.commands.minions.minions import MasterSights, sights_of
from saltext_ha.commands.minions.where import Where, last_heard
from saltext_ha.common.batches import batches
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.minions.job_answers import Answers
from saltext_ha.minions.job_specs import JobSpec
from saltext_ha.minions.presence import Sight
from saltext_ha.replication.record import ACCEPTED, PENDING
from saltext_ha.sync.group import MEANWHILE

pytestmark = pytest.mark.core

IDS = [f"web{number}" for number in range(8)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IDS", 2)


def test_batches_are_pinged_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIDE_BY_SIDE", 3)
    group = of_two(0.05)
    assert group.of(IDS, seconds=0.1) == {i: ["m1"] for i in IDS}
    assert (len(group.orders), group.most) == (4, 3)


def test_who_could_not_be_asked_is_not_asked_again() -> None:
    group = of_two()
    group.of(IDS)
    assert group.unknown == {"m2": "timed out"}
    assert {(*masters, "but", *unreached) for masters, unreached in group.orders} == {
        ("m1", "but", "m2")
    }


def test_who_joins_while_minions_are_pinged_is_unknown() -> None:
    """Minions may be with it that were pinged before it came."""
    group = of_two()
    group.comes = "m3"
    group.of(IDS)
    assert group.unknown == {"m2": "timed out", "m3": MEANWHILE}
    assert {name for masters, _ in group.orders for name in masters} == {"m1"}


@pytest.mark.parametrize("live", [False, True])
def test_one_time_limit_for_all(monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    monkeypatch.setattr(module, "PINGING", 0.2)
    group = of_two(30.0)
    began = time.monotonic()
    assert group.of(IDS, 0.1, live) == {i: ["m1"] for i in IDS}, "where it was heard last"
    assert time.monotonic() - began < 20
    assert group.running == 0


def test_those_who_ping_may_take_longer_than_the_minions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ping is published first, and batches wait for each other: of both there is something."""
    for pinging, seconds, takes in ((0.0, 0.5, 0.6), (5.0, 0.01, 0.3)):
        monkeypatch.setattr(module, "PINGING", pinging)
        group = Asked(answers={"m2": ["web0"]}, takes=takes)
        assert group.of(["web0"], seconds=seconds) == {"web0": ["m2"]}


# -- what comes of it


def sight(sure: float | None = None, likely: float | None = None, **more: Any) -> Sight:
    return Sight(sure, "job" if sure else "", likely, "auth" if likely else "", **more)


class Asked:
    """
    The jobs and the knowledge of a group of m1, m2 and m3, which is this master.

    :param sights: master → id → what it has heard of it; default: m1 that web0 authenticated.
    :param answers: master → the ids that answer it when they are pinged.
    :param problem: what a master says that cannot ping, by its name.
    """

    def __init__(
        self,
        sights: Mapping[str, Mapping[str, Sight]] | None = None,
        answers: Mapping[str, Collection[str]] | None = None,
        problem: Mapping[str, str] | None = None,
        takes: float = 0.0,
        states: Mapping[str, int] | None = None,
        error: HaError | None = None,
    ) -> None:
        self.sights = {"m1": {"web0": sight(likely=5)}} if sights is None else sights
        self.answers, self.problem, self.takes = answers or {}, problem or {}, takes
        self.states, self.error = states or {}, error
        self.masters = ["m1", "m2", "m3"]
        self.comes = ""
        """A master that joins while minions are pinged."""
        self.hangs: dict[str, str] = {}
        """Masters that do not say what they heard, and why."""
        self.orders: list[tuple[Collection[str], Collection[str]]] = []
        """The masters of each job, and those that are not asked."""
        self.most = self.running = 0
        self.pinged: list[str] = []
        self.questions: list[Mapping[str, Any]] = []
        self.looks: list[list[str]] = []
        self.own = "m3"
        core = SimpleNamespace(run=self._read, replica=self)
        self.where = Where(core, self, self)  # type: ignore[arg-type]
        self.silent: list[str] = []
        self.unknown: dict[str, str] = {}

    # what the jobs do

    async def run(
        self, order: JobSpec, timeout: float, masters: Collection[str], unreached: Collection[str]
    ) -> tuple[dict[str, Answers], list[Any]]:
        self.pinged += order.ids
        self.orders.append((masters, unreached))
        if self.comes and self.comes not in self.masters:
            self.masters.append(self.comes)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.running -= 1
        if self.error:
            raise self.error
        found = {
            name: Answers(frozenset(order.ids), dict.fromkeys({*ids} & {*order.ids}, (0.1, True)))
            for name, ids in self.answers.items()
        }
        return found | {n: Answers(error=each) for n, each in self.problem.items()}, []

    # what is known

    async def accepted(self, glob: str) -> list[str]:
        accepted = {i for i, state in self.states.items() if state == ACCEPTED}
        return sorted(fnmatch.filter(accepted, glob))

    async def everywhere(
        self, question: Mapping[str, Any], ids: Collection[str]
    ) -> tuple[dict[str, MasterSights], dict[str, str]]:
        self.questions.append(question)
        saying = [name for name in self.masters if name not in self.hangs]
        told = {n: MasterSights(sights=dict(self.sights.get(n, {}))) for n in saying}
        return told, dict(self.hangs)

    async def _read(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def brought(self, ids: list[str]) -> list[str]:
        self.looks.append(ids)
        return [i for i in ids if i in self.states]

    def applied(self, minion_id: str) -> Any:
        return SimpleNamespace(stored=SimpleNamespace(state=self.states[minion_id]))

    # what is asked

    def of(
        self, ids: Collection[str], seconds: float = 1.0, live: bool = False
    ) -> dict[str, list[str]]:
        question = {"glob": "*"}
        found, self.silent, self.unknown = asyncio.run(self.where.of(ids, question, seconds, live))
        return found

    def asked(self, **payload: Any) -> dict[str, Any]:
        return asyncio.run(self.where.where(payload))


def of_two(takes: float = 0.0) -> Asked:
    """m2 hangs; m1 has heard of all, and all answer it, if a job does not take too long."""
    group = Asked({"m1": dict.fromkeys(IDS, sight(likely=5))}, {"m1": IDS}, takes=takes)
    group.masters, group.hangs = ["m1", "m2"], {"m2": "timed out"}
    return group


def test_where_it_answers_counts_more_than_where_it_was_heard() -> None:
    group = Asked(answers={"m3": ["web0"], "m2": ["web0"]})
    assert group.of(["web0"]) == {"web0": ["m2", "m3"]}
    sure = Asked({"m1": {"web0": sight(5, type="failover")}}, {"m2": ["web0"]})
    assert (sure.of(["web0"]), sure.pinged) == ({"web0": ["m1"]}, [])
    assert (sure.of(["web0"], live=True), sure.pinged) == ({"web0": ["m2"]}, ["web0"])


def test_who_does_not_answer_is_where_it_was_heard_unless_it_was_to_answer_now() -> None:
    group = Asked()
    assert group.of(["web0", "web1"]) == {"web0": ["m1"], "web1": []}
    assert group.silent == ["web0"], "of web1 nothing is said"
    assert group.of(["web0"], live=True) == {"web0": []}
    assert group.silent == []
    answering = Asked(answers={"m1": ["web0"]})
    assert (answering.of(["web0"]), answering.silent) == ({"web0": ["m1"]}, [])
    told = Asked(states={"web0": ACCEPTED}).asked(glob="*")
    assert (told["minions"], told["silent"], told["retcode"]) == ({"web0": ["m1"]}, ["web0"], 1)
    group = Asked(problem={"m2": "timed out"})
    group.of(["web0"])
    assert group.unknown == {"m2": "timed out"}


def test_an_id_that_no_list_can_hold_is_not_pinged() -> None:
    heard = {"m2": {"a,b": sight(5, type="failover")}}
    for live in (False, True):
        group = Asked(heard)
        assert (group.of(["a,b", "web1"], live=live), group.pinged) == (
            {"a,b": ["m2"], "web1": []}, ["web1"],
        )  # fmt: skip


def test_what_cannot_be_asked_at_all_is_an_error() -> None:
    with pytest.raises(HaError, match="jobs are under way"):
        Asked(error=HaError("32 jobs are under way")).of(["web0"])


def test_the_answer_shows_whom_some_masters_do_not_reach() -> None:
    states = dict.fromkeys(("web1", "web0", "db1"), ACCEPTED)
    answers = {name: ["web1", "db1"] for name in ("m3", "m1", "m2")}
    group = Asked(answers=answers, states=states)
    found = group.asked(glob="*")
    assert (found["minions"], found["count"], found["ids"]) == ({"web0": ["m1"]}, 3, [])
    assert (found["self"], found["masters"]) == ("m3", ["m1", "m2", "m3"])
    assert (found["silent"], found["retcode"]) == (["web0"], 1)
    assert (group.questions, group.looks) == ([{"glob": "*"}], [])
    assert list(group.of(["web1", "web0", "db1"])) == ["db1", "web0", "web1"]
    assert group.asked(glob="*", all=True)["ids"] == ["db1", "web0", "web1"]
    lost = group.asked(glob="*", live=True)
    assert (lost["minions"], lost["retcode"]) == ({"web0": []}, 1)
    group.problem = {"m2": "timed out"}
    unsure = group.asked(glob="*", live=True)
    assert (unsure["unknown"], unsure["retcode"]) == ({"m2": "timed out"}, 2)


def test_of_listed_ids_those_count_that_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "batches", lambda ids, size=2: batches(ids, size))
    monkeypatch.setattr(module, "PAGE", 2)
    monkeypatch.setattr(module, "MOST_LISTED", 6)
    states = dict.fromkeys(("a", "b", "c"), ACCEPTED) | {"d": PENDING}
    group = Asked(states=states)
    assert group.asked(ids=["d", "b", "none", "a", "b"], all=True)["ids"] == ["a", "b"]
    assert group.looks == [["a", "b"], ["d", "none"]], "each once, and not all at a time"
    assert group.questions == [{"ids": ["a", "b"]}]
    assert group.asked(ids=["a", "b", "c", "a", "b", "c"])["count"] == 3
    assert group.questions[1:] == [{"glob": "*"}], "more than a page holds"
    for wrong in ("a", ["a", 5], {"a": 1}, ["a"] * 7, "abcdefgh"):
        with pytest.raises(InvalidRecord, match="takes a list of at most 6 minion ids"):
            group.asked(ids=wrong)


def test_ids_without_an_accepted_key_are_not_fine() -> None:
    """Else one that is in no list of exceptions would look as if all masters reached it."""
    group = Asked(states={"d": PENDING})
    for asked in ({"ids": ["nosuch", "d"]}, {"glob": "nosuch"}):
        found = group.asked(**asked)
        assert (found["minions"], found["retcode"]) == ({}, 1)
        assert "nosuch" in found["absent"]
    found = Asked(states={}).asked(glob="no*")
    assert (found["absent"], found["retcode"]) == ([], 1)


@pytest.mark.parametrize(
    ("heard", "on"),
    [
        ({}, []),
        ({"m1": sight()}, []),
        ({"m1": sight(sure=30), "m2": sight(sure=20)}, ["m2"]),
        ({"m1": sight(sure=30), "m2": sight(likely=20)}, ["m2"]),
        ({"m1": sight(sure=30, likely=10), "m2": sight(likely=20)}, ["m1"]),
        ({"m1": sight(sure=10, likely=30), "m2": sight(likely=20)}, ["m1"]),
    ],
)
def test_where_anything_was_heard_of_it_last(heard: dict[str, Sight], on: list[str]) -> None:
    assert last_heard(heard) == on
    known = {
        name: MasterSights(sights={"web0": each, "web1": sight(sure=1)})
        for name, each in heard.items()
    }
    known["m9"] = MasterSights()
    assert sights_of("web0", known) == heard
