"""One key store for two masters: a shared folder, a shared database, and a mere copy."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import salt.version

from lab.engines import Engine, Place, befriend
from saltext_ha.common.errors import HaError, ReplicaError
from saltext_ha.engine import startup
from saltext_ha.keystore import open_store
from saltext_ha.keystore.base import KeyStore
from saltext_ha.sync.shared_store import SharedStore
from tests.engines import (
    QUICK,
    accepted,
    level,
    met,
    notes,
    places,
    put,
    records,
)
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

HAS_DRIVERS = salt.version.__saltstack_version__.major >= 3008


def place_on(root: Path, name: str, store: str) -> Place:
    """A master whose key store is the folder *store*, whoever else uses it."""
    ha = {**QUICK, "state_dir": str(root / name / "state")}
    return Place(root, name, ha, {"root_dir": "/", "pki_dir": str(root / store)})


@in_a_loop
async def test_two_masters_with_one_key_folder_only_report(tmp_path: Path) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    put(one, "web1")
    async with met(one, two) as (m1, m2):
        await until(lambda: bool(m1.parts.core.mode.never and m2.parts.core.mode.never), "told")
        assert "its key store is that of m2, too" in await notes(m1, "")
        assert "its key store is that of m1, too" in await notes(m2, "")
        assert m1.parts.core.mode.never
        assert m2.parts.core.mode.never
        # Both see what is done in it, and agree.
        put(one, "web2")
        await level(m1, m2)
        with pytest.raises(HaError, match="never written"):
            await m1.made.commands["resume"]({})


@in_a_loop
async def test_who_shares_a_folder_is_remembered_until_it_does_not(tmp_path: Path) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    three = place_on(tmp_path, "m3", "own")

    def only_reports(engine: Engine) -> bool:
        return engine.parts.core.mode.name == "observe"

    put(one, "web1")
    async with met(one, two, three) as (m1, m2, m3):
        await until(lambda: only_reports(m1) and only_reports(m2), "told")
        await until(lambda: accepted(three) == [{"web1"}], "told m3, too")
        await level(m1, m2, m3)
    # Again without m2: whose folder it is cannot be asked.
    async with met(one, three) as (m1, m3):
        assert only_reports(m1)
        put(three, "web2", 1)
        await until(lambda: bool(records(m1, "web2")), "m1 has heard of it")
        await m1.parts.core.scan()
        assert accepted(one, three) == [{"web1"}, {"web1", "web2"}]
    # m2 is given a copy of the folder.
    shutil.copytree(tmp_path / "shared", tmp_path / "copied", symlinks=True)
    async with met(one, place_on(tmp_path, "m2", "copied"), three) as (m1, m2, m3):
        await until(lambda: not (only_reports(m1) or only_reports(m2)), "told apart")
        await until(lambda: accepted(one, m2.place) == [{"web1", "web2"}] * 2, "both are written")
        await level(m1, m2, m3)


@in_a_loop
async def test_a_cache_that_shows_an_old_signature_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may show for a while what was there before."""
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    seen: list[str | None] = []

    def through_a_cache(opts: dict[str, Any]) -> KeyStore:
        store = open_store(opts)
        if opts["id"] == one.opts["id"]:
            really, until_then = store.signature, 0.0

            def signature(owner: str) -> str | None:
                nonlocal until_then
                if owner == "m2" and not seen:
                    until_then = time.monotonic() + QUICK["scan_interval"] / 2
                if owner != "m2" or time.monotonic() > until_then:
                    return really(owner)
                seen.append(before)
                return before

            monkeypatch.setattr(store, "signature", signature)
        return store

    before: str | None = None

    put(one, "web1")
    async with met(one, two) as (m1, m2):
        await until(lambda: bool(m1.parts.core.mode.never and m2.parts.core.mode.never), "told")
        before = m1.parts.core.keeper.store.signature("m2")
    monkeypatch.setattr(startup, "open_store", through_a_cache)
    async with met(one, two) as (m1, m2):
        modes, over = set(), time.monotonic() + 3 * QUICK["scan_interval"]
        while time.monotonic() < over:
            modes.add(m1.parts.core.mode.name)
            await asyncio.sleep(0.02)
        assert set(seen) == {before}
        assert modes == {"observe"}
        assert m1.parts.shared_store.names == {"m2"}


@in_a_loop
async def test_a_shared_store_is_remembered_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (place_on(tmp_path, name, "shared") for name in ("m1", "m2"))
    failed: list[str] = []

    def full(self: SharedStore) -> None:
        failed.append("")
        raise ReplicaError("the disk is full")

    monkeypatch.setattr(SharedStore, "_remember", full)
    async with met(one, two) as (m1, m2):
        await until(lambda: len(failed) >= 2, "found by both")
        await m1.parts.shared_store.check_all()
        assert m1.known(lambda of: of.meta.shared_with) == []
        monkeypatch.undo()
        for master, other in ((m1, "m2"), (m2, "m1")):
            await master.parts.shared_store.check_all()
            assert master.known(lambda of: of.meta.shared_with) == [other]


@in_a_loop
async def test_a_copied_key_folder_is_not_a_shared_one(tmp_path: Path) -> None:
    one, two = places(tmp_path, "m1", "m2")
    put(one, "web1")
    async with Engine(one):
        await until(lambda: (one.pki_dir / "minions" / ".ha-m1").is_symlink(), "signed")
        # As an operator sets a second master up by copying the first one's keys.
        shutil.copytree(one.pki_dir / "minions", two.pki_dir / "minions", symlinks=True)
        async with Engine(two) as m2:
            befriend(one, two)
            await m2.meets(one)
            put(one, "web2")
            await until(lambda: accepted(two) == [{"web1", "web2"}], "still written")
            assert m2.parts.core.mode.never == ""


@pytest.mark.skipif(not HAS_DRIVERS, reason="keys.cache_driver is new in 3008")
@in_a_loop
async def test_two_masters_with_one_database_only_report(tmp_path: Path) -> None:
    one, two = places(
        tmp_path,
        "m1",
        "m2",
        **{"keys.cache_driver": "localfs", "root_dir": "/", "cachedir": str(tmp_path / "db")},
    )
    async with met(one, two) as (m1, m2):
        await until(lambda: bool(m1.parts.core.mode.never and m2.parts.core.mode.never), "told")
        assert "its key store is that of m1, too" in await notes(m2, "")
