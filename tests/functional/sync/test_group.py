"""All masters are asked in several parts; some join or leave in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine, Place
from lab.key_folders import ACCEPTED, plant
from saltext_ha.sync import group
from saltext_ha.transport.trust import Trust
from tests.engines import delete, level, met, places, run, running
from tests.loop import in_a_loop, until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("no_bus")]

IDS = [f"web{number:02}" for number in range(25)]


async def joins(m1: Engine, m2: Engine, m3: Place) -> None:
    Trust(m1.place.config.state_dir).pin(m3.peer)
    Trust(m3.config.state_dir).pin(m1.place.peer)
    await m1.meets(m3)


async def leaves(m1: Engine, m2: Engine, m3: Place) -> None:
    Trust(m1.place.config.state_dir).unpin("m2")
    await until(lambda: "m2" not in m1.parts.links, "its link is closed")


async def stops(m1: Engine, m2: Engine, m3: Place) -> None:
    await m2.stop()


@pytest.mark.parametrize(
    ("comes", "why"), [(joins, {"m3": group.MEANWHILE}), (leaves, {"m2": group.LEFT})]
)
@in_a_loop
async def test_who_was_not_asked_about_all_ids_is_unknown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    comes: Callable[..., Any],
    why: dict[str, str],
) -> None:
    """It lacks no key, and its column does not vanish without a word."""
    monkeypatch.setattr(group, "MAX_SHOWN", 1)
    one, two, three = places(tmp_path, "m1", "m2", "m3")
    plant(one.pki_dir, IDS, ACCEPTED)
    async with met(one, two) as (m1, m2), running(three):
        await level(m1, m2)
        asked, ask = [], m1.parts.group.shown_everywhere

        async def in_between(question: dict[str, Any], *without: Any) -> Any:
            asked.append(question)
            if len(asked) == 2:
                await comes(m1, m2, three)
            return await ask(question, *without)

        monkeypatch.setattr(m1.parts.group, "shown_everywhere", in_between)
        errors: dict[str, str] = {}
        tables = await m1.parts.group.keys_of(IDS, errors)
        assert len(asked) == 3
        assert errors == why
        left = {"m1", "m2"} - why.keys()
        assert {frozenset(shown) for shown in tables.values()} == {frozenset(left)}
        assert all(one.state == "accepted" for each in tables.values() for one in each.values())


@pytest.mark.parametrize(("goes", "why"), [(leaves, group.LEFT), (stops, "refused the connection")])
@in_a_loop
async def test_what_a_master_does_not_say_any_more_was_not_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes: Callable[..., Any], why: str
) -> None:
    """It had a change to make, and is not asked again whether it made it."""
    one, two, three = places(tmp_path, "m1", "m2", "m3")
    plant(one.pki_dir, ["web1"], ACCEPTED)
    async with met(one, two) as (m1, m2):
        await level(m1, m2)
        await run(two, "pause")
        await delete(m1, "web1")
        differences = m1.made.commands["sync"].__self__  # type: ignore[attr-defined]
        made = differences._made

        async def later(planned: list[dict[str, Any]]) -> Any:
            assert [(each["master"], each["id"]) for each in planned] == [("m2", "web1")]
            await goes(m1, m2, three)
            return await made(planned)

        monkeypatch.setattr(differences, "_made", later)
        answer = await run(one, "sync")
        assert (answer["changes"], answer["retcode"]) == ([], 2)
        assert why in answer["unreachable"]["m2"]


@in_a_loop
async def test_who_joins_while_masters_are_compared_was_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = places(tmp_path, "m1", "m2", "m3")
    plant(one.pki_dir, ["web1"], ACCEPTED)
    async with met(one, two) as (m1, m2), running(three):
        await level(m1, m2)
        keys = m1.made.commands["sync"].__self__._keys  # type: ignore[attr-defined]
        look = keys.differing_ids

        async def meanwhile(contact: Any) -> set[str]:
            if contact.peer.name == "m2":
                await joins(m1, m2, three)
            return {*(await look(contact)), "web1"}

        monkeypatch.setattr(keys, "differing_ids", meanwhile)
        plan = await run(one, "sync", test=True)
        assert plan["unreachable"] == {"m3": group.MEANWHILE}
        assert (plan["changes"], plan["retcode"]) == ([], 2)
