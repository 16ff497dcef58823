"""Keys that are held: what is shown of them, and how ``ha.release`` and ``ha.refill`` end it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Place
from lab.key_folders import ACCEPTED, PENDING
from saltext_ha.common.errors import HaError, StoreError
from saltext_ha.health import fitness
from tests.engines import (
    accepted,
    decisions,
    delete,
    level,
    met,
    notes,
    places,
    put,
    records,
    run,
    sharing,
    there,
)
from tests.loop import becomes, in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

REJECTED = "minions_rejected"
NUMBERED = [f"web{number}" for number in range(3)]


@in_a_loop
async def test_an_emptied_folder_is_filled_again(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(NUMBERED, one, two) as (m1, m2):
        for answer in (await decisions(m2).refill({}), await decisions(m2).release({})):
            assert (answer["changes"], answer["retcode"]) == ([], 0)
            assert answer["notes"] == ["nothing is held on m2: its key store is as it should be"]
        with pytest.raises(HaError, match="nothing is held on m2"):
            await decisions(m2).release({"deletes": 3})
        # At once: half emptied, it would have lost single keys.
        (two.pki_dir / "minions").rename(two.pki_dir / "away")
        (two.pki_dir / "minions").mkdir()
        await until(lambda: m2.parts.core.replica.held.count == 3, "noticed, and held")
        assert "ha.refill" in await notes(m1, "m2")
        plan = await decisions(m2).refill({"test": True})
        assert [(c["master"], c["id"], c["from"]) for c in plan["changes"]] == [
            ("m2", f"web{number}", "absent") for number in range(3)
        ]
        assert accepted(two) == [set()]
        await decisions(m2).refill({})
        assert accepted(one, two) == [{"web0", "web1", "web2"}] * 2
        await level(m1, m2)
        await becomes(partial(notes, m1, "m2"), "")


@in_a_loop
async def test_what_a_wiped_master_shows_its_minions_counts(tmp_path: Path) -> None:
    """Its replica knows all keys still; its minions find none of them."""
    one, two = places(tmp_path, "m1", "m2", ha={"health": False})
    away = two.pki_dir / "away"
    async with sharing(NUMBERED, one, two) as (m1, m2):
        await level(m1, m2)

        async def tolerated() -> Any:
            return (await run(one, "status"))["tolerates"]

        await becomes(tolerated, 1)
        (two.pki_dir / "minions").rename(away)
        (two.pki_dir / "minions").mkdir()
        await until(lambda: not m2.parts.health.ready()[0], "it is not ready")
        assert m2.parts.health.ready()[1] == m2.parts.core.mode.doubt

        async def group_of(place: Place) -> Any:
            status = await run(place, "status")
            return status["tolerates"], status["state"]

        async def row_of(place: Place) -> Any:
            status = await run(place, "status")
            (row,) = (row for row in status["masters"] if row["name"] == "m2")
            return tuple(row[key] for key in ("accepted", "behind", "held", "doubt"))

        async def keys_of(place: Place) -> Any:
            keys = await run(place, "keys_")
            return keys["retcode"], [row["states"] for row in keys["keys"]]

        # It is not ready a moment before what is missing is counted.
        for place in (one, two):
            await becomes(partial(row_of, place), (None, 3, 3, m2.parts.core.mode.doubt))
            await becomes(partial(group_of, place), (0, "degraded"))
            states = [{"m1": "accepted", "m2": None} for _ in range(3)]
            await becomes(partial(keys_of, place), (1, states))
        shutil.rmtree(two.pki_dir / "minions")
        away.rename(two.pki_dir / "minions")
        await until(lambda: m2.parts.health.ready() == (True, ""), "it is ready")

        async def told() -> Any:
            keys, status = await run(one, "keys_"), await run(one, "status")
            return keys["retcode"], status["tolerates"]

        await becomes(told, (0, 1))
        nobody = await run(one, "keys_", "zz*")
        assert (nobody["retcode"], nobody["keys"], nobody["match"]) == (1, [], "zz*")
        said = (await run(one, "restore", "zz1"))["error"]
        assert said.endswith("'zz1' is known here; ask a master that was up at that time")
        said = (await run(one, "resolve", "zz1", "aa"))["error"]
        assert said.endswith("'zz1' is known here; ha.status lists the ids that are in conflict")


@in_a_loop
async def test_keys_that_are_held_make_a_master_not_ready_and_those_that_came_back_are_shown(
    tmp_path: Path,
) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"health": False, "hold_minimum": 0})
    gone, back = {f"web{number}" for number in range(3)}, {f"old{number}" for number in range(3)}
    async with sharing(gone | back | {"stays"}, one, two) as (m1, m2):
        await delete(m1, *back)
        await until(lambda: accepted(two) == [gone | {"stays"}], "deleted")
        await m2.parts.core.run(lambda: None)  # and that is written down
        for minion_id in gone:
            (two.pki_dir / "minions" / minion_id).unlink()
        for minion_id in back:
            put(two, minion_id)
        await until(lambda: m2.parts.core.replica.held.count == 6, "held")
        assert m2.parts.health.ready() == (False, fitness.held(6))
        (row,) = [r for r in (await run(one, "status"))["masters"] if r["name"] == "m2"]
        assert (row["accepted"], row["behind"], row["doubt"]) == (4, 6, "")
        found = (await run(one, "keys_", "*"))["keys"]
        assert {row["id"]: row["states"] for row in found} == {
            **{minion_id: {"m1": "accepted", "m2": None} for minion_id in gone},
            **{minion_id: {"m1": None, "m2": "accepted"} for minion_id in back},
            "stays": {"m1": "accepted", "m2": "accepted"},
        }
        assert {row["id"] for row in (await run(two, "keys_", "old*"))["keys"]} == back
        # That they were shown is not that they were looked at.
        for minion_id in gone:
            put(two, minion_id)
        for minion_id in back:
            (two.pki_dir / "minions" / minion_id).unlink()
        await until(lambda: m2.parts.core.replica.held.count == 0, "nothing is held")
        assert m2.parts.health.ready() == (True, "")


@in_a_loop
async def test_who_releases_says_how_many_keys_that_deletes(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    many = {f"web{number}" for number in range(3)}
    async with sharing(many | {"old"}, one, two) as (m1, m2):
        await delete(m1, "old")
        await until(lambda: accepted(two) == [many], "deleted")
        assert (await run(one, "release"))["retcode"] == 0, "there is nothing to be done"
        for minion_id in many:
            (two.pki_dir / "minions" / minion_id).unlink()
        put(two, "web1", folder=PENDING)
        put(two, "old")
        await until(lambda: m2.parts.core.replica.held.count == 4, "held")
        wrong = await run(one, "release", deletes=3)
        assert wrong["error"].startswith("nothing is held on m1, but 4 keys on m2. Run there")
        assert wrong["retcode"] == 2
        assert (await run(one, "refill"))["error"] == wrong["error"]
        plan = await run(two, "release", test=True)
        assert (plan["deletes"], len(plan["changes"]), plan["retcode"]) == (3, 4, 0)
        refused = await run(two, "release")
        assert refused["error"] == f"nothing was done. {plan['notes'][0]}"
        assert (
            "If 3 keys are to be deleted on all masters: salt-run ha.release deletes=3"
            in (refused["error"])
        )
        for wish in (4, 0, "3", True):
            assert (await run(two, "release", deletes=wish))["retcode"] == 2
        assert accepted(one) == [many]
        done = await run(two, "release", deletes=3)
        assert (done["deletes"], done["retcode"]) == (3, 0)
        await until(lambda: accepted(one, two) == [{"old"}, {"old"}], "done on both")


@in_a_loop
async def test_what_is_released_is_what_was_shown(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(["web1"], one, two) as (m1, m2):
        core, release = m2.parts.core, decisions(m2)
        (two.pki_dir / "minions" / "web1").unlink()
        await until(lambda: core.replica.held.count == 1, "held")
        core.mode.paused = "so that what comes is not written"
        held = await core.run(release._held)
        put(one, "web1", 1)
        await m1.hint("web1")
        await until(lambda: len(records(m2)) == 2, "the new key has come")
        assert not await release._released(held, "root")
        assert core.replica.held.count == 1
        assert await release._released(await core.run(release._held), "root")


@in_a_loop
async def test_of_an_emptied_key_store_the_rejected_keys_are_shown_too(tmp_path: Path) -> None:
    """A release deletes them on all masters, and where keys are accepted automatically, that lets
    their minions in."""
    one, two = places(tmp_path, "m1", "m2")
    put(one, "bad", folder=REJECTED)
    async with sharing(["web1"], one, two) as (_, m2):
        await until(lambda: there(two, REJECTED) == {"bad"}, "rejected on both")
        for folder in (ACCEPTED, REJECTED):
            shutil.rmtree(two.pki_dir / folder)
            (two.pki_dir / folder).mkdir()
        await until(lambda: m2.parts.core.replica.held.count == 2, "noticed, and held")

        async def states() -> Any:
            return [key["states"] for key in (await run(one, "keys_", "bad"))["keys"]]

        await becomes(states, [{"m1": "rejected", "m2": None}])
        plan = await decisions(m2).refill({"test": True})
        said = [f"{c['id']}: {c['from']} → {c['to']}" for c in plan["changes"]]
        assert [each.rpartition(" ")[0] for each in said] == [
            "bad: absent → rejected",
            "web1: absent → accepted",
        ]
        plan = await decisions(m2).release({"test": True})
        said = [f"{c['id']}: {c['from']} → {c['to']}" for c in plan["changes"]]
        assert [" ".join(each.split()[:3]) for each in said] == [
            "bad: held, rejected",
            "web1: held, accepted",
        ]
        assert plan["deletes"] == 2
        await decisions(m2).release({"deletes": 2})
        await until(lambda: there(one) == there(one, REJECTED) == set(), "both are deleted")


@in_a_loop
async def test_revoked_keys_that_came_back_are_released_without_a_number(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(("old", "stays"), one, two) as (m1, m2):
        await delete(m1, "old")
        await until(lambda: accepted(two) == [{"stays"}], "deleted")
        await m2.parts.core.run(lambda: None)  # and that is written down
        put(two, "old")
        await until(lambda: m2.parts.core.replica.held.count == 1, "held")
        assert (await run(two, "release"))["deletes"] == 0
        await until(lambda: accepted(one) == [{"old", "stays"}], "accepted again")


@in_a_loop
async def test_what_is_refilled_while_paused_waits_for_the_end_of_it(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    async with sharing(["web1"], one, two) as (m1, _):
        await run(one, "pause")
        (one.pki_dir / "minions" / "web1").unlink()
        await until(lambda: m1.parts.core.replica.held.count == 1, "held")
        done = await run(one, "refill")
        paused = ["m1: not changed: its mode is paused"]
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, paused)
        assert accepted(one, two) == [set(), {"web1"}]
        await run(one, "resume")
        await until(lambda: accepted(one) == [{"web1"}], "it is back")


@in_a_loop
async def test_what_cannot_be_written_is_not_reported_as_refilled(tmp_path: Path) -> None:
    def apply(changes: object) -> None:
        raise StoreError("minions: cannot be written: Read-only file system")

    one, two = places(tmp_path, "m1", "m2", ha={"hold_minimum": 0})
    put(one, "web1")
    async with met(one, two) as (m1, _):
        await until(lambda: accepted(two) == accepted(one), "accepted")
        (one.pki_dir / "minions" / "web1").unlink()
        await until(lambda: m1.parts.core.replica.held.count == 1, "held")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(m1.parts.core.keeper.store, "apply", apply)
            done = await run(one, "refill")
        left = ["m1: not changed: minions: cannot be written: Read-only file system"]
        assert (done["written"], done["retcode"], done["notes"]) == (False, 1, left)
        await until(lambda: accepted(one) == [{"web1"}], "it is back")
