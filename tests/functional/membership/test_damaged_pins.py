"""A master whose pinned file is damaged is a master of the group, and unknown, to every command."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from unittest import mock

import pytest

from lab.engines import Place
from saltext_ha.once.etcd_client import KeyHolder
from saltext_ha.once.etcd_leader import EtcdLeader
from saltext_ha.output import _status
from saltext_ha.output._text import Screen
from tests.engines import met, places, run
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

PATIENT = {"peer_timeout": 20}  # all masters are up


def damage(place: Place, name: str) -> Path:
    file = place.config.state_dir / "peers" / f"{name}.json"
    file.write_text("{")
    return file


@in_a_loop
async def test_it_has_a_row_in_the_status_and_is_not_restarted(tmp_path: Path) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3", ha=PATIENT)
    async with met(one, two, three):
        file = damage(one, "m2")
        status = await run(one, "status")
        rows = {row["name"]: row for row in status["masters"]}
        assert list(rows) == ["m1", "m2", "m3"]
        assert rows["m2"]["state"] == "unknown"
        assert rows["m2"]["note"].startswith(f"{file}: ")
        assert "restore it from a backup, or remove it and join again" in rows["m2"]["note"]
        assert (status["state"], status["retcode"]) == ("degraded", 2)
        said = [reason for reason in status["reasons"] if str(file) in reason["text"]]
        assert [reason["about"] for reason in said] == ["m2"], "it is said once"
        assert str(file) in " ".join(" ".join(_status.status(status, Screen())).split())
        for test in (True, False):
            answer = await run(one, "restart_masters", test=test)
            problems = {row["name"]: row["problem"] for row in answer.get("masters", ())}
            assert str(file) in (problems["m2"] if test else answer["error"])
            assert answer["retcode"] == (1 if test else 2)


@in_a_loop
async def test_one_that_has_the_key_in_etcd_leads_on(tmp_path: Path) -> None:
    leader = {"store": "etcd", "endpoints": ["http://127.0.0.1:1"]}
    one, two = places(tmp_path, "m1", "m2", ha={**PATIENT, "leader": leader})
    async with met(one, two) as (m1, _):
        damage(one, "m2")
        while "m2" in m1.parts.links:
            await run(one, "peers")
        etcd = m1.parts.leader
        assert isinstance(etcd, EtcdLeader)
        for name, leads in (("m2", "m2"), ("s1", "")):
            with mock.patch.object(etcd, "client", mock.AsyncMock()) as client:
                client.get.return_value = KeyHolder(f"{name} 0a1b 77", 5, 5)
                await etcd._prolong_or_seek()
                assert etcd.standing.leader == leads


@in_a_loop
async def test_every_command_that_asks_all_masters_tells_of_it(tmp_path: Path) -> None:
    api = {"rest_cherrypy": {"port": 8000, "disable_ssl": True}}
    one, two = places(tmp_path, "m1", "m2", ha=PATIENT, **api)
    Path(one.opts["conf_file"]).write_text("interface: 127.0.0.1\n")
    async with met(one, two) as (m1, _):
        file = damage(one, "m2")
        while "m2" in m1.parts.links:
            await run(one, "peers")
        for command in ("keys_", "leader", "jobs", "where", "minions", "reachability", "peers"):
            answer = await run(one, command)
            assert (str(file) in str(answer), answer["retcode"]) == (True, 2), command
        leader = await run(one, "leader")
        assert [row["name"] for row in leader["masters"]] == ["m1", "m2"]
        for command, arguments in (
            ("cmd", ("*", "test.ping")),
            ("drain", ("m2",)),
            ("rebalance", ()),
            ("lookup_jid", ("20261124000000000001",)),
            ("remove_peer", ("m2",)),
            ("lint", ()),
        ):
            answer = await run(one, command, *arguments)
            assert (str(file) in str(answer), answer["retcode"]) == (True, 2), command
        balancer = await run(one, "proxy_config", "haproxy")
        assert {row["name"]: bool(row["unknown"]) for row in balancer["masters"]} == {
            "m1": False, "m2": True,
        }  # fmt: skip
        assert "m2 is left out: it could not be asked" in balancer["text"]
        assert balancer["retcode"] == 2
        renewed = await run(one, "renew")
        assert [note for note in renewed["notes"] if note.startswith("m2 was not told")]


@in_a_loop
async def test_a_file_of_this_masters_own_name_is_no_master(tmp_path: Path) -> None:
    """As one that was copied here with those of other masters."""
    one, two = places(tmp_path, "m1", "m2", ha=PATIENT)
    async with met(one, two):
        file = damage(one, "m1")
        status = await run(one, "status")
        assert [row["name"] for row in status["masters"]] == ["m1", "m2"]
        assert str(file) in str(status["notes"]), "it is to be removed"
        keys = await run(one, "keys_")
        assert (str(file) in str(keys), keys["retcode"]) == (False, 0)


@in_a_loop
async def test_a_copy_of_a_file_under_another_name_is_no_master(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha=PATIENT)
    async with met(one, two) as (m1, _):
        folder = one.config.state_dir / "peers"
        copy = shutil.copy(folder / "m2.json", folder / "m2-old.json")
        status = await run(one, "status")
        assert [row["name"] for row in status["masters"]] == ["m1", "m2"]
        assert f"{copy}: names peer 'm2'; remove the file if it is a copy" in str(status["notes"])
        assert (await run(one, "keys_"))["retcode"] == 0
        # Where it is the only file of that peer, a master is missing.
        (folder / "m2.json").unlink()
        await until(lambda: not m1.parts.trust.peers(), "it is not pinned")
        assert [row["name"] for row in (await run(one, "status"))["masters"]] == ["m1", "m2-old"]


@in_a_loop
async def test_who_leaves_leaves_no_copy_of_a_file_behind(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2", ha=PATIENT)
    async with met(one, two):
        folder = one.config.state_dir / "peers"
        shutil.copy(folder / "m2.json", folder / "m2-old.json")
        assert (await run(one, "leave"))["retcode"] == 0
        assert not list(folder.glob("*.json"))
        assert [row["name"] for row in (await run(one, "status"))["masters"]] == ["m1"]


@in_a_loop
async def test_who_leaves_is_told_whom_it_could_not_tell(tmp_path: Path) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3", ha=PATIENT)
    async with met(one, two, three):
        damage(one, "m2")
        plan = await run(one, "leave", test=True)
        assert "the group of m2, m3" in plan["notes"][0]
        left = await run(one, "leave")
        assert left["notes"][:2] == [
            "left; m3 does not trust this master any more",
            "m2 was not told (its file here cannot be read): m3 tells it when it is back",
        ]
        assert left["retcode"] == 2
        # It is in no group any more, and no file says otherwise.
        assert [row["name"] for row in (await run(one, "status"))["masters"]] == ["m1"]
        assert "in no group" in (await run(one, "leave"))["error"]
        damage(three, "m2")
        (alone,) = [each for each in (await run(three, "leave"))["notes"] if "not told" in each]
        assert "if ha.peers still lists m3 there, run there salt-run ha.remove_peer m3" in alone


@in_a_loop
async def test_a_file_of_a_removed_master_that_stays_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the note of the removal got lost, too, that master would be trusted again."""
    monkeypatch.setattr("saltext_ha.engine.member_loop.MEMBERS_INTERVAL", 0.2)
    one, two = places(tmp_path, "m1", "m2", ha=PATIENT)
    async with met(one, two):
        file, unlink = one.config.state_dir / "peers" / "m2.json", Path.unlink

        def refuse(path: Path, missing_ok: bool = False) -> None:
            if path == file:
                raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
            unlink(path, missing_ok)

        stays = f"{file}: m2 was removed from the group and stays out"
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            assert stays in str((await run(one, "remove_peer", "m2"))["notes"])
            peers = await run(one, "peers")
            assert (peers["peers"], peers["retcode"]) == ([], 1)
            assert stays in str(peers["notes"])
            status = await run(one, "status")
            assert [row["name"] for row in status["masters"]] == ["m1"]
            assert stays in str(status["notes"])
        await until(lambda: not file.exists(), "it is tried again")
        assert (await run(one, "peers"))["notes"] == []
