"""What the status listener answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from saltext_ha.web.listener import Page

if TYPE_CHECKING:
    from saltext_ha.service.service import Service


class Pages:
    """The pages of one engine."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def by_path(self) -> dict[str, Page]:
        """Path → what answers it."""
        return {"/live": self.live, "/ready": self.ready}

    async def live(self, request: web.BaseRequest) -> web.Response:
        """That the engine runs, and with it the master that started it."""
        return web.Response(text="live\n")

    async def ready(self, request: web.BaseRequest) -> web.Response:
        """Whether this master should be given callers: 200, or 503 and the reason."""
        ready, reason = self._service.health.ready()
        if ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{reason}\n", headers={"Retry-After": "5"})
