"""Engines tell each other of minions, have them asked and moved; Salt itself is played here."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place, befriend
from saltext_ha.commands.minions import cmd_batches, drain, moves
from saltext_ha.commands.minions import minions as bound
from saltext_ha.common.errors import (
    HaError,
    InvalidRecord,
    PeerMistrust,
    PeerRefused,
    PeerUnreachable,
    PublishingTimedOut,
)
from saltext_ha.common.hysteresis import Health
from saltext_ha.config.health import HealthSettings
from saltext_ha.minions import own_jobs, presence, returns
from saltext_ha.minions.job_specs import (
    FUNCTIONS,
    MINE,
    MOVE,
    PING,
    REFRESH,
    WHERE,
    CommandSpec,
    JobSpec,
)
from saltext_ha.minions.own_jobs import NO_ROOM
from saltext_ha.minions.presence import Sight
from saltext_ha.minions.publishing import new_jids
from saltext_ha.runners import ha as runner
from saltext_ha.salt_bus import intake
from saltext_ha.transport import control_client
from tests.engines import QUICK, run, running
from tests.keys import public_key
from tests.loop import becomes, in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

SECONDS = 0.5
LONG = 60.0  # longer than any answer here takes
NO_MASTER = "there is no master {} in this group; its masters: m1, m2. Give one of these names"
REFRESHING = (FUNCTIONS[REFRESH], FUNCTIONS[MINE])


@pytest.fixture(autouse=True)
def heard_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nobody is connected to the publishers here: after ten seconds, on a busy machine, minions that
    were heard would count as gone.
    """
    monkeypatch.setattr(bound, "NEW", 10 * LONG)


@dataclass
class Minion:
    """
    ``hears``: masters that its publisher connection leads to. ``returns``: where what it returns
    arrives, when not where it was asked. ``stuck``: it agrees to move and does not; ``mute``: it
    does not even answer. ``busy``: it is at work on what it was asked, and says so.
    """

    kind: str
    hears: set[str]
    returns: str = ""
    installed: bool = True
    stuck: bool = False
    mute: bool = False
    busy: bool = False
    asked: list[str] = field(default_factory=list)


