"""What masters say of jobs, put together: what they do not say is unknown."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from saltext_ha.commands import past_jobs
from saltext_ha.commands.past_jobs import PastJobs, merged

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

    async def ask(self, method: str, payload: dict[str, Any], timeout: float) -> tuple[Any, Any]:
        return dict(self._answers), {}


class Jobs:
    """Minions that run nothing."""

    def __init__(self) -> None:
        self.here = SimpleNamespace(takes_commands=True)

    async def run(self, spec: Any, seconds: float) -> tuple[dict[str, Any], None]:
        return {}, None


class Cache:
    def __init__(self, job: Any, returned: dict[str, Any]) -> None:
        self._found = job, returned

    def job(self, jid: str) -> Any:
        return self._found


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
    assert found["returned"]["web1"] == {"error": past_jobs.NO_ROOM}
    assert (found["returned"]["web2"], found["failed"], found["retcode"]) == (True, ["web1"], 1)
