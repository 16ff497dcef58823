"""Masters with a status page, and their pages, asked over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from lab.engines import Engine, Place, free_port
from saltext_ha.common.hysteresis import Health
from tests.engines import met
from tests.functional import comparing

UP = Health(True, True, 0, 0.0, "")
DOWN = Health(False, True, 0, 0.0, "request port: timed out")
SOON = 120.0
TOKEN = "0123456789" * 4
API = {"rest_cherrypy": {"port": 8000, "disable_ssl": True}}


def watched(root: Path, name: str, peer_timeout: float = 20, **options: Any) -> Place:
    """A master with a status page and, it says, a salt-api; nobody asks whether it serves."""
    ha = {"status": {"port": free_port()}, "address": "127.0.0.1", "peer_timeout": peer_timeout}
    return comparing.place(root, name, ha, **API, **options)


@contextlib.asynccontextmanager
async def serving(*places: Place) -> AsyncIterator[list[Engine]]:
    """Engines that have met, and say that their masters serve; their pages are there."""
    async with met(*places) as engines:
        for engine in engines:
            engine.parts.health.state = UP
            await eventually(engine.place, "/live", bool, "it listens")
        yield engines


def url_of(place: Place, path: str) -> str:
    """*path* on the status page of that master."""
    assert place.config.status
    return place.config.status.url + path


async def get(place: Place, path: str) -> Any:
    """The JSON at *path*, or its text."""
    url = url_of(place, path)
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        return await (answer.json() if "json" in answer.content_type else answer.text())


async def eventually(place: Place, path: str, is_it: Any, what: str) -> Any:
    """The JSON at *path* as soon as *is_it* says so."""
    end = time.monotonic() + SOON
    while True:
        try:
            found = await get(place, path)
            if is_it(found):
                return found
        except aiohttp.ClientConnectionError:
            found = "nothing listens"
        assert time.monotonic() < end, f"not within {SOON:g} s: {what}; last: {found}"
        await asyncio.sleep(0.1)


async def scraped(place: Place) -> dict[tuple[str, ...], float]:
    """(name, label values in the order of the labels' names…, without the group) → value."""
    text = await get(place, "/metrics")
    return {
        (
            sample.name,
            *(value for name, value in sorted(sample.labels.items()) if name != "group"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def page(place: Place, path: str, timeout: float = 10) -> tuple[int, str]:
    """Status and text of ``GET path``, of an engine in another process; 0: why there is none."""
    try:
        with urllib.request.urlopen(url_of(place, path), timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()
    except OSError as exc:
        return 0, str(exc)