class World:
    """Minions, and masters that publish to them: a stand-in for salt-master."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self.engines = engines
        self.minions: dict[str, Minion] = {}
        self.broken: set[str] = set()
        self.later: list[Callable[[], None]] = []
        self.published: list[tuple[str, str, str]] = []
        """Master, function, job id; without what a minion is asked some time after it came."""
        for name, engine in engines.items():
            here = engine.made.jobs.here
            here.publish = self._publisher(name)
            here.connections = functools.partial(self.connected, name)

    def connected(self, master: str) -> int:
        return sum(master in minion.hears for minion in self.minions.values())

    def fire(self, master: str, tag: str, data: Mapping[str, Any]) -> None:
        self.engines[master].parts.bus.tell(tag, data)

    def start(self, master: str, minion_id: str) -> None:
        data = {"id": minion_id, "cmd": "_minion_event"}
        self.fire(master, f"salt/minion/{minion_id}/start", data)

    def _publisher(self, master: str) -> Callable[[Any, JobSpec, str], list[str]]:
        def publish(opts: Any, order: JobSpec, jid: str) -> list[str]:
            if master in self.broken:
                raise HaError("Salt request timed out")
            function, target, kind, arguments = order.job()
            if function not in REFRESHING:
                self.published.append((master, function, jid))
            self.fire(master, f"salt/job/{jid}/new", {"jid": jid})
            if kind == "compound":  # ( L@ID,ID ) and not L@ID; or with a glob, or without the not
                within, rest = str(target)[2:].split(" ) and ")
                named = rest.rpartition("@")[2].split(",")
                listed = within.removeprefix("L@").split(",")
                ids = [i for i in self.minions if i in listed or fnmatchcase(i, within)]
                ids = [i for i in ids if (i in named) != rest.startswith("not ")]
            else:
                ids = [i for i in self.minions if kind == "list" or fnmatchcase(i, str(target))]
                ids = [i for i in ids if kind == "glob" or i in target]
            for minion_id in ids:
                minion = self.minions[minion_id]
                if master in minion.hears:
                    minion.asked.append(function)
                    if minion.mute and function == "ha.failover":
                        continue
                    if minion.busy and function == "test.arg":
                        continue
                    value = self._does(minion_id, minion, master, function, arguments)
                    data = {"id": minion_id, "fun": function, "return": value, "jid": jid}
                    self.fire(minion.returns or master, f"salt/job/{jid}/ret/{minion_id}", data)
            return ids

        return publish

    def address(self, master: str) -> str:
        return str(self.engines[master].place.opts["interface"])

    def _does(
        self, minion_id: str, minion: Minion, master: str, function: str, arguments: Any
    ) -> Any:
        if function in REFRESHING:
            return True
        if function in ("test.ping", "test.arg"):
            return True if function == "test.ping" else arguments
        if function == "saltutil.find_job":
            return {"jid": arguments[0], "fun": "test.arg"} if minion.busy else {}
        if not minion.installed:
            return f"'{function}' is not available."
        masters = [self.address(name) for name in self.engines]
        if function == "ha.current_master":
            here = {"masters": masters, "address": self.address(master)}
            return {"type": minion.kind, "version": "0.1.0", **here}
        if minion.kind != "failover":
            return {"result": False, "comment": "this minion is bound to all its masters at once"}
        target = next(n for n in self.engines if self.address(n) == arguments[0]["to"])
        if arguments[0]["test"]:
            return {"result": None, "from": master, "to": target}
        if not minion.stuck:
            minion.hears = {target}
            data = {"id": minion_id, "cmd": "_minion_event"}
            self.later.append(
                lambda: self.fire(target, f"salt/ha/minion/{minion_id}/failover", data)
            )
        return {"result": True, "comment": "moves"}


@asynccontextmanager
async def world(
    root: Path, masters: int = 2, options: Mapping[str, Any] | None = None, **minions: Minion
) -> AsyncIterator[World]:
    """Masters that have met, with accepted minions; *options* are in their configuration."""
    places = [
        Place(
            root,
            f"m{number}",
            QUICK,
            {"interface": f"127.0.0.{number + 1}", "gather_job_timeout": 1, **(options or {})},
        )
        for number in range(1, masters + 1)
    ]
    befriend(*places)
    for number, name in enumerate(minions):
        folder = places[0].pki_dir / "minions"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(public_key(number % 4))
    async with running(*places) as engines:
        made = World({engine.place.name: engine for engine in engines})
        made.minions = minions
        for engine in engines:
            await engine.meets(*(other for other in engines if other is not engine))
        cores = [engine.parts.core for engine in engines]
        await until(
            lambda: all(
                core.replica.counts().get("accepted", 0) == len(minions)
                and not core.mode.lost  # or it is not ready yet
                for core in cores
            ),
            "all keys are on both",
        )

        async def arrive() -> None:
            while True:
                await asyncio.sleep(0.02)
                while made.later:
                    made.later.pop()()

        arriving = asyncio.ensure_future(arrive())
        yield made
        arriving.cancel()


def m1(world: World) -> Place:
    return world.engines["m1"].place


def failover(*hears: str, **more: Any) -> Minion:
    return Minion("failover", set(hears), **more)


def hot(*hears: str, **more: Any) -> Minion:
    return Minion("list", set(hears), **more)


def states(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {row["id"]: row["state"] for row in answer["minions"]}


@in_a_loop
async def test_who_is_connected_nowhere_is_not_waited_for(tmp_path: Path) -> None:
    """Not for the whole timeout: all who can hear the question have answered it."""
    async with world(tmp_path, fo1=failover("m1"), fo2=failover("m2"), off=failover()) as there:
        began = time.monotonic()
        live = await run(m1(there), "minions", live=True, timeout=LONG)
        assert states(live) == {"fo1": "bound", "fo2": "bound", "off": "silent"}
        ran = await run(m1(there), "cmd", ["fo1", "off"], "test.arg", timeout=LONG)
        assert (set(ran["returned"]), ran["retcode"]) == ({"fo1"}, 1)
        assert time.monotonic() - began < LONG / 2


@in_a_loop
async def test_a_command_is_waited_for_no_longer_because_of_absent_minions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    async with world(tmp_path, fo1=failover("m1"), off=failover()) as there:
        here, (jid,) = there.engines["m1"].made.jobs.here, new_jids(1)
        order = CommandSpec(["fo1", "off"], "list", "test.arg").to_wire()
        await here.run({"jid": jid, "order": order, "timeout": SECONDS})
        began = time.monotonic()
        told = await here.more({"jid": jid, "timeout": LONG})
        assert [minion_id for minion_id, *_ in told["returned"]] == ["fo1"]
        assert time.monotonic() - began < LONG / 2


@pytest.mark.parametrize("seen", [0, 1, 2, 3, None], ids="{} connections".format)
@in_a_loop
async def test_who_is_connected_and_slow_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: int | None
) -> None:
    """
    Not by a master that has as many returns as connections, until it has seen that several minions
    share one.
    """
    monkeypatch.setattr(own_jobs, "LAST", 0.2)
    minions = {name: hot("m1") for name in ("web1", "web2", "web3")}
    async with world(tmp_path, **minions) as there:
        engine, loop = there.engines["m1"], asyncio.get_running_loop()
        here, slow = engine.made.jobs.here, 2 * LONG if seen == 2 else 3.0

        def publish(opts: Any, order: Any, jid: str) -> list[str]:
            for after, minion_id in ((0.0, "web1"), (0.0, "web2"), (slow, "web3")):
                tag, data = f"salt/job/{jid}/ret/{minion_id}", {"id": minion_id, "return": 1}
                loop.call_soon_threadsafe(loop.call_later, after, engine.parts.bus.tell, tag, data)
            return [*minions]

        async def ask() -> list[str]:
            (jid,) = new_jids(1)
            order = JobSpec(PING, glob="*").to_wire()
            told = await here.run({"jid": jid, "order": order, "timeout": LONG})
            return [minion_id for minion_id, *_ in told["returned"]]

        here.publish, here.connections = publish, lambda: seen
        assert await ask() == ["web1", "web2", "web3"][: 2 if seen == 2 else 3]
        if seen in (0, 1):
            here.connections = lambda: 2
            assert await ask() == ["web1", "web2", "web3"]


@pytest.mark.parametrize("says", ["it has returned", "it runs it"])
@in_a_loop
async def test_that_minions_share_a_connection_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """Also from what comes when the first job is over."""
    monkeypatch.setattr(own_jobs, "LAST", 0.2)
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    busy = says == "it runs it"
    minions = {"web1": hot("m1"), "web2": hot("m1", busy=busy)}
    async with world(tmp_path, **minions) as there:
        engine, loop = there.engines["m1"], asyncio.get_running_loop()
        here, real = engine.made.jobs.here, engine.made.jobs.here.publish

        def publish(opts: Any, order: Any, jid: str) -> list[str]:
            if busy:
                return real(opts, order, jid)
            for after, name in ((0.0, "web1"), (4.0, "web2")):
                tag, data = f"salt/job/{jid}/ret/{name}", {"id": name, "return": True}
                later = functools.partial(engine.parts.bus.tell, tag, data)
                loop.call_soon_threadsafe(loop.call_later, after, later)
            return [*minions]

        async def ask(jid: str) -> dict[str, Any]:
            order = CommandSpec("*", "glob", "test.arg") if busy else JobSpec(PING, glob="*")
            return await here.run({"jid": jid, "order": order.to_wire(), "timeout": seconds})

        here.publish, here.connections = publish, lambda: 1
        first, second = new_jids(2)
        seconds = 5.0 if busy else LONG
        told = await ask(first)
        assert [name for name, *_ in told["returned"]] == ["web1"]
        assert told["running"] == (["web2"] if busy else [])
        await until(lambda: here._shared, "it is learnt")
        if busy:  # or an operator's job would be asked for again and again
            began = time.monotonic()
            await here.more({"jid": first, "timeout": 5.0})
            assert time.monotonic() - began > 4.0
        else:
            assert len((await ask(second))["returned"]) == 2


@pytest.mark.parametrize(
    ("seen", "cluster", "most"),
    [
        ([1, 2], "", 2),  # one came while the job was published
        ([2, 1], "", 2),  # one has heard it and left
        ([None, 2], "", None),
        ([2, None], "", None),
        ([2, 2], "c", None),  # what minions of other members return comes here, too
    ],
)
@in_a_loop
async def test_how_many_can_hear_a_job(
    tmp_path: Path, seen: list[int | None], cluster: str, most: int | None
) -> None:
    async with world(tmp_path, web1=hot("m1")) as there:
        here, spec = there.engines["m1"].made.jobs.here, JobSpec(PING, glob="*")
        here._opts, here.connections = {"cluster_id": cluster}, lambda: seen.pop(0)
        job = here._publish(spec, new_jids(1)[0], count=True)
        assert (job.targeted, job.connections) == ({"web1"}, most)


@in_a_loop
async def test_what_all_masters_have_heard_is_put_together(tmp_path: Path) -> None:
    minions = {name: failover() for name in ("db1", "web1", "web2")}
    async with world(tmp_path, **minions) as there:
        there.start("m1", "web1")
        there.start("m2", "db1")
        there.start("m2", "stranger")  # no accepted key: nothing to look for
        for name in ("m1", "m2"):
            answer = await run(there.engines[name].place, "minions")
            assert states(answer) == {"db1": "bound", "web1": "bound", "web2": "unknown"}
            assert [row["masters"] for row in answer["minions"]] == [["m2"], ["m1"], []]
            assert {row["name"]: row["minions"] for row in answer["masters"]} == {
                "m1": 1, "m2": 1,
            }  # fmt: skip
            assert (answer["retcode"], answer["counts"]) == (2, {"bound": 2, "unknown": 1})
        some = await run(m1(there), "minions", "web1")
        assert (states(some), some["retcode"]) == ({"web1": "bound"}, 0)
        nobody = await run(m1(there), "minions", "stranger")
        assert (nobody["minions"], nobody["retcode"]) == ([], 1)
        assert there.published == []
        for wrong in ("G@os:Linux", "", "*" * 9):
            refused = await run(m1(there), "minions", wrong)
            assert (refused["kind"], refused["retcode"]) == ("error", 2)
        # For the status page and the metrics.
        ours = there.engines["m2"].made.bound
        assert set(await ours.known()) == {"db1"}
        assert await ours.count() == 0
        status = await run(m1(there), "status")
        assert [row["bound"] for row in status["masters"]] == [0, 0]


@in_a_loop
async def test_who_answers_all_masters_at_once_is_pinged_once(tmp_path: Path) -> None:
    """Without saltext-ha a minion does not say what it is; what it answers does."""
    kinds = {"hot1": hot("m1", "m2", installed=False), "fo1": failover("m1", installed=False)}
    async with world(tmp_path, **kinds) as there:
        for name in ("m1", "m2"):
            there.start(name, "hot1")
        there.start("m1", "fo1")
        reached = await run(m1(there), "where")
        assert (reached["minions"], reached["count"]) == ({"fo1": ["m1"]}, 2)
        pings = len(there.published)
        assert pings == 2, "hot1, on both"
        assert await run(m1(there), "where") == reached
        assert len(there.published) == pings
        rows = {row["id"]: row for row in (await run(m1(there), "minions"))["minions"]}
        assert (rows["hot1"]["type"], rows["hot1"]["note"]) == ("list", "")
        there.start("m1", "hot1")
        await run(m1(there), "where")
        assert len(there.published) == 2 * pings, "it may be another kind now"


@in_a_loop
async def test_connections_tell_that_minions_are_gone_and_that_none_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_are = {"m1": 2, "m2": 1}
    monkeypatch.setattr(bound, "NEW", -1.0)
    async with world(tmp_path, web1=failover("m1"), hot1=hot("m1", "m2")) as there:
        for name, engine in there.engines.items():

            async def count(name: str = name) -> int:
                return there_are[name]

            monkeypatch.setattr(engine.made.bound, "count", count)
            there.start(name, "hot1")
        there.start("m1", "web1")

        async def notes() -> tuple[list[str], list[int], int]:
            answer = await run(m1(there), "minions")
            said = [row["note"][:21] for row in answer["minions"]]
            return said, [row["gone"] for row in answer["masters"]], answer["retcode"]

        assert await notes() == (["", ""], [0, 0], 0)
        there_are["m1"] = 3
        assert await notes() == (["unless it is hot-hot,", ""], [0, 0], 0)
        there_are["m1"] = 1
        assert await notes() == (["unless it is hot-hot,", ""], [1, 0], 2)


@in_a_loop
async def test_who_has_a_key_is_told_from_who_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "MAX_STRANGERS", 2)
    async with world(tmp_path, web1=failover(), web2=failover()) as there:
        there.start("m1", "web1")
        ears = there.engines["m1"].parts.presence
        # Until then web1 is a stranger as well.
        await until(lambda: "web1" in ears._traces, "m1 knows that web1 has a key")
        for number in range(5):
            there.start("m1", f"made-up{number}")
        answer = await run(m1(there), "minions")
        assert states(answer) == {"web1": "bound", "web2": "unknown"}
        assert len(ears._strangers) == 2


@in_a_loop
async def test_a_peer_that_tells_of_others_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[set[str]] = []
    original = bound._rows

    def rows(ids: Any, known: Any) -> Any:
        kept.append({minion_id for each in known.values() for minion_id in each.sights})
        return original(ids, known)

    monkeypatch.setattr(bound, "_rows", rows)

    async with world(tmp_path, web1=failover()) as there:
        page = {
            "connections": 1,
            "listening": 5.0,
            "minions": [
                [name, *Sight(1, "job", lasts=1e9).to_wire()] for name in ("web1", "made-up")
            ],
            "more": False,
        }

        async def says(payload: Mapping[str, Any]) -> dict[str, Any]:
            return page

        monkeypatch.setattr(there.engines["m2"].made.bound, "page", says)
        answer = await run(m1(there), "minions")
        assert states(answer) == {"web1": "bound"}
        assert kept == [{"web1"}]


@in_a_loop
async def test_a_master_that_cannot_be_asked_is_unknown(tmp_path: Path) -> None:
    async with world(tmp_path, web1=hot("m1", "m2")) as there:
        there.start("m1", "web1")
        there.start("m2", "web1")
        assert (await run(m1(there), "minions"))["retcode"] == 0
        await there.engines["m2"].stop()
        answer = await run(m1(there), "minions")
        assert "m2" in answer["unknown"]
        assert answer["retcode"] == 2
        row = answer["masters"][1]
        assert (row["state"], row["minions"], row["connections"]) == ("unknown", None, None)
        assert answer["minions"][0]["masters"] == ["m1"]
        matrix = await run(m1(there), "reachability", timeout=SECONDS)
        assert (matrix["partial"], matrix["retcode"]) == (True, 2)
        cells = matrix["minions"][0]["answers"]
        assert [cells[name]["state"] for name in ("m1", "m2")] == ["hears", "unknown"]
        gone = await run(m1(there), "drain", "m2")
        assert "m2 cannot be asked" in gone["error"]


@in_a_loop
async def test_long_answers_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound, "PAGE", 2)
    async with world(tmp_path, **{f"web{n}": failover() for n in range(5)}) as there:
        for number in range(5):
            there.start("m2", f"web{number}")
        answer = await run(m1(there), "minions")
        assert answer["counts"] == {"bound": 5}
        first = (
            await there.engines["m1"].link(there.engines["m2"]).line.call("bound", {"glob": "*"})
        )
        assert (len(first["minions"]), first["more"]) == (2, True)
        monkeypatch.setattr(bound, "MAX_PAGES", 1)
        assert "says more than fits" in (await run(m1(there), "minions"))["unknown"]["m2"]


@in_a_loop
async def test_jobs_that_are_over_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns of a job that takes long are not lost after many short ones."""
    monkeypatch.setattr(own_jobs, "AFTERWARDS", 0.2)
    monkeypatch.setattr(returns, "MAX_JOBS", 6)
    async with world(tmp_path, web1=hot("m1", "m2")) as there:
        ours, theirs = (there.engines[name].parts.returns for name in ("m1", "m2"))
        ours.expect(["20260131031245123456"], 310, str)
        for _ in range(8):
            found = await run(m1(there), "cmd", "web1", "test.ping", timeout=100)
            assert (found["returned"], found["unknown"]) == ({"web1": True}, {})
            await until(
                lambda: len(ours._expected) == 1 and not theirs._expected, "all is forgotten"
            )
        for number in range(5):
            ours.expect([f"2026013103124599999{number}"], 310, str)
        refused = await run(m1(there), "cmd", "web1", "test.ping", timeout=1)
        assert "6 jobs are waited for already" in refused["unknown"]["m1"]


