"""
The status page as an operator sees it, in a real browser, over real engines.

With ``PICTURES=folder`` in the environment the pictures of the documentation are taken anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lab import key_folders
from lab.engines import Engine, Place, free_port
from saltext_ha.commands.masters.status import Status
from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.common.hysteresis import Health
from saltext_ha.replica.serializers import Applied
from saltext_ha.replication.placement import Stored
from saltext_ha.web import pages
from tests.browser import Browser, Page
from tests.engines import met, put, run
from tests.functional.comparing import place
from tests.loop import in_a_loop, until
from tests.pages import TOKEN, serving, url_of

pytestmark = pytest.mark.usefixtures("no_bus")

Scene = Callable[[Page, list[Engine]], Awaitable[None]]


def master(root: Path, name: str, **options: Any) -> Place:
    """A master with a status page. Whether it serves is told by each scene."""
    ha = {"status": {"port": free_port()}, "peer_timeout": 20, "group": "prod"}
    return place(root, name, ha, **options)


def show(places: list[Place], scene: Scene, well: bool = True, **look: Any) -> None:
    """Start engines, open the page of the first one, and play *scene*."""

    async def play() -> None:
        root = places[0].root
        async with Browser(root) as browser, serving(*places) as engines:
            if well:
                assert (await run(places[0], "check_consistency"))["status"] == "same"
            page = await browser.open(url_of(places[0], "/"), **look)
            await scene(page, engines)
            assert page.errors == []
            assert all(url.startswith(url_of(places[0], "")) for url in page.requested)

    asyncio.run(play())


async def state(page: Page, wanted: str) -> None:
    """Wait until the page says so; a peer that came back is asked within half a minute."""
    await page.until(f"document.body.dataset.state === '{wanted}'", 60)
    assert await page.text("#state") == wanted


async def says(page: Page, selector: str, words: str) -> None:
    """Wait until *words* are to be read in what *selector* names."""
    await page.until(f"document.querySelector('{selector}').innerText.includes('{words}')")


async def picture(page: Page, name: str) -> None:
    """Keep what is to be seen, where pictures are wanted."""
    folder = os.environ.get("PICTURES")
    if folder:
        await page.picture(Path(folder) / f"{name}.png")


def test_a_group_that_is_well(tmp_path: Path) -> None:
    m1, m2 = master(tmp_path, "m1"), master(tmp_path, "m2")
    for each in (m1, m2):
        key_folders.plant(each.pki_dir, key_folders.ids(12))

    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        assert "2 of 2 masters answer" in await page.text("#summary")
        await says(page, "#summary", "tolerates the loss of 1 · m1 leads")
        assert "yes" in await page.text("[data-master=m1]")
        assert "m1 (this one)" in await page.text("[data-master=m1]")
        assert (await page.text("#same")).startswith("yes")
        assert await page.evaluate("document.querySelector('#attention').hidden")
        # It goes on by itself: nobody reloads it.
        (m1.pki_dir / "minions_pre").mkdir(exist_ok=True)
        key_folders.plant(m1.pki_dir, ["knocks"], key_folders.PENDING, seed=7)
        await page.until("document.querySelector('[data-master=m2]').innerText.includes('1')")
        await page.until("document.querySelector('#changes').innerText.includes('knocks')")
        await picture(page, "status-well")
        await page.look(1100, 900, dark=True)
        await picture(page, "status-dark")
        await page.look(390, 800, phone=True)
        # Nothing sticks out of a narrow screen.
        assert await page.evaluate("document.documentElement.scrollWidth <= 390")
        await picture(page, "status-phone")

    show([m1, m2], scene)


def test_a_master_that_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [master(tmp_path, name) for name in ("m1", "m2", "m3")]

    async def not_known(*_: object) -> None:
        """It answered, but not the question after that."""

    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        with monkeypatch.context() as patched:
            patched.setattr(Status, "_behind", not_known)
            await state(page, "unknown")
            assert "m2: it is not known whether it has the same keys" in await page.text("#notes")
        engines[1].parts.health.state = Health(False, True, 0, 0.0, "request port: timed out")
        await state(page, "degraded")
        await page.until("document.querySelector('[data-master=m2]').innerText.includes('no')")
        assert "does not serve: request port: timed out" in await page.text("#notes")
        await engines[2].stop()
        await page.until("document.querySelector('[data-master=m3]').innerText.includes('unknown')")
        row = await page.text("[data-master=m3]")
        assert "?" in row
        assert "yes" not in row
        # Whoever asked while it stopped was hung up on.
        await page.until("document.querySelector('#notes').innerText.includes('refused')")
        assert "refused the connection" in await page.text("#notes")
        await picture(page, "status-dead")

    show(places, scene)


def test_masters_that_differ(tmp_path: Path) -> None:
    m1 = master(tmp_path, "m1")
    m2 = master(tmp_path, "m2", external_auth={"pam": {"alice": ["test.*"]}})

    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "unknown")
        assert "not compared yet" in await page.text("#same")
        await run(m1, "check_consistency")
        await state(page, "degraded")
        await page.until("document.querySelector('#same').innerText.includes('access 1')")
        # By keyboard alone.
        await page.evaluate("document.querySelector('#drift summary').focus()")
        await page.press("Enter")
        await page.until("document.querySelector('#drift details').open")
        assert "external_auth:pam:alice" in await page.text("#drift")
        assert "m1: absent" in await page.text("#drift")
        assert "restart salt-master" in await page.text("#drift")
        # The focus stays, and what somebody selects to copy it.
        await page.evaluate("getSelection().selectAllChildren(document.querySelector('#drift li'))")
        await page.evaluate(
            "(() => { const parse = JSON.parse; window.heard = 0;"
            " JSON.parse = (text) => (heard++, parse(text)); })()"
        )
        await page.until("heard > 2")
        assert await page.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert "restart salt-master" in await page.evaluate("String(getSelection())")
        # What somebody opened stays open when the page is drawn anew.
        await page.evaluate("document.querySelector('#drift details').dataset.old = '1'")
        await page.until("!document.querySelector('#drift details').dataset.old")
        assert await page.evaluate("document.querySelector('#drift details').open")
        await picture(page, "status-drift")

    show([m1, m2], scene, well=False)


def test_a_conflict(tmp_path: Path) -> None:
    m1, m2 = master(tmp_path, "m1"), master(tmp_path, "m2")
    for number, each in enumerate((m1, m2)):
        put(each, "db2", number)
        (each.pki_dir / key_folders.ACCEPTED / "<img src=x onerror=alert(1)>").write_text("junk")

    async def scene(page: Page, engines: list[Engine]) -> None:
        await page.until("!document.querySelector('#attention').hidden")
        text = await page.text("#conflicts")
        assert "1 in conflict" in text
        assert "db2" in text
        assert "salt-run ha.resolve db2 " in text
        await state(page, "degraded")
        assert await page.evaluate("document.images.length") == 0
        await picture(page, "status-conflict")

    show([m1, m2], scene, well=False)


async def start(engines: list[Engine], *names: str) -> None:
    """For ever: these minions start, again and again."""
    while True:
        for engine in engines:
            for name in names:
                data = {"id": name, "cmd": "_minion_event"}
                engine.parts.bus.tell(f"salt/minion/{name}/start", data)
        await asyncio.sleep(2)


def test_minions_and_apis_are_there_without_typing(tmp_path: Path) -> None:
    """Each minion once, and where each master's salt-api is, of a master that is gone, too."""
    api = {"rest_cherrypy": {"port": 8000, "disable_ssl": True}}
    m1, m2 = (
        place(tmp_path, name, {"status": {"port": free_port()}, "peer_timeout": 20, **at}, **opts)
        for name, at, opts in (("m1", {}, {}), ("m2", {"address": "127.0.0.1"}, api))
    )
    key_folders.plant(m1.pki_dir, ["web1", "web2", "web3"])

    async def scene(page: Page, engines: list[Engine]) -> None:
        await page.until("document.querySelectorAll('#hits tr').length === 3")
        await says(page, "#online", "0 online · 0 offline · 3 unknown")
        there = m2.pki_dir / key_folders.ACCEPTED / "web3"
        await until(there.exists, "m2 has them")
        for engine in engines:
            await engine.made.bound.settle()
        # Nobody is connected here, so nobody counts for long.
        starting = asyncio.ensure_future(start(engines, "web1", "web2"))
        wanted = "2 online · 0 offline · 1 unknown"
        await page.until(f"document.querySelector('#online').innerText === '{wanted}'")
        starting.cancel()
        assert await page.evaluate("document.querySelectorAll('#hits tr').length") == 3
        apis = "[...document.querySelectorAll('td[data-label=salt-api]')].map((e) => e.innerText)"
        assert await page.evaluate(apis) == ["none", "? http://127.0.0.1:8000"]
        await engines[1].stop()
        await page.until("document.querySelector('[data-master=m2]').innerText.includes('unknown')")
        assert await page.evaluate(apis) == ["none", "? http://127.0.0.1:8000"]
        page.errors.clear()

    show([m1, m2], scene, well=False)


