"""A key store that cannot be listed: single keys can still be read and written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from saltext_ha.common.errors import HaError
from saltext_ha.reconciler import work_queue
from saltext_ha.reconciler.core import Core
from saltext_ha.reconciler.hints import Hint
from saltext_ha.replication.record import ACCEPTED, Record
from tests.functional.keepers import Master
from tests.loop import until

UNLISTED = "minions_denied: cannot be listed"


class Folder:
    """The folder of denied keys; as a link to itself nobody can list it, not even root."""

    def __init__(self, master: Master) -> None:
        self._path = master.root / "minions_denied"

    def spoil(self) -> None:
        self._path.rmdir()
        self._path.symlink_to(self._path)

    def mend(self) -> None:
        self._path.unlink()
        self._path.mkdir()


@pytest.fixture
def m1(tmp_path: Path) -> Master:
    return Master(tmp_path, "m1")


@pytest.fixture
def folder(m1: Master) -> Folder:
    return Folder(m1)


@pytest.fixture
def passes(m1: Master, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each pass over the store that was begun."""
    begun: list[None] = []
    changed = m1.store.changed

    def counted() -> Iterable[str]:
        begun.append(None)
        return changed()

    monkeypatch.setattr(m1.store, "changed", counted)
    return begun


def accepted_on_m2(tmp_path: Path, minion_id: str) -> list[Record]:
    m2 = Master(tmp_path, "m2", in_memory=True)
    m2.knock(minion_id, state=ACCEPTED)
    return m2.scan()


def test_no_other_success_makes_it_usable_again(
    m1: Master, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = accepted_on_m2(tmp_path, "web2")

    async def act() -> None:
        here = Core(m1.keeper, lambda records: None)
        await here.scan()
        folder.spoil()
        await here.scan()
        assert UNLISTED in here.problem

        m1.knock("web1", state=ACCEPTED)
        await here.hinted([Hint("web1", "alice", False)])
        assert await here.run(m1.state, "web1") == ACCEPTED
        assert UNLISTED in here.problem, "one key was read"
        await here.learn(theirs, "m2")
        assert m1.file(ACCEPTED, "web2").exists()
        assert UNLISTED in here.problem, "what a peer pushed was written"
        await here.apply()
        assert UNLISTED in here.problem, "nothing was left to be written"

        folder.mend()
        await here.scan()
        assert not here.problem
        here.close()

    monkeypatch.setattr(work_queue, "RETRY", 3600.0)
    asyncio.run(act())


def test_it_is_listed_again_before_the_next_regular_pass(
    m1: Master, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "RETRY", 0.1)

    async def act() -> None:
        here = Core(m1.keeper, lambda records: None)
        folder.spoil()
        await here.scan()
        await here.apply()
        m1.knock("web1", state=ACCEPTED)
        folder.mend()
        await until(lambda: not here.problem, "it was listed again")
        assert await here.run(m1.state, "web1") == ACCEPTED
        here.close()

    asyncio.run(act())


def test_it_is_not_listed_with_all_that_is_due(
    m1: Master, folder: Folder, passes: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "RETRY", 3600.0)

    async def act() -> None:
        here = Core(m1.keeper, lambda records: None)
        folder.spoil()
        await here.scan()
        await here.run(m1.keeper.work.add, ["web1"])
        await until(lambda: "web1" not in m1.keeper.work, "what is due is done")
        assert len(passes) == 1
        assert UNLISTED in here.problem
        here.close()

    asyncio.run(act())


def test_it_is_not_listed_once_the_engine_is_closed(
    m1: Master, folder: Folder, passes: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "RETRY", 0.05)
    monkeypatch.setattr(work_queue, "SETTLE", 0.0)

    async def act() -> None:
        here = Core(m1.keeper, lambda records: None)
        folder.spoil()
        await here.scan()
        await until(lambda: len(passes) > 2, "it is tried again")
        here.close()
        closed = len(passes)
        await asyncio.sleep(0.5)
        # A thread may just have been told to make one.
        assert len(passes) <= closed + 1

    asyncio.run(act())


def test_the_listing_that_an_operator_asked_for_counts_too(
    m1: Master, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "RETRY", 3600.0)

    async def act() -> None:
        here = Core(m1.keeper, lambda records: None)
        await here.scan()
        folder.spoil()
        with pytest.raises(HaError, match=UNLISTED):
            await here.order(m1.keeper.release, "alice")
        await here.apply()
        assert UNLISTED in here.problem
        here.close()

    asyncio.run(act())