@in_a_loop
async def test_a_job_is_not_published_when_nobody_waits_for_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "PUBLISHING", 0.1)
    monkeypatch.setattr(own_jobs, "LOOKING", 0.1)
    async with world(tmp_path, web1=hot("m1")) as there:
        ours = there.engines["m1"].made.jobs
        for _ in range(own_jobs.AT_ONCE):
            await ours.here._turns.acquire()
        order = JobSpec(PING, ids=("web1",))
        running = asyncio.ensure_future(ours.run(order, 0.1, ["m1"]))
        await until(lambda: ours.here._turns._waiters, "it waits for its turn")
        await asyncio.sleep(0.3)  # longer than anybody waits for it
        for _ in range(own_jobs.AT_ONCE):
            ours.here._turns.release()
        found, _ = await running
        assert "its turn came too late" in found["m1"].error
        assert (there.published, found["m1"].unsure) == ([], False)


@in_a_loop
async def test_a_master_of_masters_does_not_know_who_is_below_its_syndics(tmp_path: Path) -> None:
    """Salt publishes there, whoever matches; the salt-master that is played here does so always."""
    async with world(tmp_path, options={"order_masters": True}, web1=hot("m1", "m2")) as there:
        for target in "below*", "below1", ["below1"]:
            planned = await run(m1(there), "cmd", target, "test.arg", test=True)
            assert (planned["targets"], planned["retcode"]) == ([{"m1": target}], 0)
            ran = await run(m1(there), "cmd", target, "test.arg", timeout=SECONDS)
            published = [each for each in there.published if each[1] == "test.arg"]
            assert published[-1] == ("m1", "test.arg", ran["jobs"][0]["m1"])
            assert (ran["returned"], ran["retcode"]) == ({}, 1)


@pytest.mark.parametrize("test", [False, True])
@in_a_loop
async def test_a_batch_is_not_published_for_all_below_syndics_at_once(
    tmp_path: Path, test: bool
) -> None:
    async with world(tmp_path, options={"order_masters": True}, web1=hot("m1", "m2")) as there:
        for target in "below*", ["below1", "below2"]:
            told = await run(m1(there), "cmd", target, "test.arg", batch=1, test=test)
            assert "those below its syndics" in told["error"]
            assert told["retcode"] == 2
        assert [each for each in there.published if each[1] == "test.arg"] == []
        ran = await run(m1(there), "cmd", "*", "test.arg", batch=1, test=test)
        assert ran["targets"] == [{"m1": ["web1"]}]


@in_a_loop
async def test_a_batch_for_nobody_is_not_published(tmp_path: Path) -> None:
    """Salt may find minions in its key folder that an engine with a lost replica does not know."""
    async with world(tmp_path, web1=hot("m1", "m2")) as there:
        for target in "lost*", ["lost1", "lost2"]:
            ran = await run(m1(there), "cmd", target, "test.arg", batch=1, timeout=SECONDS)
            assert (ran["jobs"], ran["returned"], ran["retcode"]) == ([{}], {}, 1)
            assert ran["unreachable"] == (target if isinstance(target, list) else [])
        assert [each for each in there.published if each[1] == "test.arg"] == []


