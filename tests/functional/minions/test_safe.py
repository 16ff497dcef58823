"""What one minion answers, and what becomes of the question whether all would go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import key_folders
from lab.engines import Engine, Place
from lab.keys import KeyPairs
from saltext_ha.membership import handover
from saltext_ha.minions import reports
from saltext_ha.minions.job_specs import JobSpec
from tests.engines import met, run
from tests.loop import in_a_loop

pytestmark = pytest.mark.usefixtures("no_bus")

M1, M2 = "127.0.0.1", "127.0.0.2"
LONG = "x" * 1_000_000


def pair(root: Path, *ids: str) -> list[Place]:
    """Masters at these addresses that have accepted minions."""
    found = [
        Place(root, name, options={"interface": address})
        for name, address in (("m1", M1), ("m2", M2))
    ]
    for place in found:
        key_folders.plant(place.pki_dir, list(ids))
    return found


def report(at: str, *masters: str) -> dict[str, Any]:
    """What a sound minion says that the master at the address *at* asks."""
    reached = {"port": 4506, "connected": True, "publishes": True, "ping": {"answers": True}}
    return {
        "lint": {"findings": [], "unknown": {}},
        "masters": [{"address": address, **reached} for address in masters],
        "current_master": {"type": "failover", "address": at, "port": 4506, "connected": True},
        "verify_master_pubkey_sign": False,
    }


def minions(engine: Engine, returned: dict[str, Any], *more: tuple[str, Any]) -> None:
    """Have the master of *engine* publish to minions that return that, and fire *more*."""

    def publish(opts: Any, order: JobSpec, jid: str) -> list[str]:
        for tag, data in more:
            engine.parts.bus.tell(tag.format(jid=jid), data)
        for minion_id, value in returned.items():
            data = {"id": minion_id, "fun": reports.FUNCTION, "return": value}
            engine.parts.bus.tell(f"salt/job/{jid}/ret/{minion_id}", data)
        return [*returned]

    engine.made.jobs.here.publish = publish


@pytest.mark.parametrize(
    "bad",
    [
        {"lint": {"findings": ["x"]}},
        {"lint": {"findings": ["x" * 1000] * 40_000}},
        {"masters": [LONG] * 40},
        {"masters": 7},
        {"current_master": {"type": [[LONG]] * 40}},
        None,
        LONG,
    ],
    ids=[
        "no finding",
        "40 MB of findings",
        "40 MB of masters",
        "no masters",
        "type",
        "none",
        "text",
    ],
)
@in_a_loop
async def test_one_hostile_minion_is_the_problem_that_is_named(tmp_path: Path, bad: Any) -> None:
    one, two = pair(tmp_path, "evil", "web1", "web2")
    async with met(one, two) as (m1, m2):
        sound = {"web1": report(M1, M1, M2), "web2": report(M1, M1, M2)}
        evil = {**report(M1, M1, M2), **bad} if isinstance(bad, dict) else bad
        error = ("salt/job/{jid}/prog/x", {"error": "x", "minions": 5})
        minions(m1, {"evil": evil, **sound}, error)
        minions(m2, {})
        answer = await run(one, "failover_safe", master="m1")
        assert answer["minions"] == {"accepted": 3, "answered": 3}
        about = [r for m in answer["masters"] for r in m["reasons"] if r["about"] == "minions"]
        assert [each["minions"] for each in about] == [["evil"]], about
        assert about[0]["unknown"]
        assert len(about[0]["text"]) < 1_000
        # Asked by the other master it is the same.
        other = await run(two, "failover_safe", master="m1")
        assert other["minions"] == {"accepted": 3, "answered": 3}


@in_a_loop
async def test_one_minion_cannot_take_a_masters_address_away(tmp_path: Path) -> None:
    """It says that it met m1 at the address of m2; the others know both."""
    one, two = pair(tmp_path, "evil", "web1")
    async with met(one, two) as (m1, m2):
        minions(m1, {"evil": report(M2, M1, M2)})
        minions(m2, {"web1": report(M2, M1, M2)})
        answer = await run(one, "failover_safe", master="m1")
        assert answer["minions"] == {"accepted": 2, "answered": 2}
        reasons = [r for m in answer["masters"] for r in m["reasons"]]
        assert [each for each in reasons if each["about"] == "minions"] == []


@in_a_loop
async def test_no_minion_is_to_verify_what_no_master_signs(tmp_path: Path) -> None:
    """It would refuse all of them."""
    one, two = pair(tmp_path, "web1")
    pairs = KeyPairs()
    for place in (one, two):
        private, public = pairs.next()
        handover.place(place.opts, {"master.pem": private, "master.pub": public})
    async with met(one, two) as (m1, m2):
        minions(m1, {"web1": report(M1, M1, M2)})
        minions(m2, {})
        answer = await run(one, "failover_safe", master="m1")
        reasons = [r for m in answer["masters"] for r in m["reasons"]]
        assert [each["about"] for each in reasons] == ["master_key"]


@in_a_loop
async def test_a_master_that_no_minion_is_configured_with_is_none_to_fall_back_on(
    tmp_path: Path,
) -> None:
    one, two = pair(tmp_path, "web1")
    async with met(one, two) as (m1, m2):
        minions(m2, {})
        for masters, unused in (((M1,), ["m2"]), ((M1, M2), [])):
            minions(m1, {"web1": report(M1, *masters)})
            await run(one, "failover_safe")
            for place in (one, two):  # whichever is asked, and looked last
                notes = (await run(place, "status"))["notes"]
                assert [n for n in notes if "no minion is configured with m2" in n] == notes
                assert bool(notes) is bool(unused)
