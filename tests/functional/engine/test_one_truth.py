"""
What one engine knows of its group, on every surface: table, JSON and exit code of the command, page
in a browser, JSON and metrics. They never say ok for what one of them does not know.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.engines import Engine
from saltext_ha.commands.consistency.consistency_watch import ConsistencyWatch
from saltext_ha.commands.masters import known_apis
from saltext_ha.common.file_looks import Looks
from saltext_ha.common.hysteresis import Health
from saltext_ha.consistency.result import answer, of_differences
from saltext_ha.output import ha
from saltext_ha.runners import ha as runner
from saltext_ha.web import pages, snapshot
from tests.browser import Browser, Page
from tests.engines import run, running
from tests.loop import becomes, in_a_loop, until
from tests.pages import DOWN, SOON, UP, eventually, get, scraped, serving, url_of, watched

pytestmark = pytest.mark.usefixtures("no_bus")

STATES = ("ok", "degraded", "unknown")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha, "__opts__", {"color": False}, raising=False)
    # What was just done is to be seen at once; a busy machine may take long to find it.
    monkeypatch.setattr(snapshot, "GOOD_FOR", 0.0)
    monkeypatch.setattr(snapshot, "NEWER_WITHIN", SOON)
    monkeypatch.setattr(pages, "STREAM_INTERVAL", 0.2)


def fail(engine: Engine) -> None:
    engine.parts.watch._failed = "no key store"


def age(engine: Engine) -> None:
    watch = engine.parts.watch
    watch.last = dataclasses.replace(watch.last, at=time.time() - 90000)


def differ(engine: Engine) -> None:
    watch = engine.parts.watch
    watch.last = dataclasses.replace(watch.last, status="differ", counts={"access": 2})
    watch.answer = None


def partly(engine: Engine) -> None:
    watch = engine.parts.watch
    watch.last = dataclasses.replace(watch.last, status="unknown", unknown={"m2": "hung up"})
    watch.answer = None


def come(engine: Engine) -> None:
    watch = engine.parts.watch
    watch.last = dataclasses.replace(watch.last, masters=frozenset({"m1"}))


def undecided(engine: Engine) -> None:
    engine.parts.health.state = Health(False, False, 0, 0.0, "not asked yet")


def down(engine: Engine) -> None:
    engine.parts.health.state = DOWN


def note(engine: Engine) -> None:
    engine.parts.notes["disk"] = "a disk is full"


def drain(engine: Engine) -> None:
    engine.parts.health.draining = True


# What is so, how it comes, and the state, exit code and words that follow.
FACTS: list[tuple[str, Callable[[Engine], None], str, int, str]] = [
    ("well", lambda engine: None, "ok", 0, ""),
    ("the last comparison failed", fail, "unknown", 2, "failed: no key store"),
    ("it is too old", age, "unknown", 2, "more than a day ago"),
    ("it found something", differ, "degraded", 1, "2 in access"),
    ("not all could be asked", partly, "unknown", 2, "m2: hung up"),
    ("a master came since", come, "unknown", 2, "m2 came since"),
    ("nobody knows whether it serves", undecided, "unknown", 2, "not known whether it serves"),
    ("it does not serve", down, "degraded", 1, "request port: timed out"),
    ("a note", note, "degraded", 1, "a disk is full"),
    ("drained", drain, "degraded", 1, "drained"),
]


PAGE = {"2 in access": "access 2"}


async def surfaces(engine: Engine, page: Page, state: str, retcode: int, said: str) -> None:
    """Assert that each of them says *state*, and those for people *said*."""
    place = engine.place
    command = await run(place, "status")
    assert (command["state"], command["retcode"]) == (state, retcode), command["reasons"]
    assert runner.__context__["retcode"] == retcode
    text = ha.output(command)
    assert f" · {state.upper()} · " in text
    assert said in " ".join(text.split())
    # The page follows, and may have begun to ask before that.
    told = ("state", "reasons", "tolerates")

    async def whole() -> list[Any]:
        found = await get(place, "/status.json")
        return [found[each] for each in told]

    await becomes(whole, [command[each] for each in told])

    async def metrics() -> tuple[list[float], float]:
        found = await scraped(place)
        return [found["saltext_ha_state", each] for each in STATES], found["saltext_ha_tolerates",]

    await becomes(metrics, ([float(each == state) for each in STATES], command["tolerates"]))
    await page.until(f"document.body.dataset.state === '{state}'")
    shown = PAGE.get(said, said)
    await page.until(f"document.body.innerText.includes({shown!r})")


@in_a_loop
async def test_all_say_the_same(tmp_path: Path) -> None:
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")
    async with Browser(tmp_path) as browser, serving(m1, m2) as (one, two):
        await until(lambda: all(e.parts.health.ready()[0] for e in (one, two)), "ready")
        page = await browser.open(url_of(m1, "/"))
        # Nobody has compared them.
        await surfaces(one, page, "unknown", 2, "not compared")
        assert (await run(m1, "check_consistency"))["status"] == "same"
        watch = one.parts.watch
        kept = watch.last, watch.answer
        for what, arrange, state, retcode, said in FACTS:
            print(what)
            arrange(one)
            await surfaces(one, page, state, retcode, said)
            watch.last, watch.answer = kept
            watch._failed, one.parts.health.state = "", UP
            one.parts.notes.pop("disk", None)
            one.parts.health.draining = False
        await surfaces(one, page, "ok", 0, "")
        # A master that is gone is unknown.
        await two.stop()
        await surfaces(one, page, "degraded", 2, "refused the connection")
        assert page.errors == []


@in_a_loop
async def test_the_url_of_a_dead_master_stays_known(tmp_path: Path) -> None:
    """Also after a restart of the master that is asked; of who left nothing is told."""
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")

    async def masters() -> list[tuple[str, bool, bool]]:
        rows = (await get(m1, "/api/saltstack/status"))["masters"]
        return [(row["url"], row["healthy"], row["known"]) for row in rows]

    async with serving(m1, m2) as (_, two):
        assert await masters() == [("http://127.0.0.1:8000", True, True)] * 2
        await two.stop()
        assert (await masters())[1] == ("http://127.0.0.1:8000", False, False)
    async with running(m1):
        await eventually(m1, "/api/saltstack/status", bool, "it listens")
        assert (await masters())[1] == ("http://127.0.0.1:8000", False, False)
        await run(m1, "remove_peer", "m2")
        assert len(await masters()) == 1
        assert "m2" not in (m1.config.state_dir / known_apis.KNOWN_FILE).read_text()


@pytest.mark.parametrize("kept", [b"", b"{", b"[1]", b'{"m2": 1}', b"[" * 100_000])
def test_a_damaged_note_of_urls_costs_nothing_else(tmp_path: Path, kept: bytes) -> None:
    (tmp_path / known_apis.KNOWN_FILE).write_bytes(kept)
    row: dict[str, Any] = {"name": "m2", "state": "unknown", "health": {}}
    apis = known_apis.KnownApis(tmp_path, Looks())
    apis.recall([row])
    assert row["health"] == {}
    apis.recall([{**row, "state": "running", "health": {"url": "http://m2:8000"}}])
    known_apis.KnownApis(tmp_path, Looks()).recall([row])
    assert row["health"] == {"url": "http://m2:8000"}


class Hanging(Looks):
    """At a file system that hangs."""

    def __call__(self, look: Callable[[], Any]) -> Any:
        raise TimeoutError("the file system does not respond")


def test_who_asks_for_the_status_does_not_wait_for_a_note_to_be_written(tmp_path: Path) -> None:
    row: dict[str, Any] = {"name": "m2", "state": "running", "health": {"url": "http://m2:8000"}}
    apis = known_apis.KnownApis(tmp_path, Hanging())
    apis.recall([row])
    watch = ConsistencyWatch(tmp_path, "m1", lambda *_: None, 600.0, looks=Hanging())
    watch.note(answer({"access": of_differences("access", [], {})}, ["m1", "m2"], {}))
    assert watch.last.status == "same"
    assert list(tmp_path.iterdir()) == []
    away: dict[str, Any] = {"name": "m2", "state": "unknown", "health": {}}
    apis.recall([away])
    assert away["health"] == {"url": "http://m2:8000"}


@in_a_loop
async def test_who_left_is_in_no_comparison_any_more(tmp_path: Path) -> None:
    m1, m2 = watched(tmp_path, "m1"), watched(tmp_path, "m2")
    m3 = watched(tmp_path, "m3", external_auth={"pam": {"alice": ["test.*"]}})
    async with serving(m1, m2, m3):
        await run(m1, "check_consistency")
        assert (await run(m1, "status"))["consistency"]["counts"] == {"access": 1}
        assert (await run(m1, "remove_peer", "m3"))["retcode"] == 0
        shown = await run(m1, "status")
        assert "masters differ" not in ha.output(shown)
        assert shown["consistency"]["status"] == "same"
        assert (await get(m1, "/status.json"))["consistency"]["status"] == "same"
        assert (await scraped(m1))["saltext_ha_drift", "access"] == 0