@in_a_loop
async def test_a_job_is_published_as_long_as_somebody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asked waits for the publishing, too; and of a command for who says that it runs it."""
    async with world(tmp_path, web1=hot("m1")) as there:
        ours = there.engines["m1"].made.jobs
        for order, name in (
            (JobSpec(PING, ids=("web1",)), "PUBLISHING"),
            (CommandSpec(["web1"], "list", "test.ping"), "LOOKING"),
        ):
            for each in ("PUBLISHING", "LOOKING"):
                monkeypatch.setattr(own_jobs, each, 30.0 if each == name else 0.0)
            for _ in range(own_jobs.AT_ONCE):
                await ours.here._turns.acquire()
            running = asyncio.ensure_future(ours.run(order, 0.1, ["m1"]))
            await asyncio.sleep(0.5)
            for _ in range(own_jobs.AT_ONCE):
                ours.here._turns.release()
            found, _ = await running
            assert (found["m1"].error, found["m1"].targeted) == ("", {"web1"})


@in_a_loop
async def test_a_job_that_may_have_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, fo2=failover("m2")) as there:
        there.start("m2", "fo2")
        line = there.engines["m1"].link(there.engines["m2"]).line
        real = line.call

        async def call(method: str, *more: Any) -> dict[str, Any]:
            if method == "job_run":
                raise PeerUnreachable("10.0.0.2:4530 timed out")
            return await real(method, *more)

        monkeypatch.setattr(line, "call", call)
        ran = await run(m1(there), "cmd", "fo2", "test.arg", timeout=SECONDS)
        assert "timed out; may have run: job 20" in ran["unknown"]["m2"]
        assert (ran["jobs"], ran["retcode"]) == ([{}], 2)

        async def strange(method: str, *more: Any) -> dict[str, Any]:
            if method == "job_run":
                raise PeerMistrust("10.0.0.2:4530 shows another certificate")
            return await real(method, *more)

        monkeypatch.setattr(line, "call", strange)
        ran = await run(m1(there), "cmd", "fo2", "test.arg", timeout=SECONDS)
        assert ran["unknown"] == {"m2": "10.0.0.2:4530 shows another certificate"}


@pytest.mark.parametrize(
    ("error", "may"), [(HaError("not taken"), False), (PublishingTimedOut("no answer"), True)]
)
@in_a_loop
async def test_a_job_that_its_master_may_yet_publish_is_named(
    tmp_path: Path, error: HaError, may: bool
) -> None:
    """Whichever master that is: this one, or a peer that says it of itself."""
    async with world(tmp_path, fo1=failover("m1"), fo2=failover("m2")) as there:

        def publish(opts: Any, order: Any, jid: str) -> list[str]:
            raise error

        for name, minion_id in (("m1", "fo1"), ("m2", "fo2")):
            there.start(name, minion_id)
            there.engines[name].made.jobs.here.publish = publish
        ran = await run(m1(there), "cmd", ["fo1", "fo2"], "test.arg", timeout=SECONDS)
        assert (ran["jobs"], ran["retcode"]) == ([{}], 2)
        for name in ("m1", "m2"):
            said = ran["unknown"][name]
            assert said.startswith(f"{name} could not publish: {error}")
            assert ("; may have run: job 20" in said) is may


@in_a_loop
async def test_a_master_that_does_not_take_commands_is_to_be_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minions = {"fo1": failover("m1"), "fo2": failover("m2")}
    async with world(tmp_path, **minions) as there:
        theirs = there.engines["m2"]
        link = there.engines["m1"].link(there.engines["m2"])
        assert link.line.info["commands"] is True
        older = {
            key: value for key, value in theirs.parts.hello.describe().items() if key != "commands"
        }
        real = theirs.made.jobs.here.run

        async def refuses(payload: Mapping[str, Any], by: str = "") -> dict[str, Any]:
            if "glob" not in payload["order"]:
                raise InvalidRecord("malformed order")
            return await real(payload, by)

        monkeypatch.setattr(theirs.parts.hello, "describe", lambda: older)
        monkeypatch.setattr(theirs.made.jobs.here, "run", refuses)
        while "commands" in link.line.info:  # a greeting from before may be under way
            link.line.up = None
            await link.exchange()
        ran = await run(m1(there), "cmd", ["fo1", "fo2"], "test.arg", timeout=SECONDS)
        assert (ran["returned"], ran["retcode"]) == ({"fo1": []}, 2)
        said = "it runs an older saltext-ha, which does not take ha.cmd: upgrade it ("
        assert ran["unknown"]["m2"].startswith(said)
        assert "malformed order" in ran["unknown"]["m2"]
        # Other jobs it takes as ever.
        told = await run(m1(there), "where", live=True, timeout=SECONDS)
        assert (told["minions"], told["unknown"]) == ({"fo1": ["m1"], "fo2": ["m2"]}, {})
        # What it refuses of those is not for want of an upgrade.
        with monkeypatch.context() as full:
            full.setattr(own_jobs, "MAX_RUNNING", 0)
            order = JobSpec(PING, ids=("fo2",))
            found, _ = await there.engines["m1"].made.jobs.run(order, SECONDS, ["m2"])
        assert "jobs are under way" in found["m2"].error
        assert "older" not in found["m2"].error
        # It was upgraded, and has not been met since.
        monkeypatch.setattr(theirs.made.jobs.here, "run", real)
        ran = await run(m1(there), "cmd", ["fo1", "fo2"], "test.arg", timeout=SECONDS)
        assert (ran["returned"], ran["unknown"]) == ({"fo1": [], "fo2": []}, {})


@in_a_loop
async def test_a_page_costs_the_same_however_many_minions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked up at once holds up everything else that the engine does."""
    monkeypatch.setattr(bound, "PAGE", 4)
    names = [f"web{number:02}" for number in range(30)]
    async with world(tmp_path, **{name: failover() for name in names}) as there:
        heard = there.engines["m2"].parts.presence
        # Not all of them, and none of the first: pages are filled all the same.
        for name in names[10::2]:
            there.start("m2", name)
        looked_up: list[int] = []
        real = heard.sights

        def sights(ids: Iterable[str]) -> dict[str, Sight]:
            some = list(ids)
            looked_up.append(len(some))
            return real(some)

        monkeypatch.setattr(heard, "sights", sights)
        line = there.engines["m1"].link(there.engines["m2"]).line
        told: list[list[str]] = []
        page: dict[str, Any] = {"more": True}
        while page["more"]:
            after = told[-1][-1] if told else ""
            page = await line.call("bound", {"glob": "web*", "after": after})
            told.append([row[0] for row in page["minions"]])
        assert told == [names[10:18:2], names[18:26:2], names[26::2]]
        assert max(looked_up) <= 4
        few = await line.call("bound", {"ids": [names[14], names[10], "web0", names[12]]})
        assert [row[0] for row in few["minions"]] == names[10:16:2]
        rest = await line.call("bound", {"ids": names[10:14:2], "after": names[10]})
        assert [row[0] for row in rest["minions"]] == [names[12]]


