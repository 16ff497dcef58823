"""
The status listener: HTTP for people and monitoring; it only reads.

By default it listens on loopback, without TLS. If a token is set, all pages need it except
``/live`` and ``/ready``, which say little and which balancers ask. Connections have the same kinds
of limits as connections of peers (:mod:`saltext_ha.transport.connection`): deadlines, and a maximum
number.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from saltext_ha.common.addresses import is_loopback
from saltext_ha.common.complaints import Complaint
from saltext_ha.common.errors import ConfigError, HaError, reason_of
from saltext_ha.common.refusals import Allowance, Refusals
from saltext_ha.config.status import StatusSettings
from saltext_ha.transport.connection import Connection, Limits
from saltext_ha.transport.http_server import HttpServer

log = logging.getLogger(__name__)

# Seconds for which a connection may be idle; a page asks every few seconds.
LIMITS = Limits(header=5.0, keepalive=20.0, max_handshakes=32, max_anonymous=64, backlog=64)
OPEN = ("/live", "/ready")
RETRY = 5.0
# Seconds between two looks at the files of certificate and key.
RENEWAL = 60.0

HEADERS = {
    "Server": "saltext-ha",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}

Page = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class StatusListener:
    """
    Serves pages as *settings* say.

    :raises ConfigError: certificate and key cannot be used.
    """

    def __init__(
        self,
        settings: StatusSettings,
        *,
        source: str = "the master configuration",
        limits: Limits = LIMITS,
    ) -> None:
        self._settings, self._source = settings, source
        self._pages: dict[str, Page] = {}
        self._context = _context(settings, source)
        self._refusals = Refusals()
        self._failures = Allowance()
        self._http = HttpServer(self._respond, self._refusals.add, limits, lambda: self._context)
        self.port = settings.port

    @property
    def refused(self) -> dict[str, int]:
        """Reason → how many requests were turned away for it since the start."""
        return dict(self._refusals.counts)

    async def start(self, pages: Mapping[str, Page]) -> None:
        """
        Begin to serve *pages*: path → coroutine function.

        :raises HaError: the address cannot be bound.
        """
        self._pages = dict(pages)
        try:
            self.port = await self._http.listen(self._settings.host, self.port)
        except (OSError, ValueError, OverflowError) as exc:
            # A name that cannot be encoded is a ValueError, and must not end the engine.
            raise HaError(
                f"status page: cannot listen on {self._settings.url}: "
                f"{reason_of(exc)}; see ha: status: (another host or port, "
                "or false)"
            ) from None
        log.info("ha status page: url=%s", self._settings.url)

    async def renew(self) -> None:
        """
        Show a renewed certificate to new connections, without a restart: balancers that ask
        ``/ready`` would one day find all masters down. Until its files can be used, the old one is
        shown.
        """
        complaint = Complaint(
            lambda problem: log.error("ha status page: shows its old certificate: %s", problem),
            lambda: log.info("ha status page: its certificate can be used again"),
        )
        while self._context is not None:
            await asyncio.sleep(RENEWAL)
            problem = ""
            try:
                self._context = await asyncio.to_thread(_context, self._settings, self._source)
            except ConfigError as exc:
                problem = str(exc)
            complaint.note(problem)

    async def stop(self) -> None:
        """Stop listening, and end requests that take half a second more."""
        await self._http.stop(0.5)

    async def _respond(
        self, request: web.BaseRequest, connection: Connection
    ) -> web.StreamResponse:
        connection.busy()
        response = await self._answer(request, connection)
        for name, value in HEADERS.items():
            if not response.prepared:
                response.headers.setdefault(name, value)
        if request.body_exists:
            # Nobody reads the body, and it cannot be told from the next request.
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest, connection: Connection) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            self._refusals.add("not a GET", connection.host)
            response = _text(405, "this listener answers GET and HEAD only")
            response.headers["Allow"] = "GET, HEAD"
            return response
        page = self._pages.get(request.path)
        if request.path not in OPEN:
            if not self._is_meant(request):
                self._refusals.add("another host's name", connection.host)
                return _text(421, "no such host here; ask for the address that is configured")
            if not self._may_look(request):
                self._refusals.add("no token", connection.host)
                response = _text(401, "takes the token: as password of any user, or as Bearer")
                response.headers["WWW-Authenticate"] = 'Basic realm="saltext-ha", charset="UTF-8"'
                return response
        if page is None:
            return _text(404, f"there is no {request.path[:80]!r} here")
        try:
            return await page(request)
        except HaError as exc:
            return _text(503, str(exc))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            if self._failures.take():
                log.exception("ha status page: failed path=%s", request.path[:80])
            return _text(500, "failed there; salt-master's log says why")

    def _is_meant(self, request: web.BaseRequest) -> bool:
        """
        Whether the request names this listener. With a token it need not; without, a foreign web
        page whose name points to this machine could read the answers (DNS rebinding).
        """
        if self._settings.token:
            return True
        name = request.headers.get("Host", "")
        host = name[1 : name.find("]")] if name.startswith("[") else name.rsplit(":", 1)[0]
        return not name or is_loopback(host) or host == self._settings.host

    def _may_look(self, request: web.BaseRequest) -> bool:
        token = self._settings.token
        if token is None:
            return True
        kind, _, value = request.headers.get("Authorization", "").partition(" ")
        shown = value.strip().encode(errors="replace")
        if kind.lower() == "basic":
            try:
                shown = base64.b64decode(shown, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(shown, token)


def _context(settings: StatusSettings, source: str) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"{source}: ha: status: certificate: {settings.certificate} cannot be used: "
            f"{getattr(exc, 'reason', None) or reason_of(exc)}; it takes a "
            "PEM certificate, and key: its private key, readable for the user of salt-master"
        ) from None
    return context


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n")
