"""When a lost job is looked for, sent again and given up: a master that is played."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from saltext_ha.api import publish
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import CallFailed, TimedOut
from saltext_ha.api.jobs import JobStatus
from saltext_ha.api.publish import Pauses, Publisher, Unsettled
from saltext_ha.api.tokens import Refused
from saltext_ha.api.transport import Lost, NoTime, NotSent

pytestmark = pytest.mark.core

JID = "20260131031245123456"
LOW = {"jid": JID, "fun": "test.x"}


class Played:
    """
    A master.

    :param answers: of each sending, the last one of all that follow.
    :param looks: the same of what it knows of the job; default: it has none.
    """

    name = "m1"

    def __init__(self, answers: list[Any], looks: list[Any] | None = None) -> None:
        self.answers, self.looks = answers, looks or [JobStatus(JID, "m1", False)]
        self.sent = self.looked = 0
        self.had: list[float] = []

    def call(self, low: Mapping[str, Any], deadline: Deadline) -> Any:
        self.sent += 1
        self.had.append(deadline.remaining())
        return _next(self.answers)

    def job(self, jid: str, deadline: Deadline, limit: float) -> JobStatus:
        self.looked += 1
        found = _next(self.looks)
        assert isinstance(found, JobStatus)
        return found


def _next(script: list[Any]) -> Any:
    now = script.pop(0) if len(script) > 1 else script[0]
    if isinstance(now, Exception):
        raise now
    return now


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("GRACE", 0.02), ("FIRST_PAUSE", 0.005), ("LONGEST_PAUSE", 0.01)):
        monkeypatch.setattr(publish, name, seconds)


def send(master: Played, seconds: float = 10.0, closing: threading.Event | None = None) -> Any:
    """The answer, or what the master knows of the job."""
    publisher = Publisher(closing or threading.Event())
    answer, found = publisher.send(master, LOW, Deadline(seconds), True)  # type: ignore[arg-type]
    return found or answer


def test_half_of_the_time_is_left_to_look_for_it() -> None:
    master = Played([Lost("reset"), "the answer"])
    assert send(master) == "the answer"
    assert all(4 < seconds <= 5 for seconds in master.had)
    assert len(master.had) == 2


def test_what_broke_off_twice_is_sent_a_third_time_and_no_more() -> None:
    """Only an error that is complete says that the next one would be the same."""
    master = Played([Lost("reset"), Lost("reset"), "the answer"])
    assert send(master) == "the answer"
    never = Played([Lost("reset")])
    with pytest.raises(Unsettled, match="reset; sent 3 times, and m1 does not know it"):
        send(never)
    assert never.sent == publish.SENDINGS == 3
    ended = Played([Lost("reset"), Lost("HTTP 500", finished=True)])
    with pytest.raises(CallFailed, match="HTTP 500; it published no such job"):
        send(ended)


@pytest.mark.parametrize("later", [NotSent("refused the connection"), Refused("not authorised")])
def test_a_sending_that_is_refused_does_not_make_the_one_before_it_certain(
    later: Exception,
) -> None:
    absent, there = JobStatus(JID, "m1", False), JobStatus(JID, "m1", True)
    again = Played([Lost("reset"), later, "the answer"])
    assert send(again) == "the answer"

    class Late(Played):
        """The first sending comes after all, when the second has been tried."""

        def job(self, jid: str, deadline: Deadline, limit: float) -> JobStatus:
            self.looks = [there if self.sent > 1 else absent]
            return super().job(jid, deadline, limit)

    assert send(Late([Lost("reset"), later])) is there


def test_what_cannot_be_looked_for_is_unknown_and_says_why() -> None:
    master = Played([Lost("timed out")])
    with pytest.raises(Unsettled, match=r"^timed out$"):
        send(master, seconds=0.0)
    assert master.looked == 0


def test_a_pool_that_is_closed_waits_no_longer() -> None:
    closing = threading.Event()
    closing.set()
    master = Played([Lost("reset")], [Lost("HTTP 503")])
    with pytest.raises(Unsettled, match="reset; looking it up: HTTP 503"):
        send(master, closing=closing)
    assert master.looked == 1
    assert Pauses(closing).pause(Deadline(10)) is False


def test_looks_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    waited: list[float] = []

    class Closing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return False

    pauses = Pauses(Closing())
    assert all(pauses.pause(Deadline(60)) for _ in range(8))
    assert waited[:3] == pytest.approx([0.1, 0.15, 0.225])
    assert waited[-2:] == [1.0, 1.0]
    pauses.pause(Deadline(0.5))
    assert waited[-1] < 0.6, "not beyond the deadline"


class Last(Played):
    """After the last of *looks* there is no time left."""

    def __init__(self, looks: list[Any]) -> None:
        super().__init__([Lost("reset")], looks)
        self.over = threading.Event()

    def job(self, jid: str, deadline: Deadline, limit: float) -> JobStatus:
        if len(self.looks) == 1:
            self.over.set()
        return super().job(jid, deadline, limit)


def test_a_look_for_which_there_was_no_time_is_no_reason() -> None:
    master = Last([Lost("HTTP 503"), NoTime("no time left")])
    with pytest.raises(Unsettled, match=r"^reset; looking it up: HTTP 503$"):
        send(master, closing=master.over)


def test_who_was_counted_once_is_waited_for() -> None:
    begun = JobStatus(JID, "m1", True, ("a", "b"), {"a": 1})
    uncounted = JobStatus(JID, "m1", True, ("a",), {"a": 1}, counted=False)
    done = JobStatus(JID, "m1", True, ("a", "b"), {"a": 1, "b": 2}, counted=False)
    publisher = Publisher(threading.Event())
    master: Any = Played([], [uncounted, done])
    assert publisher.collect(master, begun, Deadline(10)).returned == {"a": 1, "b": 2}
    gone: Any = Last([Lost("HTTP 503"), JobStatus(JID, "m1", False)])
    with pytest.raises(TimedOut, match=r"are down: b \(m1 has no such job any more\)") as late:
        Publisher(gone.over).collect(gone, begun, Deadline(60))
    assert (late.value.returned, late.value.missing) == ({"a": 1}, ["b"])
    away: Any = Last([Lost("HTTP 503"), NoTime("no time left")])
    with pytest.raises(TimedOut, match=r"are down: b \(last look at m1: HTTP 503\)"):
        Publisher(away.over).collect(away, begun, Deadline(60))
    back: Any = Last([Lost("HTTP 503"), begun])
    with pytest.raises(TimedOut, match=r"are down: b$"):
        Publisher(back.over).collect(back, begun, Deadline(60))
