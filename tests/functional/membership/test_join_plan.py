"""``ha.join test=True``: it changes nothing, and foretells what the join then does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place, befriend
from lab.keys import KeyPairs
from saltext_ha.commands.keys import key_pages
from saltext_ha.commands.membership import join_plan
from saltext_ha.keystore import open_store
from saltext_ha.membership import handover
from saltext_ha.reconciler.hints import Hint
from saltext_ha.replication.placement import Stored
from saltext_ha.sync.key_rows import text
from saltext_ha.transport.trust import Trust
from tests.engines import invited, join_by, run, running
from tests.fixtures import named
from tests.keys import public_key
from tests.loop import in_a_loop, until

pytestmark = pytest.mark.usefixtures("no_bus")

A, B = public_key(0), public_key(1)
FOLDERS = {"accepted": "minions", "pending": "minions_pre", "rejected": "minions_rejected"}
# What a master may hold of an id: key files, after those in the second list were deleted.
Holding = tuple[dict[str, str], bool]
HOLDINGS: dict[str, Holding] = {
    "nothing": ({}, False),
    "deleted": ({}, True),
    "knocked": ({"minions_pre": A}, True),
    "beside": ({"minions": A, "minions_denied": B}, False),
    **{
        f"{state}{key}": ({folder: text}, False)
        for state, folder in FOLDERS.items()
        for key, text in (("A", A), ("B", B))
    },
}
HA = {"hold_minimum": 1000, "sync_interval": 0.2, "group": "prod"}


def tree(place: Place) -> dict[str, tuple[int, int, bytes]]:
    """Every file of a master that no running database writes."""
    return {
        str(path.relative_to(place.folder)): (stat.st_mode, stat.st_mtime_ns, path.read_bytes())
        for path in sorted(place.folder.rglob("*"))
        if path.is_file() and not path.name.startswith("replica.db")
        for stat in [path.stat()]
    }


def shown(place: Place, ids: list[str]) -> dict[str, str]:
    """What the key folders show, in the words of a plan."""
    store = open_store(place.opts)
    contents = {minion_id: store.read(minion_id) for minion_id in ids}
    return {
        minion_id: text(content.stored if content else Stored())
        for minion_id, content in contents.items()
    }


def plant(place: Place, minion_id: str, files: dict[str, str]) -> None:
    for folder in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
        path = place.pki_dir / folder / minion_id
        if folder in files:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[folder])
        else:
            path.unlink(missing_ok=True)


async def hold(engine: Engine, holdings: dict[str, Holding]) -> None:
    """Bring a running master to hold that, by id."""
    deleted = [minion_id for minion_id, holding in holdings.items() if holding[1]]
    core = engine.parts.core
    for minion_id in deleted:
        plant(engine.place, minion_id, {"minions": A})
    await core.hinted([Hint(minion_id, "operator", False) for minion_id in deleted])
    for minion_id in deleted:
        plant(engine.place, minion_id, {})
    await core.hinted([Hint(minion_id, "operator", True) for minion_id in deleted])
    for minion_id, (files, _) in holdings.items():
        plant(engine.place, minion_id, files)
    await core.hinted([Hint(minion_id, "operator", False) for minion_id in holdings])


m1, m2 = named(lambda root, name: Place(root, name, HA), "m1", "m2")


@pytest.mark.parametrize("joiner", ["running", "stopped", "never started"])
@in_a_loop
async def test_the_plan_is_what_the_join_does(m1: Place, m2: Place, joiner: str) -> None:
    holdings = (
        HOLDINGS
        if joiner != "never started"
        else {name: holding for name, holding in HOLDINGS.items() if not holding[1]}
    )
    cases = {f"{one}-{two}": (one, two) for one, two in itertools.product(HOLDINGS, holdings)}
    ids = list(cases)
    ours = {minion_id: HOLDINGS[one] for minion_id, (one, _) in cases.items()}
    theirs = {minion_id: HOLDINGS[two] for minion_id, (_, two) in cases.items()}

    async with running(m1) as (one,), contextlib.AsyncExitStack() as stack:
        if joiner == "never started":
            for minion_id, (files, _) in theirs.items():
                plant(m2, minion_id, files)
        else:
            two = await stack.enter_async_context(Engine(m2))
            await hold(two, theirs)
            if joiner == "stopped":
                await stack.aclose()
        await hold(one, ours)
        before = {place.name: shown(place, ids) for place in (m1, m2)}
        token = await invited(m1)
        files = tree(m1), tree(m2)

        plan = await join_by(m2, token, test=True)
        again = await join_by(m2, token, test=True)
        assert (tree(m1), tree(m2)) == files
        assert plan["problems"] == [], plan
        assert again["changes"] == plan["changes"]
        assert not Trust(m1.config.state_dir).peers()

        joined = await join_by(m2, token)
        assert joined["members"] == ["m1"], joined
        if joiner != "running":
            two = await stack.enter_async_context(Engine(m2))
        replicas = one.parts.core.replica, two.parts.core.replica
        await until(
            lambda: (
                replicas[0].records.root == replicas[1].records.root
                and not any(engine.known(lambda of: of.dirty()) for engine in (one, two))
            ),
            "both know and apply the same",
        )

    planned = {"m1": dict(before["m1"]), "m2": dict(before["m2"])}
    names = {"m2": "m2", "the group (m1)": "m1"}
    for change in plan["changes"]:
        side = planned[names[change["master"]]]
        assert side[change["id"]] == ("" if change["from"] == "absent" else change["from"])
        side[change["id"]] = "" if change["to"] == "deleted" else change["to"]
    assert {place.name: shown(place, ids) for place in (m1, m2)} == planned
    # The cases are worth something only when both sides change in every way.
    words = {word for change in plan["changes"] for word in change["to"].split()}
    assert words >= {"accepted", "rejected", "pending", "deleted", "denied"}
    conflicts = {conflict["id"] for conflict in plan["conflicts"]}
    assert {"acceptedA-acceptedB", "acceptedB-acceptedA"} <= conflicts


def test_a_key_store_that_is_only_looked_at_is_not_tidied(m1: Place) -> None:
    """The engine would remove the second file of that id."""
    plant(m1, "web1", {"minions": A, "minions_rejected": A})
    before = tree(m1)
    join_plan._from_store(m1.opts, m1.config)
    assert tree(m1) == before


@in_a_loop
async def test_a_master_that_comes_back_knows_what_it_had_seen(m1: Place, m2: Place) -> None:
    """It left and joins again: what both saw before they parted does not count as news."""
    async with running(m1, m2) as (one, two):
        token = await invited(m1)
        await join_by(m2, token)
        await one.meets(two)
        plant(m1, "web1", {"minions": A})
        await one.hint("web1")
        plant(m1, "web1", {})
        await one.hint("web1", gone=True)
        replicas = one.parts.core.replica, two.parts.core.replica
        await until(lambda: replicas[0].records.root == replicas[1].records.root, "both know")
        left = await run(m2, "leave")
        assert left["retcode"] == 0, left
    async with running(m1, m2) as (one, two):
        # Accepted again, under the name of another start, by somebody who knows of the
        # deletion, which m2 still remembers.
        plant(m1, "web1", {"minions": A})
        await one.hint("web1")
        token = await invited(m1)
        plan = await join_by(m2, token, test=True)
        changes = [(c["master"], c["id"], c["to"].split()[0]) for c in plan["changes"]]
        assert changes == [("m2", "web1", "accepted")]
        await join_by(m2, token)
        await until(lambda: shown(m2, ["web1"])["web1"].startswith("accepted"), "m2 has it")


@in_a_loop
async def test_all_pages_arrive(m1: Place, m2: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_pages, "ROWS", 7)
    async with running(m1, m2) as (one, two):
        for engine, name in ((one, "a"), (two, "b")):
            for number in range(23):
                plant(engine.place, f"{name}{number}", {"minions": A})
                await engine.notice(f"{name}{number}")
        token = await invited(m1)
        plan = await join_by(m2, token, test=True)
    assert {(c["master"], c["id"]) for c in plan["changes"]} == {
        *(("m2", f"a{number}") for number in range(23)),
        *(("the group (m1)", f"b{number}") for number in range(23)),
    }


@in_a_loop
async def test_what_would_be_refused_is_said(m1: Place, m2: Place, tmp_path: Path) -> None:
    async with running(m1):
        token = await invited(m1)
        other = Place(tmp_path, "other", {**HA, "group": "test", "name": "m1"})
        before = tree(other)
        plan = await join_by(other, token, test=True)
        assert plan["retcode"] == 1
        text = "\n".join(plan["problems"])
        assert "the token is of the group 'prod'" in text
        assert "the inviting master's own name" in text
        assert tree(other) == before
        assert not other.config.state_dir.exists()
        bad = await join_by(m2, token[:-4] + "AAAA", test=True)
        assert bad["retcode"] == 2
        assert "altered" in bad["error"]
        # The token is as good as before.
        assert (await join_by(m2, token))["members"] == ["m1"]


@in_a_loop
async def test_who_takes_fewer_masters_than_the_group_has_is_told_before(
    m1: Place, m2: Place, tmp_path: Path
) -> None:
    small = Place(tmp_path, "small", {**HA, "max_members": 2})
    befriend(m1, m2)
    async with running(m1):
        plan = await join_by(small, await invited(m1), test=True)
    assert "this group has 2 masters already, and takes 2" in str(plan["problems"])
    assert plan["retcode"] == 1
    assert not small.config.state_dir.exists()


@in_a_loop
async def test_who_is_in_another_group_does_not_make_one_of_both(
    m1: Place, m2: Place, tmp_path: Path
) -> None:
    """Somebody who moves a master forgets ``ha.leave``, and the groups have the same name."""
    m3, m4 = (Place(tmp_path, name, HA) for name in ("m3", "m4"))
    befriend(m1, m2)
    befriend(m3, m4)
    async with running(m1, m2, m3, m4) as (one, *_):
        token = await invited(m1)
        planned = await join_by(m4, token, test=True)
        (why,) = planned["problems"]
        assert why.startswith("this master is in a group with m3, and the token is of another one")
        assert (await join_by(m4, token))["error"] == why
        assert set(one.parts.trust.peers()) == {"m2"}
        # Others of its own group, and one master alone, are no other group.
        assert (await join_by(m2, token, test=True))["problems"] == []
        alone = Place(tmp_path, "alone", HA)
        async with running(alone):
            assert (await join_by(m1, await invited(alone), test=True))["problems"] == []
        assert (await join_by(m4, token, test=True, force=True))["problems"] == []
        assert (await join_by(m4, token, force=True))["retcode"] == 0
        assert set(one.parts.trust.peers()) >= {"m2", "m4"}
        # Now its own group has several others.
        assert (await join_by(m4, await invited(m1), test=True))["problems"] == []


@in_a_loop
async def test_who_cannot_be_reached_does_not_join(m1: Place, tmp_path: Path) -> None:
    """Its engine never ran, and it answers for it; at another address than it says."""
    ha = {**HA, "address": "127.0.0.3", "listen_host": "127.0.0.2"}
    m2 = Place(tmp_path, "m2", ha)
    async with running(m1):
        token = await invited(m1)
        why = f"m1 cannot reach you at https://127.0.0.3:{m2.port}: refused the connection"
        plan = await join_by(m2, token, test=True)
        assert why in str(plan["problems"])
        assert plan["retcode"] == 1
        refused = await join_by(m2, token)
        assert why in refused["error"]
        assert not Trust(m1.config.state_dir).peers()
        plan = await join_by(m2, token, test=True, probe=False)
        assert plan["problems"] == []
        assert "cannot reach this one: refused the connection" in str(plan["notes"])
        joined = await join_by(m2, token, probe=False)
        assert "cannot reach this one: refused the connection" in str(joined["notes"])
        assert joined["members"] == ["m1"]


@in_a_loop
async def test_a_name_that_was_copied(m1: Place, m2: Place, tmp_path: Path) -> None:
    """Whoever has it must not be told to remove the master that runs under it."""
    copied = Place(tmp_path / "copy", "m2", HA)
    async with running(m1) as (one,):
        async with running(m2) as (two,):
            await join_by(m2, await invited(m1))
            await one.meets(two)
            token = await invited(m1)
            plan = await join_by(copied, token, test=True)
            said = str(plan["problems"])
            assert f"m2: is the name of a master that runs at {m2.config.url}, seen " in said
            assert " s ago; choose another: ha: name" in said
            assert "remove_peer" not in said
            refused = await join_by(copied, token)
            assert f"that runs at {m2.config.url}" in refused["error"]
            assert "remove_peer" not in refused["error"]
        await until(lambda: one.parts.links.contacts["m2"].ago() is None, "m2 is known to be down")
        refused = await join_by(copied, token)
        assert "if that master is gone for good: salt-run ha.remove_peer m2" in refused["error"]


@in_a_loop
async def test_a_master_whose_configuration_starts_no_engine_is_told(tmp_path: Path) -> None:
    """Its start would bring nothing, and no word of it."""
    m1, m2 = (
        Place(tmp_path, name, options={"engines": listed})
        for name, listed in (("m1", [{"ha": {}}]), ("m2", []))
    )
    async with running(m1):
        token = await invited(m1)
        for test in (True, False):
            said = await join_by(m2, token, test=test)
            assert "has no '- ha: {}' in engines:" in str(said["notes"])


@in_a_loop
async def test_what_becomes_of_the_master_key_is_said(m1: Place, m2: Place) -> None:
    pairs = KeyPairs()
    for place in (m1, m2):
        private, public = pairs.next()
        handover.place(place.opts, {"master.pem": private, "master.pub": public})

    async def plan(share: bool = False, **kwargs: Any) -> dict[str, Any]:
        token = await invited(m1, share_master_key=share)
        return await join_by(m2, token, test=True, **kwargs)

    async with running(m1):
        apart = await plan()
        assert "different master keys; hot-hot minions need one" in str(apart["notes"])
        assert apart["retcode"] == 0, apart
        shared = await plan(share=True)
        assert "another master key is here" in str(shared["key_problems"])
        assert (shared["problems"], shared["retcode"]) == ([], 1)
        forced = await plan(share=True, force=True)
        assert "would be replaced" in str(forced["notes"])
        assert forced["retcode"] == 0, forced
        for half in ("master.pem", "master.pub"):
            (m2.pki_dir / half).unlink()
        assert "would be put in place" in str((await plan(share=True))["notes"])
        # There is a token, but nothing to share any more.
        (m1.pki_dir / "master.pem").unlink()
        assert "no master key to share" in str((await plan(share=True))["problems"])
    assert not (m2.pki_dir / "master.pub").exists()


def test_a_plan_takes_a_token(m2: Place) -> None:
    answer = asyncio.run(run(m2, "join", test=True))
    assert "test=True takes a token" in answer["error"]
    assert not m2.config.state_dir.exists()
