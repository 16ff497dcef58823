"""What becomes of a job whose answer is lost, step by step: the job cache says what a test says."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from saltext_ha.api import (
    CallFailed,
    Job,
    NoMasterAvailable,
    NotAuthorised,
    OutcomeUnknown,
    TimedOut,
    publish,
)
from saltext_ha.api.master import AT_ONCE
from tests.api_server import Server, pool, respond

pytestmark = pytest.mark.core


class Master:
    """
    Scripted: how the next publishes are answered, and how many of them reach the job cache.

    :param answers: for each publish: ``ok``, ``reset``, ``401`` (of a token that salt-api knows) or
        ``500``; ``ok`` when none is left.
    :param kept: for each publish whether it is published.
    """

    def __init__(self, answers: list[str], kept: list[bool], returned: bool = True) -> None:
        self.answers, self.kept, self.returned = answers, kept, returned
        self.published: list[str] = []
        self.sent: list[str] = []
        self.looks = 0
        self.refuses = self.mute = False
        self.failing = 0  # looks that are not answered, before one is
        self.late = 0  # looks before a job shows up that was published
        self.slow = 0.0  # seconds for each look

    def __call__(self, handler: BaseHTTPRequestHandler, low: Any) -> None:
        if low["fun"] == "jobs.list_job":
            self.look(handler, low["kwarg"]["jid"])
            return
        self.sent.append(low["jid"])
        if self.kept.pop(0) if self.kept else True:
            self.published.append(low["jid"])
        answer = self.answers.pop(0) if self.answers else "ok"
        if answer == "reset":
            handler.close_connection = True
            handler.connection.close()
        elif answer in ("401", "500"):
            respond(handler, {}, int(answer), Cache_Control="private")
        elif low["client"] == "local":
            respond(handler, {"return": [{"a": {"ret": 1, "retcode": 0}, "b": FAILED}]})
        else:
            respond(handler, {"return": [{"jid": low["jid"], "minions": ["a", "b"]}]})

    def look(self, handler: BaseHTTPRequestHandler, jid: str) -> None:
        self.looks += 1
        time.sleep(self.slow)
        if self.mute or self.looks <= self.failing:
            respond(handler, {}, 503)
        elif self.refuses:
            respond(handler, {}, 401)
        elif jid not in self.published or self.looks <= self.late:
            respond(handler, {"return": [{"jid": jid, "Error": "no job with this jid"}]})
        else:
            result = {"a": {"return": 1}}
            if self.returned and self.looks > 2:
                result["b"] = {"return": 2}
            job = {"Function": "test.x", "Minions": ["a", "b"], "Result": result}
            respond(handler, {"return": [job]})


FAILED = {"out": "no_return", "ret": "Minion did not return. [No response]"}


def script(server: Server, *answers: str, kept: Any = (), **more: Any) -> Master:
    master = Master(list(answers), list(kept), **more)
    server.answer = master
    return master


def test_an_answer_that_comes(servers: list[Server]) -> None:
    master = script(servers[0])
    with pool(*servers) as one:
        job = one.local_async("*", "test.x")
        assert job == Job(master.sent[0], "m1", ("a", "b"))
        assert one.local("*", "test.x") == {"a": 1, "b": False}, "Salt gave b up"
    assert master.looks == 0


@pytest.mark.parametrize("matched", [True, False])
def test_a_job_for_minions_that_the_master_does_not_count(
    servers: list[Server], matched: bool
) -> None:
    """A master of masters gives a jid also where none of its own minions matches."""
    looks: list[list[str]] = [[], ["below1"], ["below1"]]

    def answer(handler: BaseHTTPRequestHandler, low: Any) -> None:
        if low["fun"] != "jobs.list_job":
            told = {"jid": low["jid"], "minions": []} if matched else {}
            respond(handler, {"return": [told]})
            return
        now = looks.pop(0) if len(looks) > 1 else looks[0]
        result = {"below1": {"return": 1}} if len(looks) == 1 else {}
        respond(handler, {"return": [{"Function": "test.x", "Minions": now, "Result": result}]})

    servers[0].answer = answer
    with pool(servers[0]) as one:
        job = one.local_async("below*", "test.x")
        assert one.wait(job) == ({"below1": 1} if matched else {})
        assert (job.minions, job.counted) == ((), not matched)


def test_who_returned_is_not_taken_for_all_minions_of_a_lost_job(servers: list[Server]) -> None:
    """Job caches other than Salt's own keep only minions that have returned."""
    looks = 0

    def answer(handler: BaseHTTPRequestHandler, low: Any) -> None:
        nonlocal looks
        if low["fun"] != "jobs.list_job":
            respond(handler, {"status": 500}, 500)
            return
        looks += 1
        came = {m: {"return": 1} for m in ("a", "b")[: looks // 2]}
        respond(handler, {"return": [{"Function": "test.x", "Minions": [], "Result": came}]})

    servers[0].answer = answer
    untold = pytest.raises(TimedOut, match="does not tell to whom")
    with pool(servers[0], deadline=4) as one, untold as late:
        one.wait(one.local_async("*", "test.x"))
    assert late.value.returned == {"a": 1, "b": 1}


@pytest.mark.parametrize("answer", ["reset", "500"])
def test_lost_and_found(servers: list[Server], answer: str) -> None:
    master = script(servers[0], answer, answer)
    with pool(*servers) as one:
        job = one.local_async("*", "test.x")
        assert (job.master, job.minions) == ("m1", ("a", "b"))
        assert one.local("*", "test.x") == {"a": 1, "b": 2}, "its returns are waited for"
    assert len(master.sent) == 2
    assert not servers[1].calls("test.x")


def test_a_look_that_fails_is_not_the_last_one(servers: list[Server]) -> None:
    master = script(servers[0], "reset")
    master.failing = 3
    with pool(*servers) as one:
        job = one.local_async("*", "test.x")
    assert (job.master, master.sent) == ("m1", [job.jid])
    assert master.looks == 4
    assert not servers[1].calls("test.x")


def test_who_waits_to_look_has_the_whole_time_for_it(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a slow master is asked for ever by callers that give up before it answers."""
    monkeypatch.setattr(publish, "LOOK_LIMIT", 3.5)
    calls = 4 * AT_ONCE
    master = script(servers[0], *["reset"] * calls)
    master.slow = 1.0  # so who comes last has waited for three seconds
    with pool(*servers, deadline=60) as one, ThreadPoolExecutor(calls) as threads:
        jobs = list(threads.map(lambda _: one.local_async("*", "test.x"), range(calls)))
    assert {job.master for job in jobs} == {"m1"}
    assert len(master.sent) == calls
    assert master.looks == calls


def test_a_job_that_is_still_on_its_way_is_not_sent_again(servers: list[Server]) -> None:
    master = script(servers[0], "reset")
    master.late = 4
    with pool(*servers) as one:
        job = one.local_async("*", "test.x")
    assert (job.minions, master.sent) == (("a", "b"), [job.jid])
    assert master.looks == 5


def test_lost_and_absent_is_sent_again_with_the_same_jid(servers: list[Server]) -> None:
    master = script(servers[0], "reset", "ok", kept=[False, True])
    with pool(*servers) as one:
        job = one.local_async("*", "test.x")
    assert master.sent == [job.jid, job.jid]
    assert master.looks >= 2, "one look is no proof: the first sending may be on its way"


def test_an_error_twice_and_no_job(servers: list[Server]) -> None:
    master = script(servers[0], "500", "500", kept=[False, False])
    with pool(*servers) as one, pytest.raises(CallFailed, match="HTTP 500; it published no such"):
        one.local("*", "test.x")
    assert len(master.sent) == 2
    assert not servers[1].calls("test.x")


@pytest.mark.parametrize("idempotent", [False, True])
def test_nobody_tells_what_became_of_it(servers: list[Server], idempotent: bool) -> None:
    master, other = script(servers[0], "reset"), script(servers[1])
    master.mute = True
    with pool(*servers, deadline=6) as one:
        if idempotent:
            job = one.local_async("*", "test.x", idempotent=True)
            assert (job.master, other.sent) == ("m2", [job.jid])
            assert job.jid not in master.sent, "minions that saw the first would drop it"
        else:
            begun = time.monotonic()
            with pytest.raises(
                OutcomeUnknown, match=r"sent to m1 .*looking it up: HTTP 503"
            ) as lost:
                one.local_async("*", "test.x")
            assert time.monotonic() - begun < 11, "anew for the looks it is 12 s"
            assert master.sent == [lost.value.jid]
            assert not other.sent
            master.mute = False
            assert one.lookup(master.sent[0]).found


def test_what_may_have_run_is_not_said_to_be_not_run_when_no_other_master_is_there(
    servers: list[Server],
) -> None:
    master = script(servers[0], "reset", "reset")
    master.mute, servers[1].dead = True, True
    with pool(*servers, deadline=6) as one:
        with pytest.raises(OutcomeUnknown, match=r"sent to m1 .*503.*m2: login") as lost:
            one.local_async("*", "test.x", idempotent=True)
        assert lost.value.jid in master.sent
        with pytest.raises(OutcomeUnknown, match="the call was sent to m1"):
            one.runner("state.orchestrate", ["deploy"], idempotent=True)


def test_what_was_lost_on_every_master_can_be_looked_up_on_each(servers: list[Server]) -> None:
    masters = [script(server, "reset", "reset") for server in servers]
    for master in masters:
        master.mute = True
    with pool(*servers, deadline=4) as one, pytest.raises(OutcomeUnknown) as lost:
        one.local_async("*", "test.x", idempotent=True)
    assert lost.value.jids == {f"m{n}": master.sent[0] for n, master in enumerate(masters, 1)}


def test_a_user_who_may_not_look(servers: list[Server]) -> None:
    master = script(servers[0], "reset")
    master.refuses = True
    with pool(*servers) as one, pytest.raises(OutcomeUnknown, match="it takes @jobs"):
        one.local_async("*", "test.x")
    assert len(master.sent) == 1


def test_a_job_is_looked_up_first_where_masters_work(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A probe would be counted, too.
    monkeypatch.setattr("saltext_ha.api.prober.Prober.start", lambda prober: None)
    for server in servers:
        script(server)
    servers[0].dead = True
    with pool(*servers, fall=1) as one:
        job = one.local_async("*", "test.x")
        assert (job.master, one.status()["masters"][0]["healthy"]) == ("m2", False)
        asked = len(servers[0].requests)
        assert one.lookup(job.jid).found
        assert len(servers[0].requests) == asked, "one that hangs would take half of the time"


def test_a_token_that_ends_while_a_job_runs(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 401 comes long after the job was published, when Salt asks silent minions."""
    monkeypatch.setattr("saltext_ha.api.master.ASKED_AFTER", 0.0)
    master = script(servers[0], "401")
    with pool(*servers) as one:
        assert one.local("*", "test.x") == {"a": 1, "b": 2}
        assert len(master.sent) == 1
        master = script(servers[0], "401", "401", kept=[False, False])
        servers[1].answer = lambda handler, low: respond(handler, {}, 401)
        with pytest.raises(NotAuthorised):
            one.local("*", "test.x")
        master = script(servers[0], "401")
        master.refuses = True
        with pytest.raises(OutcomeUnknown, match="its token has ended meanwhile; looking it up"):
            one.local("*", "test.x")
        assert len(master.sent) == 1


def test_the_deadline_of_a_job_that_runs(servers: list[Server]) -> None:
    script(servers[0], "reset", returned=False)
    with pool(*servers, deadline=4) as one:
        with pytest.raises(TimedOut, match="1 of 2 minions still, or they are down: b") as late:
            one.local("*", "test.x")
        assert (late.value.returned, late.value.missing, late.value.master) == (
            {"a": 1},
            ["b"],
            "m1",
        )
        assert late.value.jid


def test_waiting_outlives_a_master_that_is_away(servers: list[Server]) -> None:
    master = script(servers[0])
    with pool(*servers) as one:
        job = one.local_async("*", "test.x")
        master.mute = True
        with pytest.raises(TimedOut, match=r"last look at m1: HTTP 503"):
            one.wait(job, deadline=2)
        with pytest.raises(NoMasterAvailable):
            one.lookup(job.jid, "m1")
        master.mute = False
        assert one.wait(job) == {"a": 1, "b": 2}


class Elsewhere:
    """A master that did not publish the job, and to which minion b has returned."""

    def __call__(self, handler: BaseHTTPRequestHandler, low: Any) -> None:
        result = {"b": {"return": "moved"}, "stranger": {"return": 3}}
        job = {"Function": "unknown-function", "Minions": [], "Result": result}
        respond(handler, {"return": [job]})


def test_what_a_minion_that_moved_returned_to_another_master_is_found(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "ELSEWHERE", 0.3)
    script(servers[0], returned=False)
    servers[1].answer = Elsewhere()
    with pool(*servers) as one:
        job = one.local_async("*", "test.x")
        assert one.wait(job) == {"a": 1, "b": "moved"}
        assert one.lookup(job.jid).returned == {"a": 1, "b": "moved"}
        assert one.lookup(job.jid, "m1").missing == ["b"], "where only that one is asked"
