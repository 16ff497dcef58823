"""What ran under a name, kept by masters in one process: each with a replica of its own."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from saltext_ha.commands.once import once_runner
from saltext_ha.commands.once.once import Once
from saltext_ha.common.errors import EtcdError, HaError, LeadsNoMore, PeerUnreachable
from saltext_ha.once.runs import MOST, Runs
from saltext_ha.replica.replica import Replica
from saltext_ha.sync.vouching import Claiming, Vouching
from saltext_ha.transport import wire
from saltext_ha.transport.listener import Handler
from saltext_ha.transport.peer import Peer
from tests.leader import Leader
from tests.loop import in_a_loop, until

NO_GROUP: Any = None
"""Only a master that takes no part in leading asks its group."""


class Core:
    """
    What is used of the keeper's thread.

    :ivar goes_on: while it is not set, writes wait. :ivar waits: whether one does.
    """

    def __init__(self, file: Path) -> None:
        self.replica, self.waits = Replica(file), False
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if function.__name__ == "write":
            self.waits = not self.goes_on.is_set()
            await self.goes_on.wait()
        return function(*arguments)

    async def meet(self, words: list[Any], sender: str) -> dict[str, list[str]]:
        return {}


class Believing(Vouching):
    """All are believed."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def of(self, nodes: Iterable[str]) -> list[Any]:
        return []

    async def meet(
        self, core: Core, sender: str, raw: Any, claiming: Iterable[Claiming] | None = None
    ) -> None:
        pass

    def note(self, peer: str, reasons: Sequence[str]) -> None:
        raise AssertionError(reasons)