def test_ten_thousand_minions(tmp_path: Path) -> None:
    m1 = master(tmp_path, "m1")
    names = key_folders.ids(10_000)

    async def minions(payload: dict[str, Any]) -> dict[str, Any]:
        import fnmatch

        rows = [
            {"id": name, "state": "bound", "masters": ["m1" if n % 3 else "m2"]}
            for n, name in enumerate(names)
            if fnmatch.fnmatchcase(name, payload["glob"])
        ]
        return {"minions": rows, "counts": {"bound": len(rows)}, "unknown": {}}

    async def scene(page: Page, engines: list[Engine]) -> None:
        (engine,) = engines
        engine.made.pages._minions = minions
        core = engine.parts.core

        def fill() -> None:
            with core.replica.transaction():
                for number, name in enumerate(names):
                    stored = Stored("accepted", number.to_bytes(32, "big"), frozenset())
                    core.replica.set_applied(name, Applied(stored))

        await core.run(fill)
        await page.until("document.querySelector('[data-master=m1]').innerText.includes('10,000')")
        await page.until("!document.querySelector('#search').hidden")
        await page.evaluate("document.querySelector('#glob').focus()")
        await page.write("web0012")
        await page.press("Enter")
        await page.until("document.querySelectorAll('#hits tr').length === 100")
        assert "100 match" in await page.text("#found")
        assert "web001234.prod.example.com" in await page.text("#hits")
        await page.evaluate("document.querySelector('#glob').value = ''")
        await page.press("Enter")
        await page.until("document.querySelector('#found').innerText.includes('10,000 match')")
        assert await page.evaluate("document.querySelectorAll('#hits tr').length") == 200
        await page.evaluate("document.querySelector('#search').scrollIntoView()")
        await picture(page, "status-minions")

    show([m1], scene)


