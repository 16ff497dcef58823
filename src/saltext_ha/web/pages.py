"""The answers of the status listener; docs/status-page.md describes them for people."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from saltext_ha.common.errors import HaError, InvalidRecord
from saltext_ha.health.group_state import NOT_ASKED
from saltext_ha.health.watcher import Watcher
from saltext_ha.transport.control_server import Command
from saltext_ha.web.listener import HEADERS, Page
from saltext_ha.web.openapi import DESCRIPTION
from saltext_ha.web.own_metrics import OwnSources
from saltext_ha.web.snapshot import GOOD_FOR, Snapshots, Taken

JSON = "application/json"
STATIC = Path(__file__).parent / "static"
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Open streams of events; further pages must poll instead.
MAX_STREAMS = 16
STREAM_INTERVAL = 3.0
HUNG = 10.0  # seconds that a caller may take to receive one event
MAX_MINIONS = 1000
MINIONS_GOOD_FOR = 5.0
NO_API = "no salt-api: neither rest_cherrypy nor rest_tornado is configured there"


class Pages:
    """
    The pages of one engine.

    :param minions: answers ``ha.minions``.
    :param own: the sources of the metrics about this master itself.
    """

    def __init__(
        self, snapshots: Snapshots, health: Watcher, minions: Command, own: OwnSources
    ) -> None:
        self._snapshots, self._health = snapshots, health
        self._minions, self._own = minions, own
        self._streams = 0
        self._search = asyncio.Lock()
        self._found: tuple[float, str, Mapping[str, Any]] = float("-inf"), "", {}

    def by_path(self) -> dict[str, Page]:
        files = {
            path: _fixed((STATIC / name).read_bytes(), kind) for path, (name, kind) in FILES.items()
        }
        return {
            **files,
            "/openapi.json": _fixed(
                json.dumps(DESCRIPTION, indent=1, ensure_ascii=False).encode(), JSON
            ),
            "/live": self.live,
            "/ready": self.ready,
            "/status.json": self.status,
            "/api/saltstack/status": self.saltstack,
            "/minions.json": self.minions,
            "/metrics": self.metrics,
            "/events": self.events,
        }

    async def live(self, request: web.BaseRequest) -> web.Response:
        """Says that the engine runs, and with it the master that started it."""
        return web.Response(text="live\n")

    async def ready(self, request: web.BaseRequest) -> web.Response:
        """Whether this master should be given callers: 200, or 503 and the reason."""
        ready, reason = self._health.ready()
        if ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{reason}\n", headers={"Retry-After": "5"})

    async def status(self, request: web.BaseRequest) -> web.Response:
        """The whole snapshot of the group."""
        taken = await self._snapshots.get()
        return web.Response(
            body=taken.body, content_type=JSON, headers={"Age": str(int(_shown_age(taken)))}
        )

    async def saltstack(self, request: web.BaseRequest) -> web.Response:
        """The answer for callers of salt-api: the URLs, and which masters are healthy."""
        taken = await self._snapshots.get()
        return _json(callers(taken.data), Age=str(int(_shown_age(taken))))

    async def minions(self, request: web.BaseRequest) -> web.Response:
        """Where minions are connected: those whose id matches ``glob``, at most ``limit``."""
        if set(request.query) - {"glob", "limit"}:
            return _json({"error": "takes glob and limit, nothing else"}, status=400)
        glob = request.query.get("glob", "*")
        limit = request.query.get("limit", "100")
        if not limit.isdecimal() or len(limit) > 6:
            return _json({"error": f"limit takes a number up to {MAX_MINIONS}"}, status=400)
        try:
            found = await self._find(glob)
        except InvalidRecord as exc:
            return _json({"error": str(exc)}, status=400)
        rows = found.get("minions", [])
        shown = {**found, "total": len(rows), "minions": rows[: min(int(limit), MAX_MINIONS)]}
        return _json({key: value for key, value in shown.items() if key != "retcode"})

    async def metrics(self, request: web.BaseRequest) -> web.Response:
        try:
            # prometheus_client is optional, and not installed with every release of Salt.
            from saltext_ha.web import metrics
        except ImportError:
            return web.Response(
                status=501,
                text="metrics take the package prometheus_client: run  salt-pip install "
                "prometheus_client  and restart salt-master\n",
            )
        taken = await self._snapshots.get()
        body, kind = metrics.render(self._own, taken, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": kind})

    async def events(self, request: web.BaseRequest) -> web.StreamResponse:
        """The same as ``/status.json``, every few seconds, as server-sent events."""
        if request.method != "GET":
            return web.Response(content_type="text/event-stream")
        if self._streams >= MAX_STREAMS:
            text = "too many callers follow /events; ask /status.json instead\n"
            return web.Response(status=503, text=text)
        # nginx would keep events until some kilobytes have come, and all that time they look new.
        own = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers={**HEADERS, **own})
        self._streams += 1
        try:
            await response.prepare(request)
            while True:
                await asyncio.wait_for(response.write(await self._event()), HUNG)
                await asyncio.sleep(STREAM_INTERVAL)
        except (ConnectionError, asyncio.TimeoutError):
            return response
        finally:
            self._streams -= 1

    async def _event(self) -> bytes:
        try:
            taken = await self._snapshots.get()
        except HaError as exc:
            return b"event: trouble\ndata: " + json.dumps(str(exc)).encode() + b"\n\n"
        return b'event: status\ndata: {"age":%.1f,"status":%s}\n\n' % (
            _shown_age(taken),
            taken.body,
        )

    async def _find(self, glob: str) -> Mapping[str, Any]:
        """Ask for one glob at a time: with many minions it is work for all masters."""
        async with self._search:
            at, asked, found = self._found
            if asked != glob or time.monotonic() - at > MINIONS_GOOD_FOR:
                found = await self._minions({"glob": glob})
                self._found = time.monotonic(), glob, found
            return found


def _fixed(body: bytes, kind: str) -> Page:
    async def page(request: web.BaseRequest) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return page


def callers(status: Mapping[str, Any]) -> dict[str, Any]:
    """
    The fields that clients of salt-api know (``status``, ``master_count``, ``healthy_count``,
    ``masters``), and a few more. A master is healthy if it can be called: a master in an unknown
    state is not, nor is a master without salt-api.
    """
    masters = []
    for row in status["masters"]:
        health = row["health"]
        serves = row["state"] == "running" and health.get("healthy") is True
        url = health.get("url") or ""
        healthy = serves and bool(url)
        unasked = NOT_ASKED if health.get("asked") is False else ""
        reason = health.get("reason") or ("" if healthy else row["note"] or unasked)
        masters.append(
            {
                "url": url,
                "healthy": healthy,
                "name": row["name"],
                "ready": healthy and health.get("ready") is True,
                "known": row["state"] == "running" and health.get("healthy") is not None,
                "reason": NO_API if serves and not url else reason,
            }
        )
    count = sum(master["healthy"] for master in masters)
    return {
        "status": "online" if count == len(masters) else "degraded" if count else "offline",
        "master_count": len(masters),
        "healthy_count": count,
        "masters": masters,
        "group": status["group"],
        "at": status["at"],
    }


def _shown_age(taken: Taken) -> float:
    """Seconds; 0 for a valid snapshot, or a page would call fresh data old."""
    return taken.age if taken.age > GOOD_FOR else 0.0


def _json(data: Mapping[str, Any], status: int = 200, **headers: str) -> web.Response:
    body = json.dumps(data, separators=(",", ":")).encode()
    return web.Response(status=status, body=body, content_type=JSON, headers=headers)
