"""Who leads, on real engines: known to all, steady, and one again after each fault."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from lab import etcd
from lab.engines import Place, befriend
from lab.wait import wait_for
from saltext_ha.common.errors import PeerUnreachable
from tests.engines import QUICK, met, places, run
from tests.forked import ForkedEngine
from tests.loop import in_a_loop, until


@contextmanager
def processes(root: Path, *names: str, **ha: Any) -> Iterator[dict[str, ForkedEngine]]:
    """Engines in processes of their own, that have met."""
    # Each look at who leads asks all, and a stopped one takes all of that time.
    found = [Place(root, name, {**QUICK, "peer_timeout": 2, **ha}) for name in names]
    befriend(*found)
    with ExitStack() as stack:
        engines = {place.name: stack.enter_context(ForkedEngine(place)) for place in found}
        yield engines


def agreed(engines: dict[str, ForkedEngine], name: str, *but: str) -> None:
    """Wait until all know that *name* leads: ten seconds, or longer where much else runs beside."""
    asked = [engine for each, engine in engines.items() if each not in but]
    wait_for(lambda: {each.leader() for each in asked} == {name}, 120, f"{name} leads")


def test_killed_and_stopped_leaders_are_followed(tmp_path: Path) -> None:
    with processes(tmp_path, "m1", "m2", "m3") as engines:
        agreed(engines, "m1")
        engines["m1"].kill()
        agreed(engines, "m2", "m1")
        stopped = psutil.Process(engines["m2"].pid)
        stopped.send_signal(signal.SIGSTOP)
        try:
            agreed(engines, "m3", "m1", "m2")
        finally:
            stopped.send_signal(signal.SIGCONT)
        # From its first words on it does not lead, though it did when it was stopped.
        said = engines["m2"].control("leader")
        assert said["leads"] is False
        agreed(engines, "m3", "m1")
        engines["m1"].start()
        agreed(engines, "m3")

        def leads() -> dict[str, bool | None]:
            told = engines["m1"].control("leader")["masters"]
            return {row["name"]: row["leads"] for row in told}

        wait_for(lambda: leads() == {"m1": False, "m2": False, "m3": True}, 60, "m1 knows all")


def test_with_etcd_a_stopped_leader_leads_no_more_and_a_killed_one_is_followed(
    tmp_path: Path,
) -> None:
    with etcd.cluster(tmp_path / "etcd", 3) as members:
        store = {"store": "etcd", "endpoints": [m.endpoint for m in members], "ttl": 15}
        with processes(tmp_path, "m1", "m2", leader=store) as engines:
            wait_for(lambda: engines["m1"].leader(), 60, "one leads")
            first = str(engines["m1"].leader())
            other = "m2" if first == "m1" else "m1"
            agreed(engines, first)
            fence = engines[first].control("leader")["fence"]
            stopped = psutil.Process(engines[first].pid)
            stopped.send_signal(signal.SIGSTOP)
            try:
                agreed(engines, other, first)
            finally:
                stopped.send_signal(signal.SIGCONT)
            said = engines[first].control("leader")
            assert said["leads"] is False
            assert engines[other].control("leader")["fence"] > fence
            engines[other].kill()
            agreed(engines, first, other)
            for member in members[:2]:
                member.kill()
            wait_for(lambda: engines[first].leader() is None, 60, "nobody leads")
            status = engines[first].control("status")
            assert members[0].endpoint in status["leader"]["why"]
            wait_for(
                lambda: "etcd cannot be asked" in str(engines[first].control("status")["reasons"]),
                60,
                "it is said to be wrong",
            )


@in_a_loop
async def test_a_drained_master_hands_over_to_the_next_in_order(tmp_path: Path) -> None:
    three = places(tmp_path, "m1", "m2", "m3", ha={"leader": {"order": ["m1", "m3"]}})
    async with met(*three) as engines:

        async def leads(name: str) -> None:
            def known() -> bool:
                return all(e.parts.leader.standing.leader == name for e in engines)

            await until(known, f"{name} leads")

        def told_of_all() -> bool:
            """Each says that nobody leads, and of every master that it is drained."""
            return all(
                not e.parts.leader.standing.leader
                and e.parts.leader.standing.why.count(": drained") == len(engines)
                for e in engines
            )

        await leads("m1")
        engines[0].parts.health.draining = True
        await leads("m3")
        engines[0].parts.health.draining = False
        answer = await run(three[1], "leader")
        assert (answer["leader"], answer["retcode"]) == ("m3", 0), answer
        for engine in engines:
            engine.parts.health.draining = True
        # The answers of the others come one after the other.
        await until(told_of_all, "nobody leads")
        answer = await run(three[0], "leader")
        assert (answer["leader"], answer["retcode"]) == (None, 1)
        assert "m1: drained" in answer["why"]
        status = await run(three[0], "status")
        assert status["leader"]["leader"] is None
        assert "m2: drained" in status["leader"]["why"]


@in_a_loop
async def test_masters_that_do_not_take_part_are_named(tmp_path: Path) -> None:
    off, new = (*places(tmp_path, "a", ha={"leader": False}), *places(tmp_path, "b"))
    async with met(off, new) as (_, second):
        standing = lambda: second.parts.leader.standing  # noqa: E731
        await until(lambda: standing().leads, "b leads")
        # First it has that it does not answer.
        out = lambda: "a" in standing().apart and standing().apart["a"].out  # noqa: E731
        await until(out, "a is named")
        answer = await run(new, "leader")
        assert answer["leader"] == "b"
        assert answer["apart"]["a"] == "ha: leader: false there"
        assert (answer["unknown"], answer["retcode"]) == ({}, 0)


@in_a_loop
async def test_in_a_partition_both_halves_act_and_one_after_it(tmp_path: Path) -> None:
    two = places(tmp_path, "m1", "m2")
    async with met(*two) as (m1, m2):
        leads = lambda: [e.parts.leader.standing.leads for e in (m1, m2)]  # noqa: E731
        await until(lambda: leads() == [True, False], "m1 leads")
        cut = [
            engine.parts.links.contacts[other].client for engine, other in ((m1, "m2"), (m2, "m1"))
        ]
        calls = [client.call for client in cut]

        async def lost(*args: Any, **kwargs: Any) -> Any:
            raise PeerUnreachable("no way there")

        for client in cut:
            client.call = lost  # type: ignore[method-assign]
        await until(lambda: leads() == [True, True], "both lead")
        for client, call in zip(cut, calls, strict=True):
            client.call = call  # type: ignore[method-assign]
        await until(lambda: leads() == [True, False], "m1 goes on alone")