@pytest.mark.parametrize(
    "said",
    [
        {"connections": "5", "listening": 1.0, "minions": []},
        {"connections": 5, "listening": "x", "minions": []},
        {"connections": 5, "listening": 1.0, "minions": [["web1", 1]]},
        {"connections": 5, "listening": 1.0, "minions": [[["web1"], *Sight().to_wire()]]},
        {"connections": 5, "listening": 1.0},
    ],
)
@in_a_loop
async def test_a_peer_that_answers_nonsense_is_unknown(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    async with world(tmp_path, web1=failover()) as there:

        async def page(payload: Any) -> dict[str, Any]:
            return said

        there.engines["m2"].made.bound.page = page  # type: ignore[method-assign]
        answer = await run(m1(there), "minions")
        assert "malformed" in answer["unknown"]["m2"]
        assert (answer["retcode"], states(answer)) == (2, {"web1": "unknown"})


@in_a_loop
async def test_live_asks_from_every_master_at_once(tmp_path: Path) -> None:
    minions = {"one": failover("m1"), "two": failover("m2"), "hot": hot("m1", "m2")}
    async with world(tmp_path, **minions, stock=Minion("", {"m1"}, installed=False)) as there:
        answer = await run(m1(there), "minions", live=True, timeout=SECONDS)
        assert set(states(answer).values()) == {"bound"}
        assert answer["retcode"] == 0
        rows = {row["id"]: row for row in answer["minions"]}
        assert rows["hot"]["masters"] == ["m1", "m2"]
        assert (rows["two"]["masters"], rows["two"]["type"]) == (["m2"], "failover")
        assert (rows["stock"]["masters"], rows["stock"]["type"]) == (["m1"], "")
        assert (rows["one"]["version"], rows["stock"]["version"]) == ("0.1.0", None)
        assert {fun for _, fun, _ in there.published} == {"ha.current_master"}
        # What was heard before does not count, when somebody does not answer now.
        minions["one"].hears = set()
        answer = await run(m1(there), "minions", live=True, timeout=SECONDS)
        assert (states(answer)["one"], answer["retcode"]) == ("silent", 1)
        minions["hot"].hears = {"m1"}
        answer = await run(m1(there), "minions", "hot", live=True, timeout=SECONDS)
        assert (answer["minions"][0]["masters"], answer["retcode"]) == (["m1"], 1)
        assert states(answer) == {"hot": "partly"}
        there.broken = {"m2"}
        minions["one"].hears = {"m1"}
        answer = await run(m1(there), "minions", "one", live=True, timeout=SECONDS)
        assert (states(answer)["one"], answer["retcode"]) == ("bound", 2)
        assert answer["masters"][1]["state"] == "unknown"


@in_a_loop
async def test_where_a_job_has_to_be_published(tmp_path: Path) -> None:
    minions = {"both": hot("m1", "m2"), "fo1": failover("m1"), "fo2": failover("m2")}
    minions["none"] = failover()
    async with world(tmp_path, **minions) as there:
        # Nobody has heard of any: they are asked.
        told = await run(m1(there), "where", timeout=SECONDS)
        found = {"fo1": ["m1"], "fo2": ["m2"], "none": []}
        assert (told["minions"], told["self"], told["count"]) == (found, "m1", 4)
        assert (told["retcode"], told["masters"]) == (1, ["m1", "m2"])
        asked = len(there.published)
        told = await run(m1(there), "where", ["fo1", "fo2"])
        assert told["minions"] == {"fo1": ["m1"], "fo2": ["m2"]}
        assert len(there.published) == asked, "that is known now"
        assert (await run(m1(there), "where", ["both"]))["minions"] == {}
        assert len(there.published) == asked, "it has answered both at once"
        # It authenticates somewhere else, and nobody says more: it is asked.
        there.minions["fo2"].hears = {"m1"}
        there.fire("m1", "salt/auth", {"id": "fo2", "act": "accept"})
        told = await run(m1(there), "where", "fo2", timeout=SECONDS)
        assert told["minions"] == {"fo2": ["m1"]}
        assert len(there.published) == asked + 2
        none = await run(m1(there), "where", "wbe*")
        assert (none["count"], none["retcode"]) == (0, 1)
        wrong = await run(m1(there), "where", "G@os:x")
        assert wrong["kind"] == "error"


@in_a_loop
async def test_one_command_for_the_whole_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    minions = {"both": hot("m1", "m2"), "fo1": failover("m1"), "fo2": failover("m2")}
    async with world(tmp_path, **minions) as there:
        planned = await run(m1(there), "cmd", "*", "test.arg", test=True)
        assert planned["targets"] == [{"m1": "( * ) and not L@fo2", "m2": "( * ) and L@fo2"}]
        assert (planned["returned"], planned["jobs"]) == ({}, [{}])
        nothing = await run(m1(there), "cmd", "nosuch*", "test.arg", test=True)
        assert (nothing["targets"], nothing["retcode"]) == ([{}], 1)
        for known, retcode in (["fo1"], 0), ([], 1):
            listed = [*known, "nosuch"]
            for more in {}, {"batch": 1}:
                planned = await run(m1(there), "cmd", listed, "test.arg", test=True, **more)
                assert (planned["unreachable"], planned["retcode"]) == (["nosuch"], retcode)
        assert not [each for each in there.published if each[1] == "test.arg"]
        ran = await run(
            m1(there), "cmd", ["fo1", "fo2", "both"], "test.arg", 1, x=2, timeout=SECONDS
        )
        value = [1, {"__kwarg__": True, "x": 2}]
        assert ran["returned"] == dict.fromkeys(("both", "fo1", "fo2"), value)
        assert (ran["retcode"], ran["missing"], ran["unknown"]) == (0, {}, {})
        assert ran["jobs"][0].keys() == {"m1", "m2"}
        once = {i: each.asked.count("test.arg") for i, each in there.minions.items()}
        assert once == dict.fromkeys(("both", "fo1", "fo2"), 1)
        ran = await run(m1(there), "cmd", "*", "test.arg", batch=1, timeout=SECONDS)
        assert (len(ran["jobs"]), len(ran["returned"]), ran["retcode"]) == (3, 3, 0)
        there.minions["fo2"].hears = set()
        ran = await run(m1(there), "cmd", ["fo1", "fo2"], "test.arg", timeout=SECONDS)
        assert (ran["missing"], ran["retcode"]) == ({"fo2": "m2"}, 1)
        for wrong, said in (
            ({"fun": "ping"}, "no function"),
            ({"fun": "test.ping", "tgt_type": "range"}, "tgt_type"),
            ({"fun": "test.ping", "batch": "some"}, "batch"),
            ({"fun": "test.ping", "timeout": 0}, "timeout=0"),
        ):
            refused = await run(m1(there), "cmd", "*", **wrong)  # type: ignore[arg-type]
            assert (refused["kind"], refused["retcode"]) == ("error", 2)
            assert said in refused["error"]
        there.engines["m2"].made.jobs.here.takes_commands = False
        ran = await run(m1(there), "cmd", ["fo1", "fo2"], "test.ping", timeout=SECONDS)
        assert (ran["returned"], ran["retcode"]) == ({"fo1": True}, 2)
        assert "takes no commands" in ran["unknown"]["m2"]
        assert "older" not in ran["unknown"]["m2"]


@dataclass
class Errors:
    """What is written to standard error."""

    capsys: pytest.CaptureFixture[str]
    lines: list[str] = field(default_factory=list)

    def has(self, line: str) -> bool:
        self.lines += self.capsys.readouterr().err.splitlines()
        return line in self.lines


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Errors:
    """Progress is said twenty times a second; what was said."""
    monkeypatch.setattr(cmd_batches, "EACH", 0.05)
    return Errors(capsys)


@in_a_loop
async def test_how_far_a_command_is_is_said_while_it_runs(tmp_path: Path, errors: Errors) -> None:
    minions = {"fo1": failover("m1"), "fo2": failover("m2"), "slow": failover("m2", busy=True)}
    async with world(tmp_path, **minions, last=failover("m2", busy=True)) as there:

        def late(minion_id: str, **more: Any) -> None:
            jid = [jid for name, fun, jid in there.published if name + fun == "m2test.arg"][-1]
            data = {"id": minion_id, "fun": "test.arg", "return": 1, "jid": jid, **more}
            there.fire("m2", f"salt/job/{jid}/ret/{minion_id}", data)

        asked: dict[str, Any] = {"timeout": 30, "progress": True}
        wanted = ["fo1", "fo2", "slow", "last"]
        running = asyncio.ensure_future(run(m1(there), "cmd", wanted, "test.arg", **asked))
        await until(lambda: errors.has("2 of 4 returned, 0 failed"), "two have returned")
        late("slow", retcode=1)
        await until(lambda: errors.has("3 of 4 returned, 1 failed"), "the next one")
        late("last")
        ran = await running
        assert (ran["missing"], ran["failed"]) == ({}, {"slow": 1})
        assert errors.has("done: 4 returned, 1 failed, 0 missing")
        assert len(errors.lines) == len(set(errors.lines)), "only what has changed"

        running = asyncio.ensure_future(
            run(m1(there), "cmd", wanted[:3], "test.arg", batch=2, **asked)
        )
        await until(lambda: errors.has("batch 2 of 2: 0 of 1 returned, 0 failed"), "batch 2")
        assert errors.has("batch 1 of 2 done, in all: 2 returned, 0 failed, 0 missing")
        late("slow")
        await running
        assert errors.has("batch 2 of 2 done, in all: 3 returned, 0 failed, 0 missing")


@in_a_loop
async def test_how_far_it_is_elsewhere_may_be_unknown(
    tmp_path: Path, errors: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    monkeypatch.setattr(cmd_batches, "LONGEST", 0.0)
    minions = {"fo1": failover("m1"), "fo2": failover("m2", busy=True), "slow": hot("m1")}
    minions["slow"].busy = True
    async with world(tmp_path, **minions) as there:
        theirs = there.engines["m2"].made.jobs
        older = {"returned": {}}  # a release that does not know what it is asked
        theirs.here.strays = lambda payload: older  # type: ignore[method-assign]
        running = asyncio.ensure_future(
            run(m1(there), "cmd", "*", "test.arg", timeout=3, progress=True)
        )
        line = "1 returned, 0 failed; nothing is known of m2"
        await until(lambda: errors.has(line), "m2 does not say")
        ran = await running
        assert ran["missing"] == {"fo2": "m2", "slow": "m1"}
        assert errors.has(line), "and nothing is left unread"
        # How many there are is said only when m2 has ended, too.
        totals = [each for each in errors.lines if " of " in each.partition(";")[0]]
        assert all(each.startswith("1 of 3 returned") for each in totals), totals
        assert await run(m1(there), "cmd", "*", "test.arg", test=True, progress=True)


@in_a_loop
async def test_a_master_that_is_down_is_not_tried_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure would have its link wait longer before it tries again."""
    async with world(tmp_path, fo1=failover("m1")) as there:
        link, (jid,) = there.engines["m1"].link(there.engines["m2"]), new_jids(1)
        line = link.line
        ours = there.engines["m1"].made.jobs
        known, unknown = await ours.counts({"m2": jid, "m1": jid})
        assert (known.keys(), unknown) == ({"m1", "m2"}, {})
        asked: list[str] = []
        real = line.call

        async def call(method: str, *more: Any) -> dict[str, Any]:
            asked.append(method)
            return await real(method, *more)

        monkeypatch.setattr(line, "call", call)
        async with link._round:  # nor does the link try it meanwhile
            line.up, line.error = False, "refused the connection"
            assert await ours.counts({"m2": jid}) == ({}, {"m2": "refused the connection"})
        assert "job_strays" not in asked


@in_a_loop
async def test_an_operation_is_known_by_its_name_while_it_lasts(tmp_path: Path) -> None:
    name = "0123456789abcdef" * 2
    minions = {"fo1": failover("m1"), "fo2": failover("m2", busy=True)}
    async with world(tmp_path, **minions) as there:
        socket = m1(there).config.control_socket
        job = {"tgt": "*", "fun": "test.arg", "timeout": 3, "operation": name}

        async def asked(what: str, **payload: Any) -> dict[str, Any]:
            return await asyncio.to_thread(control_client.request, socket, what, payload)

        for wrong in ("", "x", 5, ["a"], name + "0", name.upper()):
            for what in ("cmd", "cmd_progress"):
                with pytest.raises(HaError, match="operation: takes 32"):
                    await asked(what, **{**job, "operation": wrong})
        none = {"masters": {}, "unknown": {}}
        assert await asked("cmd_progress", operation=name) == none
        running = asyncio.ensure_future(asked("cmd", **job))
        told = none
        while not told["masters"].get("m1", {}).get("returned"):
            told = await asked("cmd_progress", operation=name)
        assert told["masters"]["m1"] == {"targeted": 1, "returned": 1, "failed": 0}
        assert told["masters"]["m2"]["returned"] == 0
        with pytest.raises(HaError, match="under way already"):
            await asked("cmd", **job)
        await running
        assert await asked("cmd_progress", operation=name) == none, "nothing is kept of it"


@in_a_loop
async def test_who_has_not_returned_is_asked_whether_it_still_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    monkeypatch.setattr(cmd_batches, "LONGEST", 0.0)
    minions = {
        "busy1": failover("m1", busy=True), "busy2": failover("m2", busy=True),
        "fo2": failover("m2"), "gone": failover(),
    }  # fmt: skip
    async with world(tmp_path, **minions) as there:
        ran = await run(m1(there), "cmd", "*", "test.arg", 1, timeout=SECONDS)
        assert ran["running"] == {f"busy{n}": ran["jobs"][0][f"m{n}"] for n in (1, 2)}
        assert ran["missing"] == {"busy1": "m1", "busy2": "m2", "gone": "m1"}
        assert (ran["returned"], ran["retcode"]) == ({"fo2": [1]}, 1)
        looked = [name for name, fun, _ in there.published if fun == "saltutil.find_job"]
        assert sorted(looked) == ["m1", "m2"]
        assert "saltutil.find_job" not in minions["fo2"].asked, "it has returned"
        # In batches, too; and where it cannot be asked, nobody said so.
        ran = await run(m1(there), "cmd", "busy*", "test.arg", batch=1, timeout=SECONDS)
        assert ran["running"] == {f"busy{n}": ran["jobs"][n - 1][f"m{n}"] for n in (1, 2)}

        theirs = there.engines["m2"].made.jobs.here
        real = theirs.publish

        def publish(opts: Any, order: Any, jid: str) -> list[str]:
            if order.job()[0] == "saltutil.find_job":
                raise HaError("salt-master did not take the job")
            return real(opts, order, jid)

        theirs.publish = publish
        ran = await run(m1(there), "cmd", "busy2", "test.arg", timeout=SECONDS)
        assert (ran["running"], ran["missing"], ran["unknown"]) == ({}, {"busy2": "m2"}, {})
        # All of them returned: nobody is asked.
        there.published.clear()
        await run(m1(there), "cmd", "fo2", "test.arg", timeout=SECONDS)
        assert [fun for _, fun, _ in there.published] == ["test.arg"]


@in_a_loop
async def test_who_returns_more_than_is_kept_has_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when thousands of minions return a highstate: none of them is missing."""
    monkeypatch.setattr(intake, "HELD_AT_LEAST", 20_000)
    async with world(tmp_path, **{f"web{n}": failover("m1") for n in range(8)}) as there:
        there.engines["m1"].parts.room.suit(len(there.minions))
        ran = await run(m1(there), "cmd", "*", "test.arg", "x" * 5_000, timeout=SECONDS)
        assert (len(ran["returned"]), ran["missing"], ran["retcode"]) == (8, {}, 0)
        (jid,) = ran["jobs"][0].values()
        left_out = {"error": f"{NO_ROOM}; salt-run jobs.lookup_jid {jid} on m1 shows it"}
        whole = [value for value in ran["returned"].values() if value == ["x" * 5_000]]
        assert 0 < len(whole) < 4
        assert [*ran["returned"].values()].count(left_out) == 8 - len(whole)
        assert not there.engines["m1"].parts.room.note()
        monkeypatch.setitem(intake.FIELDS, "return", intake.Size(100, 10_000))
        ran = await run(m1(there), "cmd", "web1", "test.arg", "x" * 10_001, timeout=SECONDS)
        assert ran["returned"]["web1"].startswith(intake.TOO_MUCH)
        assert "salt-run jobs.lookup_jid 2" in ran["returned"]["web1"]


@in_a_loop
async def test_who_is_slow_to_say_that_it_runs_it_has_the_time_that_salt_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the other master, too: as configured where it was asked for."""
    monkeypatch.setattr(own_jobs, "FINDING", 0.2)
    monkeypatch.setattr(cmd_batches, "LONGEST", 0.0)
    minions = {"fo2": failover("m2"), "slow": failover("m2", busy=True)}
    async with world(tmp_path, options={"gather_job_timeout": 10}, **minions) as there:
        for name in minions:
            there.start("m2", name)
        theirs, loop = there.engines["m2"], asyncio.get_running_loop()
        here = theirs.made.jobs.here
        real = here.publish

        def publish(opts: Any, order: Any, jid: str) -> list[str]:
            function, _, _, arguments = order.job()
            if function != "saltutil.find_job":
                return real(opts, order, jid)
            data = {"id": "slow", "fun": function, "return": {"jid": arguments[0]}}
            tell = functools.partial(theirs.parts.bus.tell, f"salt/job/{jid}/ret/slow", data)
            loop.call_soon_threadsafe(loop.call_later, 1.0, tell)
            return ["slow"]

        here.publish = publish
        ran = await run(m1(there), "cmd", "*", "test.arg", timeout=SECONDS)
        assert ran["running"] == {"slow": ran["jobs"][0]["m2"]}


@in_a_loop
async def test_who_says_that_it_still_runs_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``salt`` does: the timeout is how long a minion may say nothing."""
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    monkeypatch.setattr(own_jobs, "LATE", 0.1)
    monkeypatch.setattr(cmd_batches, "AGAIN", 0.1)

    minions = {
        "busy1": failover("m1", busy=True), "busy2": failover("m2", busy=True),
        "busy3": failover("m2", busy=True), "fo2": failover("m2"),
    }  # fmt: skip
    async with world(tmp_path, **minions) as there:
        for name, minion in minions.items():
            there.start(*minion.hears, name)

        def looks(name: str) -> int:
            return minions[name].asked.count("saltutil.find_job")

        def returns_it(name: str, code: int = 0) -> None:
            (master,) = minions[name].hears
            found = [j for at, fun, j in there.published if (at, fun) == (master, "test.arg")]
            minions[name].busy = False
            data = {"id": name, "fun": "test.arg", "return": "late", "retcode": code}
            there.fire(master, f"salt/job/{found[-1]}/ret/{name}", data)

        running = asyncio.ensure_future(run(m1(there), "cmd", "*", "test.arg", 1, timeout=SECONDS))
        await until(lambda: looks("busy1") >= 2 and looks("busy2") >= 2, "asked again")
        returns_it("busy1")
        await until(lambda: looks("busy2") >= 4, "asked on, for those of the other master")
        assert not running.done()
        minions["busy3"].busy = False  # it was killed: it returns nothing, and says so
        returns_it("busy2", 3)
        ran = await running
        assert ran["returned"] == {"busy1": "late", "busy2": "late", "fo2": [1]}
        assert (ran["missing"], ran["running"]) == ({"busy3": "m2"}, {})
        assert (ran["failed"], ran["unknown"], ran["retcode"]) == ({"busy2": 3}, {}, 1)
        assert [fun for _, fun, _ in there.published].count("test.arg") == 2, "once each"

        # Bounded: a minion that says so for ever is not waited for as long.
        monkeypatch.setattr(cmd_batches, "LONGEST", 2 * SECONDS)
        minions["busy1"].busy = True
        ran = await run(m1(there), "cmd", "busy1", "test.arg", timeout=SECONDS)
        assert (ran["missing"], list(ran["running"])) == ({"busy1": "m1"}, ["busy1"])
        # A master of an older release does not know that question: what it said first stays.
        del there.engines["m2"].service.listener._handlers["job_more"]
        minions["busy3"].busy = True
        monkeypatch.setattr(cmd_batches, "LONGEST", 60.0)
        ran = await run(m1(there), "cmd", "busy3", "test.arg", timeout=SECONDS)
        assert (ran["missing"], list(ran["running"])) == ({"busy3": "m2"}, ["busy3"])
        assert (ran["unknown"], ran["retcode"]) == ({}, 1)


@in_a_loop
async def test_who_is_deaf_to_whom(tmp_path: Path) -> None:
    minions = {
        "deaf": hot("m1"), "fine": hot("m1", "m2"), "gone": failover(), "one": failover("m2"),
        "stock": Minion("", {"m1"}, installed=False), "stray": hot("m1", "m2"),
    }  # fmt: skip
    async with world(tmp_path, **minions) as there:
        answer = await run(m1(there), "reachability", timeout=SECONDS)
        assert states(answer) == {
            "deaf": "deaf", "fine": "ok", "gone": "silent", "one": "ok", "stock": "unknown",
            "stray": "ok",
        }  # fmt: skip
        assert answer["retcode"] == 2
        # Failover or deaf? That was not known of some, so they were asked; once is enough.
        asked = [fun for _, fun, _ in there.published]
        assert asked == ["test.ping"] * 2 + ["ha.current_master"] * 2
        there.published.clear()
        none = await run(m1(there), "reachability", "wbe*", timeout=SECONDS)
        assert (none["minions"], none["retcode"]) == ([], 1)
        there.published.clear()
        only = await run(m1(there), "reachability", "[dfo]*", timeout=SECONDS)
        assert (only["retcode"], [f for _, f, _ in there.published]) == (1, ["test.ping"] * 2)
        fine = await run(m1(there), "reachability", "[fo]*", timeout=SECONDS)
        assert (fine["retcode"], fine["strays"]) == (0, [])

        minions["stray"].returns = "m2"
        answer = await run(m1(there), "reachability", "stray", timeout=SECONDS)
        assert answer["strays"] == [
            {"published": "m1", "arrived": "m2", "count": 1, "ids": ["stray"]}
        ]
        assert answer["minions"][0]["state"] == "astray"
        assert answer["retcode"] == 1

        there.broken = {"m2"}
        answer = await run(m1(there), "reachability", "fine", timeout=SECONDS)
        assert "Salt request timed out" in answer["unknown"]["m2"]
        assert (answer["partial"], answer["retcode"]) == (True, 2)


@in_a_loop
async def test_peers_may_have_nothing_else_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, web1=failover("m2")) as there:
        line = there.engines["m1"].link(there.engines["m2"]).line
        (jid,) = new_jids(1)
        good = {"jid": jid, "order": JobSpec(PING, glob="*").to_wire(), "timeout": SECONDS}
        bad: list[dict[str, Any]] = [
            {"order": {**JobSpec(PING, glob="*").to_wire(), "what": "cmd.run"}},
            {"order": {**JobSpec(PING, glob="*").to_wire(), "glob": "G@os:*"}},
            {"order": {**JobSpec(PING, glob="*").to_wire(), "what": MOVE}},
            {"order": None}, {"jid": "1"}, {"jid": None}, {"timeout": 1e9}, {"timeout": True},
        ]  # fmt: skip
        for change in bad:
            with pytest.raises(PeerRefused):
                await line.call("job_run", {**good, **change})
        for payload in ({}, {"jids": []}, {"jids": [jid] * 99}, {"jids": ["x"]}):
            for method in ("job_expect", "job_strays"):
                with pytest.raises(PeerRefused):
                    await line.call(method, {"timeout": 1, **payload})
        for payload in ({}, {"jid": jid}, {"jid": jid, "timeout": 1e9}, {"jid": [jid]}):
            with pytest.raises(PeerRefused):
                await line.call("job_more", {"timeout": 1, **payload})
        assert there.published == []
        with monkeypatch.context() as full:
            full.setattr(own_jobs, "MAX_RUNNING", 0)
            with pytest.raises(PeerRefused, match="jobs are under way"):
                await line.call("job_run", good)
        assert there.published == []
        (over,) = new_jids(1)  # one that is over takes nobody's turn, though it is kept
        order = JobSpec(PING, ids=("web1",)).to_wire()
        await line.call("job_run", {**good, "jid": over, "order": order})
        with pytest.raises(PeerRefused, match="that job is no longer waited for"):
            await line.call("job_more", {"jid": over, "timeout": 1})  # of commands only
        monkeypatch.setattr(own_jobs, "MAX_RUNNING", 1)
        there.published.clear()
        # A call that is repeated, because its connection broke, publishes once.
        first, second = await asyncio.gather(line.call("job_run", good), line.call("job_run", good))
        assert first == second == await line.call("job_run", good)
        assert first["returned"][0][0] == "web1"
        assert there.published == [("m2", "test.ping", jid)]


@in_a_loop
async def test_what_was_not_asked_does_not_count_as_an_answer(tmp_path: Path) -> None:
    async with world(tmp_path, web1=failover("m1")) as there:
        ours, (jid,) = there.engines["m1"].made.jobs.here, new_jids(1)
        # Anybody may fire an event that looks like a return.
        ours.expect({"jids": [jid], "timeout": 1})
        there.fire("m1", f"salt/job/{jid}/ret/web9", {"id": "web9", "return": True})
        order = JobSpec(WHERE, ids=("web1",)).to_wire()
        told = await ours.run({"jid": jid, "order": order, "timeout": SECONDS})
        assert [each[0] for each in told["returned"]] == ["web1"]


@pytest.mark.parametrize("batch", [0, 1, "50%"])
@pytest.mark.parametrize("listed", [["fo1", "fo2", "typo"], "fo1,fo2,typo,"], ids=["list", "text"])
@in_a_loop
async def test_a_listed_id_without_a_key_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[str] | str, batch: int | str
) -> None:
    monkeypatch.setattr(own_jobs, "FINDING", SECONDS)
    async with world(tmp_path, fo1=failover("m1"), fo2=failover("m2")) as there:
        asked = {"tgt_type": "list", "timeout": SECONDS, "batch": batch}
        ran = await run(m1(there), "cmd", listed, "test.arg", **asked)
        assert set(ran["returned"]) == {"fo1", "fo2"}
        assert (ran["unreachable"], ran["retcode"]) == (["typo"], 1)


