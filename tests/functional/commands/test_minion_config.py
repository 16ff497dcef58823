"""``ha.minion_config`` of two engines that have met."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lab.engines import Place
from saltext_ha.commands.masters.endpoints import Endpoints
from saltext_ha.common import master_key
from saltext_ha.output import _failover
from saltext_ha.output._text import Screen
from tests.engines import met, places, put, run
from tests.keys import public_key
from tests.loop import in_a_loop

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@pytest.fixture
def pair(tmp_path: Path) -> list[Place]:
    """Two masters with one key, each at an address of its own."""
    patient = {"peer_timeout": 30}  # on a busy machine one that answers late is not away
    (one,) = places(tmp_path, "m1", ha=patient, interface="127.0.0.1")
    (two,) = places(tmp_path, "m2", ha=patient, interface="127.0.0.2")
    for place in (one, two):
        keyed(place, 1)
    return [one, two]


def keyed(place: Place, number: int) -> None:
    (place.pki_dir / "master.pub").write_text(public_key(number))


@in_a_loop
async def test_two_masters(pair: list[Place]) -> None:
    async with met(*pair) as (_, m2):
        here, there = [await run(place, "minion_config") for place in pair]
        assert here == there, "whoever is asked"
        found = yaml.safe_load(here["text"])
        assert found["master"] == ["127.0.0.1", "127.0.0.2"]
        assert found["master_finger"] == master_key.fingerprint(public_key(1).encode())
        assert (here["retcode"], here["unknown"]) == (0, {})
        # What is printed is the file, not only something like it.
        printed = "\n".join(_failover.config(here, Screen(80, {})))
        assert f"{printed}\n" == here["text"]

        assert "ha.multi_master" in (await run(pair[0], "minion_config", format="sls"))["text"]
        assert (await run(pair[0], "minion_config", format="xml"))["kind"] == "error"

        await m2.stop()
        away = await run(pair[0], "minion_config", type="hot")
        assert yaml.safe_load(away["text"])["master"] == ["127.0.0.1", "127.0.0.2"]
        assert (away["retcode"], set(away["unknown"])) == (2, {"m2"})
        assert "# m2 could not be asked" in _failover.config(away, Screen(80, {}))[-1]


@in_a_loop
async def test_a_master_that_is_away_is_taken_to_have_the_ports_of_this_one(tmp_path: Path) -> None:
    """Otherwise ha.failover_safe calls what minions are configured with no master of the group."""
    one, two = places(tmp_path, "m1", "m2", interface="127.0.0.1", ret_port=4516, publish_port=4515)
    for place in (one, two):
        keyed(place, 1)
    async with met(one, two) as (m1, m2):
        await m2.stop()
        found, away = await Endpoints(m1.parts.group, m1.parts.core, one.opts, "127.0.0.1").all()
        assert set(away) == {"m2"}
        ports = [(each.name, each.request_port, each.publish_port) for each in found]
        assert ports == [("m1", 4516, 4515), ("m2", 4516, 4515)]
        (row,) = (await run(one, "failover_safe", "m2"))["masters"]
        assert not any("no master of the group" in reason["text"] for reason in row["reasons"])


@pytest.mark.parametrize("hash_type", ["sha512", "sha256"])
@in_a_loop
async def test_minions_that_compare_fingerprints_by_another_hash(
    tmp_path: Path, hash_type: str
) -> None:
    """Masters and minions are to have the same; a minion that finds another fingerprint ends."""
    (one,) = places(tmp_path, "m1", hash_type=hash_type, interface="127.0.0.1")
    keyed(one, 1)
    async with met(one):
        found = await run(one, "minion_config")
        assert any("hash_type" in note for note in found["notes"]) is (hash_type == "sha512")


@in_a_loop
async def test_different_keys(pair: list[Place]) -> None:
    keyed(pair[1], 2)
    async with met(*pair):
        apart = await run(pair[0], "minion_config")
        assert (apart["kind"], apart["retcode"]) == ("error", 2)
        assert "share_master_key=True" in apart["error"]


@in_a_loop
async def test_the_accepted_minions_are_counted_for_the_jitter(pair: list[Place]) -> None:
    for place in pair:
        for number in range(700):
            put(place, f"web{number}")
    async with met(*pair):
        for place in pair:
            found = await run(place, "minion_config", watchdog=True)
            assert yaml.safe_load(found["text"])["ha"] == {"watchdog": {"jitter": 5}}


@in_a_loop
async def test_without_salt_beneath_no_minion_can_be_asked(pair: list[Place]) -> None:
    """And that is a no: whoever does not know must not say yes."""
    for place in pair:
        put(place, "web1")
    async with met(*pair):
        found = await run(pair[0], "failover_safe", "m2")
        assert (found["safe"], found["retcode"]) == (False, 2)
        assert found["minions"] == {"accepted": 1, "answered": 0}
        (row,) = found["masters"]
        told = [reason["text"] for reason in row["reasons"] if reason["about"] == "minions"]
        assert [text.split(":")[0] for text in told] == [
            "m1 could not ask its minions",
            "m2 could not ask its minions",
            "they did not answer",
        ]
        for wish, words in (({"master": "m9"}, "no master 'm9'"), ({"minions": "x*"}, "no acc")):
            refused = await run(pair[0], "failover_safe", **wish)
            assert (refused["kind"], words in refused["error"]) == ("error", True)


@in_a_loop
async def test_there_must_be_room_for_those_too_that_are_not_asked_about(tmp_path: Path) -> None:
    pair = [
        *places(tmp_path, "m1", worker_threads=1),
        *places(tmp_path, "m2", worker_threads=1, ha={"minions_per_worker": 201}),
    ]
    for place in pair:
        keyed(place, 1)
        for number in range(201):
            put(place, f"web{number}")
    async with met(*pair):
        found = await run(pair[0], "failover_safe", "m2", minions="web7")
        assert found["minions"]["accepted"] == 1
        (row,) = found["masters"]
        told = [reason["text"] for reason in row["reasons"] if reason["about"] == "capacity"]
        assert told == ["m1 has 1 worker threads; 201 minions need 2"]
        # The measure is that of the master that is asked.
        others = await run(pair[1], "failover_safe", "m2", minions="web7")
        about = {reason["about"] for reason in others["masters"][0]["reasons"]}
        assert "capacity" not in about