def test_what_is_old_is_said_to_be_and_counts_for_nothing(tmp_path: Path) -> None:
    m1, m2 = master(tmp_path, "m1"), master(tmp_path, "m2")

    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        good = await colour(page, "#state")
        assert await colour(page, "[data-master=m1] .badge") == good
        await engines[0].stop()
        await page.until("!document.querySelector('#old').hidden")
        await state(page, "unknown")
        assert "old" in await page.text("#old")
        assert (await page.evaluate("document.title")).startswith("unknown")
        assert await page.text("#online") == "unknown which are online"
        # Nothing looks as if it were well, and all can be read.
        for selector in ("[data-master=m1] .badge", "[data-master=m2] .badge", "#same .badge"):
            assert await colour(page, selector) == await colour(page, "#state") != good
            before = f"getComputedStyle(document.querySelector('{selector}'), '::before').content"
            assert await page.evaluate(before) == '"was "'
        for dark in (False, True):
            await page.look(1100, 900, dark=dark)
            assert await page.evaluate(CONTRAST) == []
        # A screen reader says why once, and not every second how old it is.
        await page.evaluate(
            "(() => { window.loud = 0; window.old = document.querySelector('#old').innerText;"
            " const near = (node) => node.nodeType === 1 ? node : node.parentElement;"
            " const isLoud = (change) => near(change.target).closest('[role=alert]');"
            " new MutationObserver((changes) => loud += changes.filter(isLoud).length)"
            ".observe(document.body, {childList: true, characterData: true, subtree: true}); })()"
        )
        await page.until("document.querySelector('#old').innerText !== old")
        assert await page.evaluate("loud") == 0
        assert "does not answer" in await page.text("[role=alert]")
        page.errors.clear()

    show([m1, m2], scene)


async def colour(page: Page, selector: str) -> str:
    """What lies under the text of what *selector* names."""
    style = f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"
    return str(await page.evaluate(style))


def test_without_a_stream_the_page_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_STREAMS", 0)

    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        assert asked(page, "/status.json")
        streams = asked(page, "/events")
        await until(lambda: asked(page, "/events") > streams, "a place may be free by now")

    show([master(tmp_path, "m1")], scene)


def asked(page: Page, path: str) -> int:
    """How often the page asked for *path*."""
    return sum(url.endswith(path) for url in page.requested)