@in_a_loop
async def test_an_id_that_salt_has_made_a_number_of_is_refused(tmp_path: Path) -> None:
    """It may have been 0123, and 123 is another minion."""
    async with world(tmp_path, **{"123": failover("m1")}) as there:
        for number in (123, [123], 1.5, ["web1", 1.5]):
            for refused in (
                await run(m1(there), "where", number),
                await run(m1(there), "reachability", number),
                await run(m1(there), "cmd", number, "test.arg"),
                await run(m1(there), "install_minions", number),
            ):
                assert (refused["kind"], refused["retcode"]) == ("error", 2)
                assert "quote it twice" in refused["error"]
        for quoted in ("123", ["123"]):
            assert (await run(m1(there), "where", quoted))["retcode"] == 0
            ran = await run(m1(there), "cmd", quoted, "test.arg", timeout=SECONDS)
            assert ran["returned"].keys() == {"123"}
        for wrong in (True, None, [True], [None]):
            for refused in (
                await run(m1(there), "where", wrong),
                await run(m1(there), "cmd", wrong, "test.arg"),
            ):
                assert (refused["kind"], refused["retcode"]) == ("error", 2), wrong


@in_a_loop
async def test_a_slow_minion_has_as_long_to_say_where_it_is_as_to_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it could not be moved at all."""
    async with world(tmp_path, web1=failover("m1")) as there:
        jobs, given = there.engines["m1"].made.jobs, dict[str, float]()
        real = jobs.run

        async def timed(spec: Any, timeout: float, *more: Any, **named: Any) -> Any:
            given[spec.what] = timeout
            return await real(spec, timeout, *more, **named)

        monkeypatch.setattr(jobs, "run", timed)
        await run(m1(there), "drain", "m1", test=True)
        assert given[WHERE] >= given[MOVE] >= 15.0


def drains_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "POLL", 0.05)
    monkeypatch.setattr(drain, "ASKING", SECONDS)
    monkeypatch.setattr(moves, "ANSWERING", SECONDS)


@in_a_loop
async def test_a_master_is_drained_and_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drains_quickly(monkeypatch)
    minions = {f"web{n}": failover("m1") for n in range(4)}
    others = {
        "hot": hot("m1", "m2"), "stock": Minion("", {"m1"}, installed=False),
        "quiet": failover(), "there": failover("m2"), "deaf": hot("m1"),
        "single": Minion("str", {"m1"}), "both": Minion("", {"m1", "m2"}, installed=False),
    }  # fmt: skip
    async with world(tmp_path, **minions, **others) as there:
        there.start("m1", "quiet")
        plan = await run(m1(there), "drain", "m1", test=True)
        assert [(row["id"], row["from"], row["to"]) for row in plan["moves"]] == [
            (f"web{n}", "m1", "m2") for n in range(4)
        ]
        assert all(row["planned"] and not row["moved"] for row in plan["moves"])
        stay = {row["id"]: row["why"] for row in plan["stay"]}
        assert "hot-hot" in stay["hot"]
        assert "no other master" in stay["deaf"]
        assert "not installed" in stay["stock"]
        assert "does not answer" in stay["quiet"]
        fates = {row["id"]: row["goes_on"] for row in plan["stay"]}
        assert fates == {
            "hot": True, "both": True, "deaf": False, "single": False, "stock": None,
            "quiet": None,
        }  # fmt: skip
        assert plan["retcode"] == 1, "some would be lost"
        assert all(minion.hears == {"m1"} for minion in minions.values())
        assert not there.engines["m1"].parts.health.draining

        minions["web1"].mute = True  # the others have long arrived when it is given up
        minions["web3"].stuck = True
        # From the other master, in batches; a second drain waits for its turn.
        other = there.engines["m2"].place
        before = len(minions["web0"].asked)
        busy = asyncio.ensure_future(run(other, "drain", "m1", batch=2, timeout=3))
        await until(lambda: len(minions["web0"].asked) > before, "it is under way")
        assert "being moved already" in (await run(other, "rebalance"))["error"]
        done = await busy
        moved = {row["id"]: row["moved"] for row in done["moves"]}
        assert moved == {"web0": True, "web1": False, "web2": True, "web3": False}
        assert done["moves"][1]["note"] == "did not answer"
        assert "heard nowhere within 3 s" in done["moves"][3]["note"]
        minions["web1"].mute, minions["web1"].hears = False, {"m2"}
        assert done["retcode"] == 1
        draining = {name: engine.parts.health.draining for name, engine in there.engines.items()}
        assert draining == {"m1": True, "m2": False}
        status = {row["name"]: row["note"] for row in (await run(other, "status"))["masters"]}
        assert "drained" in status["m1"]
        assert {name for name, fun, _ in there.published if fun == "ha.failover"} == {"m1"}

        minions["web3"].stuck = False
        minions["web3"].hears = {"m1"}
        spread = await run(m1(there), "rebalance", timeout=5)
        assert spread["spread"] == {
            "m1": {"before": 1, "after": 2}, "m2": {"before": 4, "after": 3},
        }  # fmt: skip
        assert spread["retcode"] == 0
        assert not any(engine.parts.health.draining for engine in there.engines.values())
        left = {"hot", "stock", "deaf", "single", "both"}
        assert {row["id"] for row in spread["stay"]} == left
        again = await run(m1(there), "rebalance", test=True)
        assert again["moves"] == []
        assert minions["web0"].asked.count("ha.failover") >= 2


@in_a_loop
async def test_nothing_is_lost_with_a_drained_master_whose_minions_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is what exit code 0 means, whoever stays."""
    monkeypatch.setattr(moves, "POLL", 0.05)
    monkeypatch.setattr(drain, "ASKING", SECONDS)
    async with world(tmp_path, web1=failover("m1"), hot=hot("m1", "m2")) as there:
        first = await run(m1(there), "drain", "m1", timeout=5)
        assert (first["retcode"], [row["moved"] for row in first["moves"]]) == (0, [True])
        assert [(row["id"], row["goes_on"]) for row in first["stay"]] == [("hot", True)]
        # It is with m1 besides, but that is to be stopped, too.
        second = await run(m1(there), "drain", "m2", test=True)
        fates = {row["id"]: row["goes_on"] for row in second["stay"]}
        assert (second["retcode"], fates) == (1, {"hot": False, "web1": None})
        await run(m1(there), "rebalance", timeout=5)

        there.minions["hot"].hears = {"m1"}
        deaf = await run(m1(there), "drain", "m1", test=True)
        assert deaf["retcode"] == 1
        there.broken = {"m2"}
        unsure = await run(m1(there), "drain", "m1", test=True)
        assert [row["goes_on"] for row in unsure["stay"] if row["id"] == "hot"] == [None]
        assert unsure["retcode"] == 2


