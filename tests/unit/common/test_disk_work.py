"""Work on a disk that hangs, or is slow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from saltext_ha.common.disk_work import DiskWork, steps
from saltext_ha.common.errors import DiskHangs
from tests.loop import in_a_loop, until

step = steps(lambda: None)


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("ha-disk")}


@in_a_loop
async def test_what_work_finds_or_fails_with_is_passed_on() -> None:
    work = DiskWork("/srv/x", 60)
    assert await work(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await work(divmod, 7, 0)


@in_a_loop
async def test_work_that_goes_on_may_take_longer_than_the_limit() -> None:
    work, done = DiskWork("/srv/x", 4), threading.Event()

    def slow() -> int:
        while not done.wait(0.05):
            step()
        return 7

    coming, waiting = asyncio.ensure_future(work(slow)), asyncio.ensure_future(work(int))
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 5, "longer than the limit")
    assert not coming.done()
    assert not waiting.done()
    done.set()
    assert await coming == 7
    assert await waiting == 0


@in_a_loop
async def test_work_that_hangs_is_given_up_and_keeps_one_thread() -> None:
    work, go, before = DiskWork("/srv/x", 0.3), threading.Event(), workers()
    ended: list[str] = []

    def hangs() -> None:
        go.wait()
        try:
            step()
        finally:
            ended.append("hung")

    def never() -> None:
        ended.append("never")

    try:
        tries = [asyncio.ensure_future(work(each)) for each in (hangs, never, never)]
        await asyncio.wait(tries)
        for each in tries:
            with pytest.raises(DiskHangs, match="/srv/x: the file system does not respond"):
                each.result()
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(DiskHangs):
                await work(never)
        assert time.monotonic() - began < 5
        assert len(workers() - before) == 1
        assert ended == []
    finally:
        go.set()
    await until(lambda: bool(ended), "the disk responds")
    await until_it_works(work)
    assert ended == ["hung"]


@in_a_loop
async def test_what_hangs_is_named_also_to_those_that_wait_for_it() -> None:
    work, go = DiskWork("/srv/x", 0.3), threading.Event()
    try:
        tries = [
            asyncio.ensure_future(work(go.wait, where="/srv/git")),
            asyncio.ensure_future(work(int)),
        ]
        await asyncio.wait(tries)
        for each in tries:
            with pytest.raises(DiskHangs, match=r"^/srv/git: the file system does not respond"):
                each.result()
        with pytest.raises(DiskHangs, match=r"^/srv/git: "):
            await work(int, where="/srv/y")
    finally:
        go.set()


@in_a_loop
async def test_work_that_was_given_up_ends_at_its_next_step() -> None:
    work, go = DiskWork("/srv/x", 0.3), threading.Event()
    said: list[BaseException] = []

    def hangs() -> None:
        go.wait()
        try:
            step()
        except DiskHangs as exc:
            said.append(exc)

    try:
        with pytest.raises(DiskHangs):
            await work(hangs)
    finally:
        go.set()
    await until(lambda: bool(said), "it has ended")


async def until_it_works(work: DiskWork) -> None:
    """Soon, when the thread has ended what hung."""

    async def tried(function: Callable[[], int]) -> bool:
        try:
            return await work(function) == 0
        except DiskHangs:
            return False

    while not await tried(int):
        await asyncio.sleep(0.01)
