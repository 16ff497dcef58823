"""
A real browser: Debian's chromium without a screen, driven over the DevTools protocol.

::

    async with Browser(tmp_path) as browser:
        page = await browser.open("http://127.0.0.1:4531/")
        await page.until("document.body.dataset.state === 'ok'")
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from tests.tools import program

START = 120.0
SOON = 120.0


class Page:
    """One tab. :ivar errors: its exceptions, and what its security policy forbade."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._reader = asyncio.ensure_future(self._read())
        self.errors: list[str] = []
        self.requested: list[str] = []

    async def command(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(self._answers[number], START)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript *expression*, awaited if it is a promise."""
        answer = await self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, deadline: float = SOON) -> None:
        end = asyncio.get_running_loop().time() + deadline
        # The things in the expression may not be there yet, nor the page itself.
        question = (
            f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
        )
        while not await self.evaluate(question):
            if asyncio.get_running_loop().time() > end:
                text = await self.text("body")
                raise AssertionError(f"not within {deadline:g} s: {expression}\n{text}")
            await asyncio.sleep(0.05)

    async def text(self, selector: str) -> str:
        """The visible text of the first element that *selector* names."""
        return str(
            await self.evaluate(f"(document.querySelector({json.dumps(selector)})||{{}}).innerText")
        )

    async def press(self, *keys: str) -> None:
        """Press *keys*, one after the other, as on a keyboard."""
        codes = {"Tab": 9, "Enter": 13}
        for key in keys:
            event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
            more = {"text": "\r"} if key == "Enter" else {}
            await self.command("Input.dispatchKeyEvent", type="keyDown", **event, **more)
            await self.command("Input.dispatchKeyEvent", type="keyUp", **event)

    async def write(self, text: str) -> None:
        """Type *text* into the element that has the focus."""
        await self.command("Input.insertText", text=text)

    async def look(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Set the size of the window, and the colours that its user prefers."""
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.command("Emulation.setEmulatedMedia", features=features)

    async def picture(self, path: Path) -> None:
        """Save a picture of the visible page, in few colours."""
        answer = await self.command("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def close(self) -> None:
        self._reader.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                future = self._answers.pop(said["id"])
                if "error" in said:
                    future.set_exception(AssertionError(said["error"]))
                elif not future.done():
                    future.set_result(said["result"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(said["params"]["exceptionDetails"])[:500])
            elif said["method"] == "Log.entryAdded":
                if said["params"]["entry"]["source"] in ("security", "javascript"):
                    self.errors.append(said["params"]["entry"]["text"])
            elif said["method"] == "Network.requestWillBeSent":
                self.requested.append(said["params"]["request"]["url"])


class Browser:
    """One chromium with a profile of its own below *folder*; it ends with the ``async with``."""

    def __init__(self, folder: Path) -> None:
        self._profile = folder / "chromium"
        self._sockets = TemporaryDirectory()  # a socket's path takes 107 bytes
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._pages: list[Page] = []
        self._address = ""

    async def __aenter__(self) -> Browser:
        # Root cannot have its sandbox, nor can most containers; it shows only our own page.
        self._process = await asyncio.create_subprocess_exec(
            program("chromium"),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--remote-debugging-port=0",
            f"--user-data-dir={self._profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={
                "HOME": str(self._profile),
                "TMPDIR": self._sockets.name,
                "PATH": "/usr/bin:/bin",
                "LANG": "C.UTF-8",
            },
        )
        told = self._profile / "DevToolsActivePort"
        end = asyncio.get_running_loop().time() + START
        while not (told.exists() and told.read_text().count("\n")):
            assert self._process.returncode is None, "chromium ended while it started"
            assert asyncio.get_running_loop().time() < end, "chromium does not start"
            await asyncio.sleep(0.05)
        self._address = f"http://127.0.0.1:{told.read_text().splitlines()[0]}"
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *error: object) -> None:
        for page in self._pages:
            await page.close()
        if self._session:
            await self._session.close()
        if self._process:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        self._sockets.cleanup()

    async def open(
        self, url: str, width: int = 1100, height: int = 900, dark: bool = False
    ) -> Page:
        """A tab that shows *url*."""
        assert self._session
        async with self._session.put(f"{self._address}/json/new?about:blank") as answer:
            where = (await answer.json(content_type=None))["webSocketDebuggerUrl"]
        page = Page(await self._session.ws_connect(where, max_msg_size=0))
        self._pages.append(page)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.command(f"{domain}.enable")
        await page.look(width, height, dark)
        await page.command("Page.navigate", url=url)
        return page