class Contact:
    """To another master; its own client."""

    def __init__(self, group: Group, me: str, to: str) -> None:
        self._group, self._me, self._to = group, me, to

    @property
    def up(self) -> bool | None:
        return None if self._to in self._group.untried else self._to not in self._group.down

    @property
    def client(self) -> Contact:
        return self

    async def call(self, method: str, payload: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        if self._to in self._group.down:
            raise PeerUnreachable("refused the connection")
        handler = self._group.runs[self._to].for_peers()[method]
        peer = Peer(self._me, "https://x:1", "", "")
        return wire.unpack(wire.pack(dict(await handler(peer, wire.unpack(wire.pack(payload))))))


class Group:
    def __init__(self, root: Path) -> None:
        self.root, self.down, self.untried = root, set[str](), set[str]()
        self.names = ("m1", "m2")
        self.leaders = {name: Leader(name, "m1", fence=7) for name in self.names}
        self.cores: dict[str, Core] = {}
        self.contacts: dict[str, dict[str, Contact]] = {}
        self.runs = {name: self.start(name) for name in self.names}
        self.did: list[str] = []
        self.told: list[str] = []
        """What to do, as each answer of an engine said."""

    def start(self, name: str) -> Runs:
        """A start of that master; what it was before has ended."""
        if name in self.cores:
            self.cores[name].replica.close()
        contacts = {other: Contact(self, name, other) for other in self.names if other != name}
        self.contacts[name] = contacts
        core = self.cores[name] = Core(self.root / f"{name}.db")
        vouching = Believing(core.replica)
        return Runs(name, core, contacts, self.leaders[name], vouching, 0.1)  # type: ignore[arg-type]

    def remove(self, name: str) -> None:
        """As ``ha.remove_peer`` does."""
        for contacts in self.contacts.values():
            contacts.pop(name, None)

    async def once(self, master: str, /, **options: Any) -> dict[str, Any]:
        """``ha.once`` there."""
        loop = asyncio.get_running_loop()

        def ask(command: str, payload: dict[str, Any]) -> dict[str, Any]:
            there = Once(NO_GROUP, self.leaders[master], self.runs[master])
            work: Any = {"once": there.once, "once_end": there.end}[command]
            work = work({**payload, "by": "root"})
            answer: dict[str, Any] = asyncio.run_coroutine_threadsafe(work, loop).result(20)
            self.told += [answer["do"]] if command == "once" else []
            return answer

        def effect() -> None:
            self.did.append(master)

        def run() -> dict[str, Any]:
            functions = once_runner.Functions({}, {"effect.do": effect}, {})
            return once_runner.run(ask, functions, "effect.do", (), {}, **options)

        return await asyncio.to_thread(run)


@contextmanager
def running() -> Iterator[int]:
    """The pid of a process that is killed on leaving."""
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@in_a_loop
async def test_two_that_both_believe_to_lead_run_it_once(tmp_path: Path) -> None:
    """As for a moment when one follows the other."""
    group = Group(tmp_path)
    group.leaders["m2"].follows = "m2"
    for turn in range(10):
        group.did.clear()
        asked = [group.once(name, name=f"n{turn}", within="1h") for name in group.names * 2]
        answers = await asyncio.gather(*asked)
        assert len(group.did) == 1
        assert sum(not answer["skipped"] for answer in answers) == 1
    assert {row["state"] for row in group.runs["m1"].table()} == {"done"}


@pytest.mark.parametrize("untried", [False, True], ids=["", "before it has met a peer"])
@pytest.mark.parametrize("state", ["done", "running"])
@in_a_loop
async def test_a_leader_that_lost_what_ran_hears_of_it_before_it_runs_it_again(
    tmp_path: Path, state: str, untried: bool
) -> None:
    """As when its machine is put back from a backup: it leads before it has compared its runs."""
    group = Group(tmp_path)
    with running() as pid:
        run, _ = await group.runs["m1"].begin("n", "effect.do", "root", 60, pid)
        assert run
        if state == "done":
            await group.runs["m1"].end("n", run.start, state)
        group.leaders["m2"].follows = "m2"
        group.cores["m2"].replica.close()
        (tmp_path / "m2.db").unlink()
        group.runs["m2"] = group.start("m2")
        group.untried |= {"m1"} if untried else set()
        answer = await group.once("m2", name="n", within="1h", wait=0)
        assert (answer["skipped"], group.did) == (True, [])
        runs_it = state == "running" and not untried  # before it is met, that may be of long ago
        says = "m1 ran it" if state == "done" else "m1 runs it" if runs_it else "m1 began it"
        assert answer["why"].startswith(says)
        group.untried.clear()
        for runs in group.runs.values():
            assert [(row["on"], row["state"]) for row in runs.table()] == [("m1", state)]


@in_a_loop
async def test_one_that_follows_takes_over_what_the_leader_never_began(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.down.add("m1")
    waiting = asyncio.ensure_future(group.once("m2", name="n", within="1h", wait=20))
    await until(lambda: not waiting.done(), "it waits")
    group.leaders["m2"].follows = "m2"
    answer = await waiting
    assert (answer["skipped"], answer["fence"], group.did) == (False, 7, ["m2"])


@in_a_loop
async def test_one_that_follows_says_so_when_its_wait_is_over(tmp_path: Path) -> None:
    group = Group(tmp_path)
    answer = await group.once("m2", name="n", within="1h", wait=0)
    assert (answer["skipped"], answer["retcode"]) == (True, 0)
    assert answer["why"] == "m1 leads, and has not begun it"
    group.leaders["m2"].follows = ""
    answer = await group.once("m2", wait=0)
    assert (answer["skipped"], answer["retcode"]) == (True, 1)
    assert "nobody leads" in answer["why"]


@in_a_loop
async def test_a_leader_that_steps_down_just_before_the_run_has_not_skipped_it(
    tmp_path: Path,
) -> None:
    """It would exit 0, though nobody runs it."""
    group = Group(tmp_path)

    class SteppingDown(Runs):
        def for_peers(self) -> dict[str, Handler]:
            group.leaders["m1"].follows = ""
            return super().for_peers()

    group.runs["m2"].__class__ = SteppingDown
    answer = await group.once("m1", name="n", within="1h", wait=0)
    assert (answer["skipped"], answer["waited"], answer["retcode"]) == (True, True, 1)
    assert (answer["leader"], answer["why"]) == (None, "this master leads no more")
    group.leaders["m1"].follows = "m1"
    waiting = asyncio.ensure_future(group.once("m1", name="n", within="1h", wait=20))
    await until(lambda: not group.leaders["m1"].follows, "it has stepped down")
    group.runs["m2"].__class__ = Runs
    group.leaders["m1"].follows = "m1"
    answer = await waiting
    assert (answer["why"], group.did) == ("", ["m1"])


@in_a_loop
async def test_who_is_due_while_the_last_run_goes_on_past_its_period_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that hangs is skipped each night, and that must not look as if it ran."""
    monkeypatch.setattr("saltext_ha.replication.runs.FRESH", 0.0)  # it began long ago
    group = Group(tmp_path)
    with running() as pid:
        run, _ = await group.runs["m1"].begin("n", "effect.do", "root", 60, pid)
        assert run
        for master in group.names:
            due = await group.once(master, name="n", within="1h", wait=0)
            assert (due["skipped"], due["waited"], due["retcode"]) == (True, False, 0)
            late = await group.once(master, name="n", within=0, wait=0)
            assert (late["skipped"], late["waited"], late["retcode"]) == (True, True, 1)
            assert late["why"].startswith("m1 runs it, since ")
        waiting = asyncio.ensure_future(group.once("m1", name="n", within=0, wait=20))
        group.told.clear()
        await until(lambda: group.told, "it has asked")
        await group.runs["m1"].end("n", run.start, "done")
        assert not (await waiting)["skipped"]
    assert group.told[0] == "wait"
    assert (group.told[-1], group.did) == ("run", ["m1"])


@in_a_loop
async def test_a_run_that_etcd_refuses_leaves_what_ran_before_to_be_seen(tmp_path: Path) -> None:
    """A run that failed must not look as if all were well, only as etcd is full."""
    group = Group(tmp_path)
    with running() as pid:
        for state in ("done", "failed"):
            run, _ = await group.runs["m1"].begin("n", "f.g", "root", 0, pid)
            assert run
            await group.runs["m1"].end("n", run.start, state)
        group.leaders["m1"].refuses = EtcdError("etcd cannot be asked: space exceeded")
        with pytest.raises(EtcdError, match="space exceeded"):
            await group.runs["m1"].begin("n", "f.g", "root", 0, pid)
    for runs in group.runs.values():
        assert [row["state"] for row in runs.table()] == ["failed"]
    assert [row["state"] for row in group.start("m2").table()] == ["failed"]


@in_a_loop
async def test_what_was_on_disk_is_unfinished_after_a_restart(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with running() as pid:
        run, _ = await group.runs["m1"].begin("n", "f.g", "root", 60, pid)
        assert run
        again = group.start("m1")
        task = asyncio.ensure_future(again.run())
        await until(lambda: [r["state"] for r in again.table()] == ["unfinished"], "it shows")
        # Its process went on all the time, and says how it ended.
        await again.end("n", run.start, "done")
        assert [row["state"] for row in again.table()] == ["done"]
        task.cancel()


@in_a_loop
async def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    group = Group(tmp_path)
    with running() as pid:
        run, _ = await group.runs["m1"].begin("n", "f.g", "root", 60, pid)
        assert run
        task = asyncio.ensure_future(group.runs["m1"].run())
    await until(
        lambda: [r["state"] for r in group.runs["m2"].table()] == ["unfinished"], "it shows"
    )
    task.cancel()


@in_a_loop
async def test_what_this_master_is_said_to_run_and_does_not_is_unfinished(tmp_path: Path) -> None:
    """As after its replica.db was lost; or somebody says so, and would keep it from running."""
    group = Group(tmp_path)
    with running() as pid:
        assert (await group.runs["m1"].begin("n", "f.g", "root", 60, pid))[0]
        (tmp_path / "m1.db").rename(tmp_path / "lost.db")
        again = group.start("m1")
        assert not again.table()
        group.runs["m1"] = again
        task = asyncio.ensure_future(again.run())
        await until(
            lambda: {r["state"] for r in group.runs["m2"].table()} == {"unfinished"}, "both know"
        )
        assert [row["state"] for row in again.table()] == ["unfinished"]
        task.cancel()


@in_a_loop
async def test_what_still_runs_is_forgotten_last(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.down.add("m2")
    runs = group.runs["m1"]
    with running() as pid:
        first, _ = await runs.begin("first", "f.g", "root", 60, pid)
        assert first
        for number in range(MOST + 5):
            run, _ = await runs.begin(f"n{number}", "f.g", "root", 60, pid)
            assert run
            await runs.end(f"n{number}", run.start, "done")
    assert "first" in runs.registers
    assert len(runs.registers) == MOST


@in_a_loop
async def test_names_that_ran_long_ago_are_forgotten(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.down.add("m2")
    runs = group.runs["m1"]
    with running() as pid:
        for number in range(MOST + 5):
            run, _ = await runs.begin(f"n{number}", "f.g", "root", 60, pid)
            assert run
    assert len(runs.registers) == MOST
    assert "n0" not in runs.registers
    assert len(group.start("m1").registers) == MOST


@in_a_loop
async def test_another_function_under_the_same_name_is_refused_on_all_masters(
    tmp_path: Path,
) -> None:
    """Skipped as if it had run, it would run nowhere, and nobody would be told."""
    group = Group(tmp_path)
    with running() as pid:
        run, _ = await group.runs["m1"].begin("n", "state.orchestrate", "root", 60, pid)
        assert run
        await group.runs["m1"].end("n", run.start, "done")
        for master in group.names:
            once = Once(NO_GROUP, group.leaders[master], group.runs[master])
            asked = {"function": "cache.clear_all", "name": "n", "pid": pid}
            with pytest.raises(HaError) as refused:
                await once.once({**asked, "within": "1h"})
            before, _, why = str(refused.value).partition(" s ago, ")
            assert re.fullmatch(r"name=n: m1 ran it \d+", before)
            assert why == (
                "but it was state.orchestrate, not cache.clear_all; "
                "give each function a name of its own"
            )
        assert (await once.once({**asked, "within": "0"}))["do"] == "wait", "it may change"


@in_a_loop
async def test_what_it_runs_stands_in_the_log_without_control_characters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    once = Once(NO_GROUP, Leader("m1", "m1"), Group(tmp_path).runs["m1"])
    with running() as pid, caplog.at_level("INFO"):
        await once.once({"function": "f.g\nadmin", "pid": pid, "name": "n", "by": "a\x1b[2J"})
    (line,) = [one.getMessage() for one in caplog.records if "runs" in one.getMessage()]
    assert line.isprintable(), line


@in_a_loop
async def test_a_peer_whose_runs_are_not_taken_is_named_while_it_is_a_member(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path)
    first = group.runs["m1"]
    contact = Mock(client=AsyncMock())
    contact.client.call.return_value = {"runs": {"n" * 65: []}}
    await first._ask("m2", contact, "runs", {})
    assert "once: what m2 says is not taken: name: takes at most" in "".join(first.notes())
    group.remove("m2")
    assert not [*first.notes()]


@in_a_loop
async def test_nonsense_is_refused_on_all_masters(tmp_path: Path) -> None:
    group = Group(tmp_path)
    for master in group.names:
        once = Once(NO_GROUP, group.leaders[master], group.runs[master])
        for wrong in (
            {"pid": True},
            {"pid": 1, "within": "soon"},
            {"pid": 1, "name": "n" * 65},
            {"pid": 1, "name": "a\nb"},
        ):
            with pytest.raises(HaError):
                await once.once({"function": "f.g", **wrong})
    once = Once(NO_GROUP, group.leaders["m1"], group.runs["m1"])
    with pytest.raises(HaError, match="the process that is to run it"):
        await once.once({"function": "f.g", "pid": 2**22, "name": "n"})
    for wrong in ({"start": ["x", 1], "state": "gone"}, {"start": 5, "state": "done"}):
        with pytest.raises(HaError):
            await once.end({"name": "n", **wrong})


@in_a_loop
async def test_two_that_begin_and_hear_of_each_other_late_do_not_both_give_way(
    tmp_path: Path,
) -> None:
    """As when one is stopped just before it writes its run down. Each would exit 0."""
    group = Group(tmp_path)
    group.leaders["m2"].follows = "m2"
    group.cores["m1"].goes_on.clear()
    first = asyncio.ensure_future(group.once("m1", name="n", within="1h", wait=5))
    await until(lambda: group.cores["m1"].waits, "m1 has begun it, and is stopped")
    second = asyncio.ensure_future(group.once("m2", name="n", within="1h", wait=5))
    await until(lambda: group.runs["m2"].registers, "m2 has begun it, too")
    group.cores["m1"].goes_on.set()
    answers = await first, await second
    assert len(group.did) == 1
    assert sorted(answer["skipped"] for answer in answers) == [False, True]


@in_a_loop
async def test_a_new_leader_runs_what_the_former_one_told_of_and_withdraws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, noticed = Group(tmp_path), asyncio.Event()

    async def claim(name: str, within: float) -> str:
        await noticed.wait()
        raise LeadsNoMore("this master leads no more")

    monkeypatch.setattr(group.leaders["m1"], "claim", claim)
    first = asyncio.ensure_future(group.once("m1", name="n", within="1h", wait=0))
    await until(lambda: group.runs["m2"].registers, "m1 has told of it")
    for leader in group.leaders.values():
        leader.follows = "m2"
    second = asyncio.ensure_future(group.once("m2", name="n", within="1h", wait=20))
    await until(lambda: group.told, "m2 has asked")
    noticed.set()
    assert (await first)["skipped"]
    assert not (await second)["skipped"]
    assert group.did == ["m2"]


@in_a_loop
async def test_what_is_heard_only_when_it_begins_is_answered_as_what_was_known(
    tmp_path: Path,
) -> None:
    """A run that hangs is no success; and another function does not count as this one."""
    group = Group(tmp_path)
    group.leaders["m2"].follows = "m2"
    with running() as pid:
        group.down.add("m2")
        assert (await group.runs["m1"].begin("n", "effect.do", "root", 60, pid))[0]
        assert (await group.runs["m1"].begin("other", "f.g", "root", 60, pid))[0]
        group.down.clear()
        late = await group.once("m2", name="n", within=0, wait=0)
        assert (late["skipped"], late["retcode"]) == (True, 1)
        with pytest.raises(HaError, match=r"but it was f\.g, not effect\.do"):
            await group.once("m2", name="other", within="1h", wait=0)
    assert not group.did


@in_a_loop
async def test_a_run_that_is_withdrawn_leaves_to_be_seen_what_failed_last(tmp_path: Path) -> None:
    """Though a peer tells of an older run, from when they did not reach each other."""
    group = Group(tmp_path)
    with running() as pid:
        for master, state in (("m2", "done"), ("m1", "failed")):
            group.leaders["m1"].follows = group.leaders["m2"].follows = master
            group.down = {*group.names} - {master}
            run, _ = await group.runs[master].begin("n", "f.g", "root", 0, pid)
            assert run
            await group.runs[master].end("n", run.start, state)
        group.down = set()
        group.leaders["m1"].refuses = EtcdError("etcd cannot be asked: space exceeded")
        with pytest.raises(EtcdError, match="space exceeded"):
            await group.runs["m1"].begin("n", "f.g", "root", 0, pid)
    for runs in group.runs.values():
        assert {row["state"] for row in runs.table()} == {"done", "failed"}
