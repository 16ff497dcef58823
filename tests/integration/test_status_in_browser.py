"""
The status page of a real master in a real browser, while real things happen to the group.

Nobody reloads the page: what it shows came to it as server-sent events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from lab import Lab, Master, wait_for
from tests.browser import Browser, Page
from tests.integration.conftest import MakeLab
from tests.integration.group import (
    SOON,
    configure,
    frozen,
    group,
    parts,
    plant,
    rm,
    settled,
    unseen,
    well,
)

# A peer that comes back is asked within half a minute, and started before that.
LONG = 180.0
KEYS = 12
HA = {
    "hold_minimum": 10,
    "consistency": {"interval": 0},
    "health": {"interval": 1, "timeout": 10, "deep_interval": 0},
}
Scene = Callable[[Page], Awaitable[None]]


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with group(make_lab, "m1", "m2", ha=HA) as lab:
        for number in range(KEYS):
            plant(lab, "minions", f"web{number}", *lab.masters.values())
        yield lab


@pytest.fixture
def pair(lab: Lab) -> Iterator[tuple[Master, Master]]:
    """Both masters, well and compared; what a test breaks it mends, or this does."""
    m1, m2 = lab.masters.values()
    former = m2.config_file.read_text()
    well(m1, but="comparison")
    m1.control("check")
    yield m1, m2
    if m2.config_file.read_text() != former or not m2.running:
        m2.kill()
        m2.config_file.write_text(former)
        m2.start()


def watch(master: Master, folder: Path, scene: Scene) -> None:
    """Play *scene* before the page of *master*, which starts well."""
    site = f"http://{master.address}:{master.status_port}"

    async def play() -> None:
        async with Browser(folder) as browser:
            page = await browser.open(f"{site}/")
            await state(page, "ok")
            await page.evaluate("window.never = 'reloaded'")
            await scene(page)
            assert await page.evaluate("window.never") == "reloaded"
            assert page.errors == []
            assert page.requested.count(f"{site}/events") == 1
            assert f"{site}/status.json" not in page.requested
            assert all(url.startswith(site) for url in page.requested)

    asyncio.run(play())


async def state(page: Page, wanted: str) -> None:
    """Wait until the page calls the group that."""
    await page.until(f"document.body.dataset.state === '{wanted}'", LONG)
    assert await page.text("#state") == wanted


async def says(page: Page, selector: str, words: str) -> None:
    """Wait until *words* are to be read in what *selector* names."""
    await page.until(f"document.querySelector('{selector}').innerText.includes('{words}')", LONG)


async def cells(page: Page, master: str) -> dict[str, str]:
    """Column → text, of the row of *master*."""
    told: dict[str, str] = await page.evaluate(
        f"Object.fromEntries([...document.querySelectorAll('[data-master={master}] td')]"
        ".map((cell) => [cell.dataset.label, cell.innerText.trim()]))"
    )
    return told


def test_a_group_that_is_well(pair: tuple[Master, Master], tmp_path: Path) -> None:
    m1, _ = pair

    async def scene(page: Page) -> None:
        assert "2 of 2 masters answer" in await page.text("#summary")
        assert (await page.text("#same")).startswith("yes")
        assert await page.evaluate("document.querySelector('#attention').hidden")
        one, two = await cells(page, "m1"), await cells(page, "m2")
        assert one["Serves"] == two["Serves"] == "✓ yes", (one, two)
        assert one["Accepted"] == two["Accepted"] == str(KEYS)
        assert two["Behind"] == "–"
        assert one["Master key"] == two["Master key"]
        assert one["Salt"] == two["Salt"] == m1.control("status")["masters"][0]["salt"]
        assert await page.text("#notes") == ""
        for door in ("request port", "publisher", "event bus"):
            # One answer that is late makes no master unfit, and is shown.
            await page.until(f"document.querySelector('#asked').textContent.includes('✓ {door}: ')")

    watch(m1, tmp_path, scene)


def test_a_master_is_killed_and_comes_back(pair: tuple[Master, Master], tmp_path: Path) -> None:
    m1, m2 = pair

    async def scene(page: Page) -> None:
        m2.kill()
        await says(page, "[data-master=m2]", "? unknown")
        await state(page, "degraded")
        await says(page, "#notes", "refused the connection")
        assert (await page.text("#notes")).startswith(f"m2: {m2.address}:{m2.peer_port} refused")
        assert "1 of 2 masters answer" in await page.text("#summary")
        assert "tolerates the loss of 0" in await page.text("#summary")
        gone = await cells(page, "m2")
        assert {gone[column] for column in ("Salt", "Accepted", "Pending", "Behind")} == {"?"}
        assert (await cells(page, "m1"))["Serves"] == "✓ yes"
        assert (await page.evaluate("document.title")).startswith("degraded")
        m2.start()
        await says(page, "[data-master=m2]", "✓ yes")
        await state(page, "ok")
        assert await page.text("#notes") == ""
        assert (await cells(page, "m2"))["Accepted"] == str(KEYS)

    watch(m1, tmp_path, scene)


def test_a_master_whose_workers_hang(pair: tuple[Master, Master], tmp_path: Path) -> None:
    m1, m2 = pair

    async def scene(page: Page) -> None:
        with frozen(*parts(m2, "MWorker-")):
            await says(page, "[data-master=m2]", "✗ no")
            await state(page, "degraded")
            assert "m2: does not serve: request port: " in await page.text("#notes")
            assert "timed out" in await page.text("#notes")
            assert (await cells(page, "m2"))["Accepted"] == str(KEYS), "its engine answers"
        await says(page, "[data-master=m2]", "✓ yes")
        await state(page, "ok")

    watch(m1, tmp_path, scene)


def test_a_configuration_that_is_edited(pair: tuple[Master, Master], tmp_path: Path) -> None:
    m1, m2 = pair

    async def scene(page: Page) -> None:
        configure(m2, external_auth={"pam": {"alice": ["test.*"]}})
        assert m1.salt_run("ha.check_consistency").returncode == 1
        await state(page, "degraded")
        await says(page, "#same", "no: running 1")
        await page.evaluate("document.querySelector('#drift summary').click()")
        drift = await page.text("#drift")
        assert "external_auth:pam:alice" in drift
        assert "restart salt-master on m2" in drift

        m2.kill()
        m2.start()
        well(m1, but="comparison")
        assert m1.salt_run("ha.check_consistency").returncode == 1
        await says(page, "#same", "no: access 1")
        await page.evaluate("document.querySelector('#drift summary').click()")
        drift = await page.text("#drift")
        assert 'm1: absent · m2: ["test.*"]' in drift
        assert "restart salt-master" in drift
        await state(page, "degraded")

    watch(m1, tmp_path, scene)


def test_two_accepted_keys_of_one_id(lab: Lab, pair: tuple[Master, Master], tmp_path: Path) -> None:
    m1, m2 = pair

    async def scene(page: Page) -> None:
        with unseen(*pair):
            for master in pair:
                master.plant("minions", "torn", lab.key_pair()[1].strip())
        await says(page, "#conflicts", "1 in conflict")
        await state(page, "degraded")
        (conflict,) = m1.control("status")["conflicts"]
        shown = await page.text("#conflicts")
        assert "torn" in shown
        for master, text in conflict["keys"].items():
            assert f"{master} {text}" in shown
        assert "salt-run ha.resolve torn " in shown
        # What it advises ends it.
        kept = conflict["keys"]["m2"].split()[-1]
        m1.salt_run("ha.resolve", "torn", kept).check()
        await page.until("document.querySelector('#attention').hidden")
        await says(page, "#changes", "torn")
        wait_for(lambda: m1.keys()["minions"] == m2.keys()["minions"], SOON, "one key is left")
        m1.salt_key("-d", "torn", "-y").check()
        settled(lab, m1, m2)
        assert m1.control("check")["status"] == "same"
        await state(page, "ok")

    watch(m1, tmp_path, scene)


def test_keys_that_vanish_are_held(lab: Lab, pair: tuple[Master, Master], tmp_path: Path) -> None:
    m1, m2 = pair

    async def scene(page: Page) -> None:
        rm(m2)
        await says(page, "#held", f"m2: {KEYS} held back")
        await state(page, "degraded")
        text = await page.text("#held")
        assert "there salt-run ha.refill, or, if it was meant, salt-run ha.release" in text
        m2.salt_run("ha.refill").check()
        await page.until("document.querySelector('#attention').hidden")
        await state(page, "ok")
        assert (await cells(page, "m2"))["Accepted"] == str(KEYS)

    watch(m1, tmp_path, scene)