@in_a_loop
async def test_who_was_heard_last_on_a_drained_master_may_be_lost_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "ASKING", SECONDS)
    monkeypatch.setattr(presence, "FRESH", 0.2)  # seconds
    async with world(tmp_path, quiet=failover(), there=failover("m2")) as there:
        for name in ("m2", "m1"):
            there.start(name, "quiet")
            ears = there.engines[name].parts.presence
            await until(
                lambda ears=ears: (ears.sights(["quiet"])["quiet"].sure or 0) > 0.3,
                "it is long ago",
            )

        async def seen() -> object:
            known = await run(m1(there), "minions", "quiet")
            return states(known), set(known["minions"][0]["on"])

        await becomes(seen, ({"quiet": "silent"}, {"m1", "m2"}))
        first = await run(m1(there), "drain", "m1", test=True)
        assert ([(row["id"], row["goes_on"]) for row in first["stay"]], first["retcode"]) == (
            [("quiet", None)], 1,
        )  # fmt: skip
        second = await run(m1(there), "drain", "m2", test=True)
        assert ([row["id"] for row in second["moves"]], second["stay"]) == (["there"], [])
        assert second["retcode"] == 0


@in_a_loop
async def test_nobody_is_moved_to_a_master_that_was_drained_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "POLL", 0.05)
    monkeypatch.setattr(drain, "ASKING", SECONDS)
    async with world(tmp_path, web1=failover("m1"), db1=failover("m2")) as there:
        assert [row["id"] for row in (await run(m1(there), "drain", "m1"))["moves"]] == ["web1"]
        # Whoever is asked: m1 is empty because it is to be.
        for asked in there.engines.values():
            refused = await run(asked.place, "drain", "m2")
            assert "no other master than m2 is ready" in refused["error"]
            assert refused["retcode"] == 2
            assert not there.engines["m2"].parts.health.draining
            plan = await run(asked.place, "drain", "m2", test=True)
            assert (plan["retcode"], len(plan["notes"])) == (1, 1)
            assert (await run(asked.place, "status"))["tolerates"] == 0
        for asked in there.engines.values():
            answer = await run(asked.place, "drain", "m2", force=True)
            assert answer["moves"] == []
            stay = {row["id"]: row["why"] for row in answer["stay"]}
            assert set(stay) == {"db1", "web1"}
            assert all("only go to m1, drained until" in why for why in stay.values())
            assert there.minions["web1"].hears == {"m2"}
        await run(m1(there), "rebalance")
        again = await run(m1(there), "drain", "m2", timeout=5)
        assert {row["to"] for row in again["moves"]} == {"m1"}


