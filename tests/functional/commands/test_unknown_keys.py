"""Keys of a master that does not show them are unknown, never the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine
from saltext_ha.common.errors import HaError
from saltext_ha.reconciler.core import Core
from saltext_ha.transport.peer import Peer
from tests.engines import (
    level,
    met,
    places,
    put,
    records,
    run,
    sharing,
    there,
)
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]


@pytest.mark.parametrize("refuses", [False, True])
@in_a_loop
async def test_a_master_that_does_not_show_its_keys_is_not_called_the_same(
    tmp_path: Path, refuses: bool
) -> None:
    one, two = places(tmp_path, "m1", "m2")

    async def keys(peer: Peer, payload: dict[str, Any]) -> dict[str, Any]:
        if refuses:
            raise HaError("not now")
        return {"keys": 7}

    async with met(one, two) as (m1, m2):
        m2.parts.core.mode.paused = "paused"
        put(one, "web1")
        await m1.hint("web1")
        await until(lambda: bool(records(m2)), "heard of")
        asked = {"only": ["keys"]}
        assert (await run(one, "check_consistency", **asked))["status"] != "same"
        assert (await run(one, "sync", test=True))["changes"]
        m2.service.listener._handlers["keys"] = keys
        checked = await run(one, "check_consistency", **asked)
        assert (checked["status"], checked["retcode"]) == ("unknown", 2)
        assert list(checked["unknown"]) == ["m2"]
        planned = await run(one, "sync", test=True)
        assert (list(planned["unreachable"]), planned["retcode"]) == (["m2"], 2)


@pytest.mark.parametrize("where", ["m1", "m2"])
@in_a_loop
async def test_keys_that_cannot_be_read_are_not_said_to_be_the_same(
    tmp_path: Path, where: str
) -> None:
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(["web1"], one, two) as engines:
        await level(*engines)
        spoilt = next(engine for engine in engines if engine.place.name == where)
        denied = spoilt.place.pki_dir / "minions_denied"
        if denied.exists():
            denied.rmdir()
        denied.symlink_to(denied)
        (spoilt.place.pki_dir / "minions" / "web1").unlink()
        await spoilt.parts.core.scan()

        keys = await run(one, "keys_")
        assert keys["retcode"] == 2
        assert "cannot be listed" in keys["unknown"][where]
        assert [key["states"][where] for key in keys["keys"]] == ["unknown"]
        sync = await run(one, "sync", test=True)
        assert sync["retcode"] == 2
        assert "cannot be listed" in sync["unreachable"][where]
        assert not sync["changes"]
        checked = await run(one, "check_consistency", only="keys")
        assert checked["retcode"] == 2
        assert checked["sections"]["keys"]["unknown"].keys() == {where}
        assert not checked["unknown"], "other sections could be compared"
        status = await run(one, "status")
        row = next(each for each in status["masters"] if each["name"] == where)
        assert (row["behind"], status["retcode"]) == (None, 2)
        assert "cannot be listed" in row["note"]

        denied.unlink()
        await until(lambda: not spoilt.parts.core.unseen, "it can be read again")
        await until(lambda: not there(one) and not there(two), "the deletion is heard")
        assert (await run(one, "check_consistency", only="keys"))["retcode"] == 0


@in_a_loop
async def test_why_keys_are_not_known_is_told_though_no_look_has_failed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a full disk: something else could be recorded, and no pass was made yet."""
    (one,) = places(tmp_path, "m1")
    async with met(one):
        monkeypatch.setattr(Core, "unseen", "its keys are not known: the disk is full")
        (row,) = (await run(one, "status"))["masters"]
        assert row["note"] == "its keys are not known: the disk is full"


@in_a_loop
async def test_of_keys_that_are_not_read_yet_there_is_no_number(tmp_path: Path) -> None:
    """Its replica.db is lost, and no peer answers: zero keys would be wrong."""
    one, two = places(tmp_path, "m1", "m2")
    async with sharing(["web1"], one, two) as engines:
        await level(*engines)
    for file in one.config.state_dir.glob("replica.db*"):
        file.unlink()
    async with Engine(one):
        row = next(r for r in (await run(one, "status"))["masters"] if r["name"] == "m1")
        assert [row[key] for key in ("accepted", "pending", "rejected", "denied")] == [None] * 4
        keys = await run(one, "keys_")
        assert keys["retcode"] == 2
        assert keys["unknown"].keys() == {"m1", "m2"}
        assert "not rebuilt yet" in keys["unknown"]["m1"]