def test_a_stream_that_died_without_a_word_is_followed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network was away, or the computer slept: the browser itself never notices that."""
    monkeypatch.setattr(pages, "STREAM_INTERVAL", 600)

    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        await until(lambda: asked(page, "/events") > 1, "it follows anew")
        assert asked(page, "/status.json") > 1, "every five seconds meanwhile"

    show([master(tmp_path, "m1")], scene)


def test_a_computer_that_slept_does_not_take_what_it_has_for_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that only grows stands still meanwhile, in many browsers."""
    monkeypatch.setattr(pages, "STREAM_INTERVAL", 600)

    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        await page.evaluate(
            "const now = Date.now; window.slept = 0; Date.now = () => now() + slept"
        )
        await page.until("(slept += 3600000) && document.body.dataset.state === 'unknown'")
        assert "h old" in await page.text("#old")

    show([master(tmp_path, "m1")], scene)


def test_minions_are_looked_for_when_the_tab_is_seen_again(tmp_path: Path) -> None:
    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        await page.until("document.querySelector('#online').innerText.includes('online')")
        # In one go: meanwhile the page does nothing by itself.
        looked = await page.evaluate(
            "(() => { const urls = [], real = window.fetch;"
            " window.fetch = (url, options) => (urls.push(String(url)), real(url, options));"
            " document.dispatchEvent(new Event('visibilitychange'));"
            " window.fetch = real; return urls; })()"
        )
        assert ["minions.json" in url for url in looked] == [True]

    show([master(tmp_path, "m1")], scene)


@in_a_loop
async def test_opened_with_the_token_in_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_file: str
) -> None:
    """A bookmark. fetch refuses a URL with a password in it."""
    monkeypatch.setattr(pages, "MAX_STREAMS", 0)
    m1 = place(tmp_path, "m1", {"status": {"port": free_port(), "token_file": token_file}})
    key_folders.plant(m1.pki_dir, ["web1"])

    async with Browser(tmp_path) as browser, met(m1):
        url = url_of(m1, "/").replace("//", f"//ops:{TOKEN}@", 1)
        page = await browser.open(url)
        await page.until("document.querySelector('[data-master=m1]')")
        await page.until("document.querySelector('#hits').innerText.includes('web1')")


def test_why_there_are_no_minions(tmp_path: Path) -> None:
    async def minions(payload: dict[str, Any]) -> dict[str, Any]:
        if "/" in payload["glob"]:
            raise InvalidRecord("takes a minion id")
        raise HaError("the keys cannot be read")

    async def scene(page: Page, engines: list[Engine]) -> None:
        engines[0].made.pages._minions = minions
        await state(page, "ok")
        await page.evaluate("document.querySelector('#search button').click()")
        await page.until("document.querySelector('#found').innerText.startsWith('not found out')")
        assert await page.text("#found") == "not found out: the keys cannot be read"
        await page.evaluate("document.querySelector('#glob').value = 'a/*'")
        await page.evaluate("document.querySelector('#search button').click()")
        await page.until("document.querySelector('#found').innerText.includes('takes a minion id')")

    show([master(tmp_path, "m1")], scene)


def test_readable_by_keyboard_and_screen_reader(tmp_path: Path) -> None:
    async def scene(page: Page, engines: list[Engine]) -> None:
        await state(page, "ok")
        # The first stop of the keyboard leads past everything.
        await page.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        tree = await page.command("Accessibility.getFullAXTree")
        said = {
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree["nodes"]
            if not node["ignored"]
        }
        assert ("heading", "Masters") in said
        assert ("status", "") in said or ("status", "ok") in said
        assert ("columnheader", "Serves") in said
        assert ("rowheader", "m1 (this one)") in said
        assert ("cell", "✓ yes") in said or ("gridcell", "✓ yes") in said
        # Every colour of text can be told from what lies under it, in both schemes.
        for dark in (False, True):
            await page.look(1100, 900, dark=dark)
            low = await page.evaluate(CONTRAST)
            assert low == []

    show([master(tmp_path, "m1")], scene)


# Text whose contrast is below what WCAG 2 asks for (4.5 to 1).
CONTRAST = """
(() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const under = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")]
    .filter((e) => e.offsetParent)
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((e) => {
      let seen = 1;
      for (let up = e; up; up = up.parentElement) seen *= getComputedStyle(up).opacity;
      const below = under(e);
      const text = parse(getComputedStyle(e).color).map((v, i) => v * seen + below[i] * (1 - seen));
      const [a, b] = [light(text), light(below)].sort();
      return [(b + 0.05) / (a + 0.05), e.outerHTML.slice(0, 80)];
    })
    .filter(([ratio]) => ratio < 4.5);
})()
"""