def does_not_serve(engine: Engine) -> None:
    health = engine.parts.health
    health._settings = HealthSettings()
    health.state = Health(False, True, 0, 0, "event bus: timed out")


@in_a_loop
async def test_nobody_is_moved_to_a_master_that_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drains_quickly(monkeypatch)
    minions = {f"web{n}": failover("m1") for n in range(4)}
    async with world(tmp_path, 3, **minions, hot=hot("m1", "m3"), db=failover("m2")) as there:
        does_not_serve(there.engines["m3"])
        plan = await run(m1(there), "rebalance", test=True)
        assert {row["to"] for row in plan["moves"]} == {"m2"}
        assert plan["retcode"] == 1, "nobody is moved to m3"
        spread = await run(m1(there), "rebalance", timeout=5)
        assert {row["to"] for row in spread["moves"]} == {"m2"}
        assert spread["notes"] == ["m3 is left out: it is not ready: event bus: timed out"]
        assert spread["spread"]["m3"] == {"before": 0, "after": 0}
        assert spread["retcode"] == 1

        done = await run(m1(there), "drain", "m1", timeout=5)
        assert {(row["to"], row["moved"]) for row in done["moves"]} == {("m2", True)}
        assert [(row["id"], row["goes_on"]) for row in done["stay"]] == [("hot", False)]
        assert done["retcode"] == 1
        # Whoever insists is obeyed, but a drained master stays empty.
        forced = await run(m1(there), "drain", "m2", force=True, timeout=5)
        assert {(row["to"], row["moved"]) for row in forced["moves"]} == {("m3", True)}
        assert (forced["retcode"], len(forced["notes"])) == (1, 1)
        # m3 still does not serve, and who is there stays there.
        after = await run(m1(there), "rebalance", timeout=5)
        assert (after["moves"], after["retcode"]) == ([], 1)


@pytest.mark.parametrize("test", [True, False])
@in_a_loop
async def test_who_is_refused_by_the_emptiest_master_goes_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: bool
) -> None:
    """As where its key is not accepted yet."""
    drains_quickly(monkeypatch)

    minions = {f"web{n}": failover("m1") for n in range(2)}
    others = {f"db{n}": failover("m2") for n in range(3)}
    async with world(tmp_path, 3, **minions, **others, shut=failover("m1")) as there:
        does, refusing = there._does, {there.address("m3")}

        def refuse(minion_id: str, *rest: Any) -> Any:
            where = rest[3][0]["to"] if rest[2] == "ha.failover" else ""
            if where in refusing or (where and minion_id == "shut"):
                return {"result": False, "comment": f"{where} does not answer"}
            return does(minion_id, *rest)

        monkeypatch.setattr(there, "_does", refuse)
        done = await run(m1(there), "drain", "m1", timeout=5, test=test)
        rows = {row["id"]: (row["to"], row["moved"] or row["planned"]) for row in done["moves"]}
        assert rows == {"web0": ("m2", True), "web1": ("m2", True), "shut": ("m2", False)}
        notes = {row["id"]: row["note"] for row in done["moves"]}
        each = [f"{name}: {there.address(name)} does not answer" for name in ("m3", "m2")]
        assert notes["shut"] == "; ".join(each)
        assert done["retcode"] == 1


@in_a_loop
async def test_a_plan_to_rebalance_counts_on_drained_masters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To rebalance ends that they are drained."""
    monkeypatch.setattr(drain, "ASKING", SECONDS)
    async with world(tmp_path, web1=failover("m2"), web2=failover("m2")) as there:
        there.engines["m1"].parts.health.draining = True
        plan = await run(m1(there), "rebalance", test=True)
        assert [row["to"] for row in plan["moves"]] == ["m1"]
        assert (plan["retcode"], plan["notes"]) == (0, [])
        does_not_serve(there.engines["m1"])
        plan = await run(m1(there), "rebalance", test=True)
        assert (plan["moves"], plan["retcode"]) == ([], 1)


@in_a_loop
async def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    async with world(tmp_path, web1=failover("m1")) as there:
        for function, arguments, said in (
            ("drain", {"master": "m9"}, NO_MASTER.format("'m9'")),
            ("drain", {"master": "m9", "test": True}, NO_MASTER.format("'m9'")),
            ("failover_safe", {"master": "m9"}, NO_MASTER.format("'m9'")),
            ("remove_peer", {"name": "m9"}, NO_MASTER.format("'m9'")),
            ("drain", {"master": "m1", "batch": 0}, "whole number from 1"),
            ("rebalance", {"timeout": "soon"}, "timeout='soon'"),
            ("reachability", {"timeout": 0}, "timeout=0"),
            ("minions", {"timeout": 1e9}, "timeout=1000000000.0"),
        ):
            answer = await run(m1(there), function, **arguments)  # type: ignore[arg-type]
            assert said in answer["error"], answer
            assert answer["retcode"] == runner.__context__["retcode"] == 2
