"""Minions and the engines of their masters; Salt itself is played here."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lab.engines import Engine, Place, befriend
from saltext_ha.common.errors import HaError
from saltext_ha.common.hysteresis import Health
from saltext_ha.config.health import HealthSettings
from saltext_ha.minions.job_specs import FUNCTIONS, MINE, MOVE, REFRESH, JobSpec
from tests.engines import QUICK, run, running
from tests.keys import public_key
from tests.loop import until

SECONDS = 0.5
LONG = 60.0  # longer than any answer here takes
REFRESHING = (FUNCTIONS[REFRESH], FUNCTIONS[MINE])


@dataclass
class Minion:
    """
    ``hears``: masters that its publisher connection leads to. ``returns``: where what it returns
    arrives, when not where it was asked. ``stuck``: it agrees to move and does not; ``mute``: it
    does not even answer. ``busy``: it is at work on what it was asked, and says so. ``slow``:
    seconds until it answers.
    """

    kind: str
    hears: set[str]
    returns: str = ""
    installed: bool = True
    stuck: bool = False
    mute: bool = False
    busy: bool = False
    slow: float = 0.0
    asked: list[str] = field(default_factory=list)


class World:
    """Minions, and masters that publish to them: a stand-in for salt-master."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self.engines = engines
        self.minions: dict[str, Minion] = {}
        self.broken: set[str] = set()
        """Masters that publish nothing, and functions that nobody publishes."""
        self.error = HaError("Salt request timed out")
        """Why."""
        self.moving: Callable[[JobSpec], None] = lambda order: None
        """Called when minions have been asked to move."""
        self._loop = asyncio.get_running_loop()
        self.later: list[Callable[[], None]] = []
        self.published: list[tuple[str, str, str]] = []
        """Master, function, job id; without what a minion is asked some time after it came."""
        for name, engine in engines.items():
            here = engine.made.jobs.here
            here.publish = self._publisher(name)
            here.connections = functools.partial(self.connected, name)

    @property
    def m1(self) -> Engine:
        return self.engines["m1"]

    @property
    def m2(self) -> Engine:
        return self.engines["m2"]

    async def run(self, function: str, *args: Any, on: str = "m1", **options: Any) -> Any:
        """``salt-run ha.<function>`` on a master."""
        return await run(self.engines[on].place, function, *args, **options)

    def jids(self, *masters: str, function: str = "test.arg") -> list[str]:
        """The ids of the jobs that masters (default: all) were asked to publish."""
        found = [each for each in self.published if each[1] == function]
        return [jid for master, _, jid in found if not masters or master in masters]

    @property
    def functions(self) -> list[str]:
        """What was published, on whichever master."""
        return [function for _, function, _ in self.published]

    def looks(self, minion_id: str) -> int:
        """How often it was asked whether it still runs a job."""
        return self.minions[minion_id].asked.count("saltutil.find_job")

    def late(self, minion_id: str, code: int = 0) -> None:
        """A minion that was busy returns the last job of its master."""
        minion = self.minions[minion_id]
        (master,) = minion.hears
        minion.busy, jid = False, self.jids(master)[-1]
        data = {"id": minion_id, "fun": "test.arg", "return": "late", "retcode": code, "jid": jid}
        self.fire(master, f"salt/job/{jid}/ret/{minion_id}", data)

    def connected(self, master: str) -> int:
        return sum(master in minion.hears for minion in self.minions.values())

    def fire(self, master: str, tag: str, data: Mapping[str, Any]) -> None:
        self.engines[master].parts.bus.tell(tag, data)

    def all_start(self) -> None:
        """Each minion starts, on each master that it hears."""
        for minion_id, minion in self.minions.items():
            for master in minion.hears:
                self.start(master, minion_id)

    def start(self, master: str, minion_id: str) -> None:
        data = {"id": minion_id, "cmd": "_minion_event"}
        self.fire(master, f"salt/minion/{minion_id}/start", data)

    def _publisher(self, master: str) -> Callable[[Any, JobSpec, str], list[str]]:
        def publish(opts: Any, order: JobSpec, jid: str) -> list[str]:
            function, target, kind, arguments = order.job()
            if {master, function} & self.broken:
                raise self.error
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
                    tag = f"salt/job/{jid}/ret/{minion_id}"
                    returns = functools.partial(self.fire, minion.returns or master, tag, data)
                    if minion.slow:
                        later = self._loop.call_later
                        self._loop.call_soon_threadsafe(later, minion.slow, returns)
                    else:
                        returns()
            if order.what == MOVE:
                self.moving(order)
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


def failover(*hears: str, **more: Any) -> Minion:
    return Minion("failover", set(hears), **more)


def hot(*hears: str, **more: Any) -> Minion:
    return Minion("list", set(hears), **more)


def does_not_serve(engine: Engine) -> None:
    health = engine.parts.health
    health._settings = HealthSettings()
    health.state = Health(False, True, 0, 0, "event bus: timed out")


def states(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {row["id"]: row["state"] for row in answer["minions"]}
