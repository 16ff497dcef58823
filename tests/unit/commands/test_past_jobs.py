"""What masters say of jobs, put together: what they do not say is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.commands.minions import past_jobs
from saltext_ha.commands.minions.past_jobs import PastJobs, fitting, merged
from saltext_ha.common.errors import HaError
from saltext_ha.minions.job_answers import Answers
from saltext_ha.output import _jobs
from saltext_ha.output._text import Screen
from saltext_ha.transport import wire

JID = "20261124000000000001"
JOB: dict[str, Any] = {
    "jid": JID,
    "function": "test.ping",
    "arguments": [],
    "target": "web*",
    "target_type": "glob",
    "user": "root",
    "minions": ["web1", "web2"],
}


class Group:
    """Of m1, whose peers answer what they are given."""

    name = "m1"

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    async def ask(
        self, method: str, payload: dict[str, Any], timeout: float, own: Awaitable[dict[str, Any]]
    ) -> tuple[Any, Any]:
        return {self.name: await own, **self._answers}, {}


class Jobs:
    """
    Minions that run nothing.

    :ivar asked: which minions were asked, and masters, and how many questions were under way.
    """

    def __init__(self, silent: str = "") -> None:
        self.here = SimpleNamespace(takes_commands=True)
        self.masters, self._silent = ["m1", "m2"], silent
        self.asked: list[tuple[tuple[str, ...], list[str], int]] = []
        self._under_way = 0

    async def run(
        self, spec: Any, seconds: float, masters: list[str], unreached: list[str]
    ) -> tuple[dict[str, Any], None]:
        self._under_way += 1
        await asyncio.sleep(0)
        self.asked.append((spec.ids, masters, self._under_way))
        self._under_way -= 1
        found = {name: Answers(error="timed out" * (name == self._silent)) for name in masters}
        return found, None


class Cache:
    def __init__(self, job: Any, returned: dict[str, Any], jobs: Any = ()) -> None:
        self._found, self._jobs = (job, returned), list(jobs)

    def job(self, jid: str) -> Any:
        return self._found

    def jobs(self, search: str, limit: int) -> Any:
        return self._jobs


def lookup(job: Any, returned: dict[str, Any], **peers: Any) -> dict[str, Any]:
    past = PastJobs(Group(**peers), Jobs(), Cache(job, returned))  # type: ignore[arg-type]
    return asyncio.run(past.lookup({"jid": JID}))


def test_a_cache_that_keeps_no_minions_does_not_make_a_job_done() -> None:
    """As those of mysql and pgjsonb."""
    job = {**JOB, "minions": [], "returned": ["web1"]}
    (row,), _ = merged({"m1": [job]})
    assert (row["targeted"], row["returned"], row["missing"]) == (None, 1, [])
    found = lookup(job, {"web1": {"return": True, "retcode": 0}})
    assert (found["targeted"], found["missing"], found["retcode"]) == (None, [], 2)


def test_who_may_have_listened_to_another_master_is_not_missing() -> None:
    """Nor asked whether it still runs what it was perhaps never asked."""
    job = {**JOB, "listening": True, "returned": ["web1"]}
    jobs = Jobs()
    past = PastJobs(Group(), jobs, Cache(None, {}, [job]))  # type: ignore[arg-type]
    (row,) = asyncio.run(past.jobs({}))["jobs"]
    assert (row["targeted"], row["missing"], row["state"]) == (None, [], "unknown")
    assert jobs.asked == []
    found = lookup(job, {"web1": {"return": True, "retcode": 0}})
    assert (found["targeted"], found["missing"], found["retcode"]) == (None, [], 2)


def test_a_job_is_shown_as_the_master_tells_it_that_published_it() -> None:
    """Another one, to which a minion has moved, has its return alone."""
    came = {**JOB, "target": "", "user": "root", "minions": [], "returned": ["web2"]}
    job = {**JOB, "user": "alice", "returned": ["web1"]}
    rows, _ = merged({"m1": [came], "m2": [job], "m3": [came]})
    (row,) = rows
    assert (row["target"], row["user"], row["masters"]) == ("web*", "alice", ["m1", "m2", "m3"])
    assert (row["targeted"], row["returned"], row["missing"]) == (2, 2, [])


@pytest.mark.parametrize(
    "nonsense", [{"jid": "nightly"}, {"minions": 5}, {"returned": None}, {"target": ...}, None, 7]
)
def test_of_a_list_with_nonsense_the_other_jobs_are_shown(nonsense: Any) -> None:
    good = {**JOB, "returned": []}
    bad = {**good, **nonsense} if isinstance(nonsense, dict) else nonsense
    if isinstance(bad, dict) and bad["target"] is ...:
        del bad["target"]
    rows, unknown = merged({"m1": [bad, good], "m2": [good]})
    assert [(row["jid"], row["masters"]) for row in rows] == [(JID, ["m1", "m2"])]
    assert unknown == {"m1": "answered nonsense"}
    assert merged({"m1": 5, "m2": [good]})[1] == {"m1": "answered nonsense"}


@pytest.mark.parametrize(
    ("target", "kind", "missing"),
    [("web1,web2", "list", ["web2"]), ("web2", "glob", ["web2"]), ("web1", "glob", [])],
)
def test_ids_in_a_target_say_whom_it_was_for(target: str, kind: str, missing: list[str]) -> None:
    job = {**JOB, "minions": [], "target": target, "target_type": kind, "returned": ["web1"]}
    (row,), _ = merged({"m1": [job]})
    assert row["missing"] == missing
    found = lookup(job, {"web1": {"return": True, "retcode": 0}})
    assert (found["missing"], found["retcode"]) == (missing, int(bool(missing)))


@pytest.mark.parametrize(
    "nonsense",
    [
        {"job": {**JOB, "minions": 5}, "returned": {}},
        {"job": {"minions": []}, "returned": {}},
        {"job": 5, "returned": {}},
        {"job": None, "returned": 7},
    ],
)
def test_nonsense_of_a_peer_is_unknown(nonsense: dict[str, Any]) -> None:
    found = lookup(JOB, {}, m0=nonsense)
    assert (found["published"], found["missing"]) == (["m1"], ["web1", "web2"])
    assert (found["unknown"], found["retcode"]) == ({"m0": "answered nonsense"}, 2)


def test_what_failed_and_has_no_room_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_jobs, "MAX_ANSWERS", 300)
    returned = {
        "web1": {"return": "x" * 1000, "retcode": 2},
        "web2": {"return": True, "retcode": 0},
    }
    found = lookup(JOB, returned)
    assert found["returned"]["web1"] == {
        "error": f"{past_jobs.NO_ROOM}; salt-run jobs.lookup_jid {JID} on m1 shows it"
    }
    assert (found["returned"]["web2"], found["failed"], found["retcode"]) == (True, ["web1"], 1)


def listed(jobs: Jobs, *minions: list[str]) -> dict[str, Any]:
    """``ha.jobs``: one job for each list of *minions*, the newest first; nothing was returned."""
    rows = [
        {**JOB, "jid": str(int(JID) - age), "minions": ids, "returned": []}
        for age, ids in enumerate(minions)
    ]
    past = PastJobs(Group(), jobs, Cache(None, {}, rows))  # type: ignore[arg-type]
    return asyncio.run(past.jobs({}))


def test_as_many_are_asked_as_can_be_and_the_others_are_told() -> None:
    """One portion after the other: a master has 32 places for jobs, also for other commands."""
    jobs = Jobs()
    newer, older = ([f"{age}{number:04}" for number in range(4200)] for age in "ba")
    found = listed(jobs, newer, older)
    assert [len(ids) for ids, _, _ in jobs.asked] == 8 * [1000]
    assert {under_way for _, _, under_way in jobs.asked} == {1}
    assert [*jobs.asked[0][0]] == newer[:1000], "those of the newest job first"
    assert found["notes"] == [
        "400 minions without a return were not asked whether they still run it: at most 8000 are "
        "asked at a time"
    ]
    assert found["retcode"] == 2
    assert found["notes"][0] in "\n".join(_jobs.jobs(found, Screen()))


def test_a_master_that_does_not_answer_is_waited_for_once() -> None:
    jobs = Jobs(silent="m2")
    found = listed(jobs, [f"web{number}" for number in range(1500)])
    assert [masters for _, masters, _ in jobs.asked] == [["m1", "m2"], ["m1"]]
    assert (found["unknown"], found["retcode"]) == ({"m2": "timed out"}, 2)


@pytest.mark.parametrize("odd", ["web,1", "../web", "", "web\x07"])
def test_who_cannot_be_named_is_left_out_of_the_question(odd: str) -> None:
    """And makes nothing unknown that can be known."""
    jobs = Jobs()
    found = listed(jobs, [odd, "web1"], [odd])
    assert [ids for ids, _, _ in jobs.asked] == [("web1",)]
    assert [row["state"] for row in found["jobs"]] == ["missing", "unknown"]
    assert (found["unknown"], found["retcode"], len(found["notes"])) == ({}, 0, 1)
    assert f"in a list: {odd!r}" in found["notes"][0]
    looked = lookup({**JOB, "minions": [odd]}, {})
    assert (looked["missing"], looked["retcode"], looked["notes"]) == ([odd], 1, found["notes"])
    assert "web" not in odd or "cannot be asked" in "\n".join(_jobs.rest(looked, Screen()))


def test_more_ids_than_an_answer_takes_are_refused_with_what_to_do() -> None:
    ids = [f"minion-{number}" for number in range(100)]
    rows = [{**JOB, "minions": ids, "returned": ids, "jid": f"{JID[:-1]}{n}"} for n in range(4)]
    each = len(wire.pack(rows[0]))
    assert fitting(rows, 5 * each) == rows
    with pytest.raises(HaError, match=r"the minions of 4 jobs .* limit=2$"):
        fitting(rows, 3 * each - 1)
