"""What is still to be looked at is due in time, and is forgotten only when it is written down."""

from __future__ import annotations

import math

import pytest

from saltext_ha.reconciler.task import Task
from saltext_ha.reconciler.work_queue import RETRY, SETTLE, WorkQueue
from tests.unit.clock import Clock


@pytest.fixture
def work(clock: Clock) -> WorkQueue:
    return WorkQueue(clock)


def test_what_is_begun_and_not_done_is_due_again(work: WorkQueue, clock: Clock) -> None:
    work.begin(["web1", "web2"])
    work.done(["web1"])
    assert work.take() == []
    clock.now += RETRY
    assert work.next <= clock.now
    assert work.take() == [Task.look(["web2"])]
    assert work.take() == []
    assert work.ids() == ["web2"]
    assert work.next == clock.now + RETRY


def test_what_is_unsettled_is_certain_a_moment_later(work: WorkQueue, clock: Clock) -> None:
    work.begin(["web1"])
    work.look_again("web1")
    assert work.next == clock.now + SETTLE
    assert work.take() == []
    clock.now += SETTLE
    assert work.take() == [Task.look(["web1"], certain=True)]


def test_however_often_it_is_looked_at_meanwhile(work: WorkQueue, clock: Clock) -> None:
    work.look_again("web1")
    for _ in range(4):
        clock.now += SETTLE / 4
        work.begin(["web1"])
        work.look_again("web1")
    assert work.take() == [Task.look(["web1"], certain=True)]


def test_what_is_put_off_is_looked_at_again_and_never_certain(
    work: WorkQueue, clock: Clock
) -> None:
    work.look_again("web1", believe=False)
    assert work.next == clock.now + SETTLE
    work.look_again("web1")
    for _ in range(3):
        clock.now += SETTLE / 2
        work.look_again("web1", believe=False)
        assert work.take() == []
        assert work.overdue() < 0
    clock.now += SETTLE
    assert work.take() == [Task.look(["web1"])]


def test_a_deletion_is_kept_until_it_is_written_down(work: WorkQueue, clock: Clock) -> None:
    work.begin(["web1"], "alice", deleted=True)
    work.begin(["web1"])
    work.done(["web1"])  # by a pass, which sees nothing of it
    assert work.late() == [Task.look(["web1"], "alice", deleted=True)]
    clock.now += RETRY
    assert work.take() == work.late()
    work.done(["web1"], deleted=True)
    assert work.late() == []
    assert "web1" not in work


def test_something_else_is_tried_again(work: WorkQueue, clock: Clock) -> None:
    assert work.next == math.inf
    work.wake()
    assert work.next == clock.now + RETRY
    clock.now += RETRY
    assert work.take() == []
    assert work.next == math.inf


def test_work_on_no_ids_leaves_nothing_due(work: WorkQueue) -> None:
    work.begin([])
    assert work.next == math.inf
