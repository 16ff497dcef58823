"""
A client of etcd's v3 API, as far as a leader needs it, through its JSON gateway.

The gateway is what Salt's own libraries can speak; etcd 3.4 has it by default, but not with a
configuration file that lacks ``enable-grpc-gateway: true``: it answers 404 then.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from saltext_ha.common.errors import EtcdError, LeaseGone, reason_of
from saltext_ha.config.leader import LeaderSettings
from saltext_ha.transport.client import REFUSED

NO_GATEWAY = (
    "answers 404: its JSON gateway is off; write  enable-grpc-gateway: true  into etcd's "
    "configuration file"
)
NOT_FOUND = 5  # of gRPC: the lease is gone
UNAUTHENTICATED = 16
MAX_ANSWER = 1024 * 1024


@dataclass(frozen=True)
class KeyHolder:
    """Who has the key: the value that was put there, and the revision at which it was made."""

    value: str
    revision: int


class EtcdClient:
    """
    Asks the endpoints in turn, beginning with the one that answered last.

    :param timeout: seconds that one endpoint may take.
    """

    def __init__(self, settings: LeaderSettings, timeout: float) -> None:
        self._settings, self._timeout = settings, timeout
        self._endpoints = list(settings.endpoints)
        self._token = ""  # nosec B105
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def grant(self, ttl: int) -> tuple[str, int]:
        """A new lease: its id, and the seconds for which it holds."""
        answer = await self._call("lease/grant", {"TTL": ttl})
        return str(answer["ID"]), int(answer["TTL"])

    async def keep_alive(self, lease: str) -> int:
        """
        Prolong a lease; the seconds for which it holds from when this was asked.

        :raises LeaseGone: it has ended.
        """
        answer = await self._call("lease/keepalive", {"ID": lease})
        ttl = int(answer.get("result", {}).get("TTL", 0))
        if ttl <= 0:
            raise LeaseGone("the lease has ended")
        return ttl

    async def revoke(self, lease: str) -> None:
        """End a lease, and with it what was put under it."""
        await self._call("lease/revoke", {"ID": lease})

    async def get(self, key: str) -> KeyHolder | None:
        """Who has *key* now, by the majority of the members."""
        return _held(await self._call("kv/range", {"key": _b64(key)}))

    async def take(self, key: str, value: str, lease: str) -> KeyHolder | None:
        """Put *value* there under *lease* if nobody has it; who has it then."""
        answer = await self._call(
            "kv/txn",
            {
                "compare": [
                    {"key": _b64(key), "target": "CREATE", "result": "EQUAL", "create_revision": 0}
                ],
                "success": [
                    {"request_put": {"key": _b64(key), "value": _b64(value), "lease": lease}}
                ],
                "failure": [{"request_range": {"key": _b64(key)}}],
            },
        )
        if answer.get("succeeded"):
            return KeyHolder(value, int(answer["header"]["revision"]))
        responses = answer.get("responses") or [{}]
        return _held(responses[0].get("response_range") or {})

    async def _call(self, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """
        What the first endpoint answers that does.

        :raises EtcdError: none does, or etcd says no.
        """
        problems = []
        for endpoint in list(self._endpoints):
            try:
                answer = await self._ask(endpoint, path, payload)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as exc:
                problems.append(f"{endpoint}: {_reason(exc)}")
                # The others are asked first from now on.
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)
            except _Unusable as exc:
                problems.append(f"{endpoint}: {exc}")
            else:
                return answer
        raise EtcdError("; ".join(problems))

    async def _ask(self, endpoint: str, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        if self._settings.username and not self._token:
            await self._log_in(endpoint)
        status, answer = await self._post(endpoint, path, payload)
        if self._settings.username and _code(answer) == UNAUTHENTICATED:
            # The token has ended, or etcd was restarted.
            await self._log_in(endpoint)
            status, answer = await self._post(endpoint, path, payload)
        if status == 200 and "error" not in answer:
            return answer
        if _code(answer) == NOT_FOUND and path.startswith("lease/"):
            raise LeaseGone("the lease has ended")
        raise _Unusable(NO_GATEWAY if status == 404 and not answer else _message(status, answer))

    async def _log_in(self, endpoint: str) -> None:
        settings = self._settings
        self._token = ""  # nosec B105
        who = {"name": settings.username, "password": settings.password}
        status, answer = await self._post(endpoint, "auth/authenticate", who)
        token = answer.get("token")
        if status != 200 or not isinstance(token, str):
            raise _Unusable(f"refuses the login of {settings.username}: {_message(status, answer)}")
        self._token = token

    async def _post(
        self, endpoint: str, path: str, payload: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": self._token} if self._token else {}
        request = self._open().post(
            f"{endpoint}/v3/{path}", data=json.dumps(payload), headers=headers
        )
        async with request as response:
            # The answer of a keep-alive has no end: its first line is what counts.
            body = await response.content.readline()
            if len(body) > MAX_ANSWER:
                raise ValueError("its answer is too large")
            try:
                answer = json.loads(body)
            except ValueError:
                answer = {}
            return response.status, answer if isinstance(answer, dict) else {}

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=_context(self._settings), resolver=aiohttp.ThreadedResolver(), ttl_dns_cache=10
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            )
        return self._session


class _Unusable(Exception):
    """An endpoint answered, and it is of no use."""


def _context(settings: LeaderSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(settings.ca) if settings.ca else None)
    if settings.cert and settings.key:
        context.load_cert_chain(settings.cert, settings.key)
    return context


def _held(answer: Mapping[str, Any]) -> KeyHolder | None:
    for entry in answer.get("kvs") or []:
        value = base64.b64decode(entry.get("value", "")).decode(errors="replace")
        return KeyHolder(value, int(entry["create_revision"]))
    return None


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _code(answer: Mapping[str, Any]) -> int | None:
    error = answer.get("error")
    found = error.get("grpc_code") if isinstance(error, Mapping) else answer.get("code")
    return found if isinstance(found, int) else None


def _message(status: int, answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    said = error.get("message") if isinstance(error, Mapping) else error
    text = str(said or answer.get("message") or f"HTTP {status}")[:300]
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _reason(exc: Exception) -> str:
    cause = getattr(exc, "os_error", None)
    if isinstance(cause, ConnectionRefusedError):
        return REFUSED
    return reason_of(cause if isinstance(cause, OSError) else exc)


def boot_clock() -> float:
    """Seconds that only grow, also while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
