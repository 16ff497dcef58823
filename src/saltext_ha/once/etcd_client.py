"""
A client of etcd's v3 API through its JSON gateway, with the calls that a leader needs.

Salt's own libraries can speak to the gateway. etcd 3.4 has it by default, but not with a
configuration file that lacks ``enable-grpc-gateway: true``: then it answers 404.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from saltext_ha.common.errors import EtcdError, LeaseGone, reason_of
from saltext_ha.common.printable import harmless
from saltext_ha.config.leader import LeaderSettings
from saltext_ha.transport.client import NO_LISTENER

NO_GATEWAY = (
    "answers 404: its JSON gateway is off; write  enable-grpc-gateway: true  into etcd's "
    "configuration file"
)
NOT_FOUND = 5  # of gRPC: the lease is gone
UNAUTHENTICATED = 16
OLD_TOKEN = "revision of auth store is old"  # nosec B105: no password
"""etcd's words for a JSON web token from before users or roles changed; it has no code for that."""
WRONG_PASSWORD = "authentication failed"  # nosec B105
REFUSED_PAUSE = 3.0
"""
Seconds until a refused password is tried again: to compare one costs etcd much time. Less than a
lease lasts, which one wrong answer must not cost.
"""
NONSENSE = "answers what etcd does not; is this the address of an etcd?"
CANNOT = "etcd cannot be asked: "
"""So each error begins, except that of a lease that has ended."""
WHAT_TO_DO = {
    "user name is empty": "etcd has users: set username: and password_file:",
    WRONG_PASSWORD: "is the password right? password_file: is read when the engine starts",
    "CommonName of client": "where etcd has users, use a cert: without a CommonName",
    "permission denied": "grant a role of its user readwrite on all keys below {prefix}/",
    "space exceeded": "etcd is full: compact and defragment it, then disarm its alarm",
    "unable to get": "give in ca: the file with the CA of its certificate",
    "signed certificate": "give in ca: the file with the CA of its certificate",
    " alert ": "etcd refuses this master: is cert: set, valid, and of a CA that it trusts?",
    "wrong version number": "it speaks no TLS: is it http:// there?",
    "Server disconnected": "is it https:// there?",
}
"""Part of a reason → what to do about it."""

LONGEST = 300

T = TypeVar("T")


@dataclass(frozen=True)
class KeyHolder:
    """A key's value, the revision that created the key, and the one that wrote the value."""

    value: str
    revision: int
    written: int


class EtcdClient:
    """Asks the endpoints in turn, beginning with the one that answered last."""

    def __init__(self, settings: LeaderSettings, timeout: float) -> None:
        self._settings, self._timeout = settings, timeout
        self._endpoints = list(settings.endpoints)
        self._token = ""  # nosec B105
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._refusal, self._refused = "", float("-inf")
        """What etcd said to the password, and when."""

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def grant(self, ttl: int) -> tuple[str, int]:
        """A new lease: its id, and the seconds for which it holds."""
        return await self._call("lease/grant", {"TTL": ttl}, _granted)

    async def keep_alive(self, lease: str) -> int:
        """Prolong a lease; returns for how many seconds. :raises LeaseGone: it has ended."""
        return await self._call("lease/keepalive", {"ID": lease}, _kept_alive)

    async def revoke(self, lease: str) -> None:
        """End a lease; etcd then deletes the keys under it."""
        await self._call("lease/revoke", {"ID": lease}, _revision)

    async def get(self, key: str) -> KeyHolder | None:
        """The holder of *key* now, by the majority of the members; None if there is none."""
        return await self._call("kv/range", {"key": _b64(key)}, _held)

    async def write(self, key: str, value: str, seen: int, while_made: tuple[str, int]) -> bool:
        """
        Put *value* at *key*; False: *seen* or *while_made* no longer holds.

        :param seen: the revision that wrote *key* last; 0: there is no such key.
        :param while_made: another key, and the revision that created it.
        """
        other, made = while_made

        def wrote(answer: Mapping[str, Any]) -> bool:
            _revision(answer)
            return answer.get("succeeded") is True

        return await self._call(
            "kv/txn",
            {
                "compare": [
                    {"key": _b64(key), "target": "MOD", "result": "EQUAL", "mod_revision": seen},
                    {
                        "key": _b64(other),
                        "target": "CREATE",
                        "result": "EQUAL",
                        "create_revision": made,
                    },
                ],
                "success": [{"request_put": {"key": _b64(key), "value": _b64(value)}}],
            },
            wrote,
        )

    async def take(self, key: str, value: str, lease: str) -> KeyHolder | None:
        """Put *value* at *key* under *lease* if *key* has no holder; returns its holder then."""

        def taken(answer: Mapping[str, Any]) -> KeyHolder | None:
            if answer.get("succeeded"):
                return KeyHolder(value, made := _revision(answer), made)
            return _held(answer["responses"][0]["response_range"])

        return await self._call(
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
            taken,
        )

    async def _call(
        self, path: str, payload: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]
    ) -> T:
        """
        The answer of the first endpoint that has a usable one, as *read* reads it.

        :raises EtcdError: no endpoint has one, or the lease is gone.
        """
        problems: dict[str, list[str]] = {}
        for endpoint in list(self._endpoints):
            try:
                return _made_out(read, await self._ask(endpoint, path, payload))
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as exc:
                why = _reason(exc)
                problems.setdefault(why, []).append(endpoint)
                # From now on ask the others first.
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)
                if "[SSL" in why or isinstance(exc, aiohttp.ServerDisconnectedError):
                    self._tls = None  # read the files anew: a certificate may have been renewed
        told = [f"{', '.join(each)}: {self._advised(why)}" for why, each in problems.items()]
        raise EtcdError(CANNOT + "; ".join(told))

    async def _ask(self, endpoint: str, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """:raises ValueError: the answer is of no use; says why. :raises LeaseGone: it is gone."""
        if self._settings.username and not self._token:
            await self._log_in(endpoint)
        status, answer = await self._post(endpoint, path, payload)
        ended = _code(answer) == UNAUTHENTICATED or OLD_TOKEN in _message(0, answer)
        if self._settings.username and ended:  # the token; or etcd was restarted
            await self._log_in(endpoint)
            status, answer = await self._post(endpoint, path, payload)
        if status == 200 and "error" not in answer:
            return answer
        if _code(answer) == NOT_FOUND and path.startswith("lease/"):
            raise LeaseGone("the lease has ended")
        raise ValueError(self._said(status, answer))

    async def _log_in(self, endpoint: str) -> None:
        settings = self._settings
        self._token = ""  # nosec B105
        if time.monotonic() - self._refused < REFUSED_PAUSE:
            raise ValueError(self._refusal)
        who = {"name": settings.username, "password": settings.password}
        status, answer = await self._post(endpoint, "auth/authenticate", who)
        token = answer.get("token")
        if status != 200 or not isinstance(token, str):
            said = self._said(status, answer)
            refusal = f"refuses the login of {settings.username}: {said}"
            if WRONG_PASSWORD in said:
                self._refusal, self._refused = refusal, time.monotonic()
            raise ValueError(refusal)
        self._token = token

    def _said(self, status: int, answer: Mapping[str, Any]) -> str:
        """The error that an endpoint returned, without the secrets that this client sent."""
        text = _message(status, answer)
        for secret in (self._settings.password, self._token):
            text = text.replace(secret, "***") if secret else text
        return harmless(text[:LONGEST])

    def _advised(self, why: str) -> str:
        """A reason, and what to do about it where that is known."""
        advice = next((each for part, each in WHAT_TO_DO.items() if part in why), "")
        return f"{why} ({advice.format(prefix=self._settings.prefix)})" if advice else why

    async def _post(
        self, endpoint: str, path: str, payload: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": self._token} if self._token else {}
        self._tls = self._tls or _read_files(self._settings)
        request = self._open().post(
            f"{endpoint}/v3/{path}",
            data=json.dumps(payload),
            headers=headers,
            ssl=self._tls,
            allow_redirects=False,  # the password is for this endpoint only
        )
        async with request as response:
            # The answer to a keep-alive has no end: only its first line counts. A line of more than
            # 128 KB is a ValueError.
            body = await response.content.readline()
            if response.status >= 400 and not body.strip():
                body = await response.content.readline()
            try:
                answer = json.loads(body)
            except (ValueError, RecursionError):
                answer = {"message": _plain(body)} if response.status != 404 else {}
            return response.status, answer if isinstance(answer, dict) else {}

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(resolver=aiohttp.ThreadedResolver(), ttl_dns_cache=10)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            )
        return self._session


def _read_files(settings: LeaderSettings) -> ssl.SSLContext:
    """:raises EtcdError: a file cannot be used; names it."""
    files = f"ca: {settings.ca}"
    try:
        context = ssl.create_default_context(cafile=str(settings.ca) if settings.ca else None)
        # Python 3.13 refuses certificates that lack fields which RFC 5280 wants and no verification
        # needs, such as those of plain openssl. Accept them on every Python, as etcd's clients do.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if settings.cert and settings.key:
            files = f"cert: {settings.cert}, key: {settings.key}"
            context.load_cert_chain(settings.cert, settings.key, password=_no_password)
    except (OSError, ValueError) as exc:
        raise EtcdError(f"{CANNOT}ha: leader: {files}: {reason_of(exc)}") from None
    return context


def _no_password() -> str:
    """Without this callback OpenSSL would ask at the terminal, and wait."""
    raise ValueError("the key has a password; write one without")


def _made_out(read: Callable[[Mapping[str, Any]], T], answer: Mapping[str, Any]) -> T:
    """What *read* makes of *answer*. :raises ValueError: etcd does not answer so."""
    try:
        return read(answer)
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
        raise ValueError(NONSENSE) from None


def _granted(answer: Mapping[str, Any]) -> tuple[str, int]:
    ttl = int(answer["TTL"])
    if ttl <= 0:
        raise ValueError
    return str(answer["ID"]), ttl


def _kept_alive(answer: Mapping[str, Any]) -> int:
    result = answer["result"]
    _revision(result)
    ttl = int(result.get("TTL", 0))
    if ttl <= 0:
        raise LeaseGone("the lease has ended")
    return ttl


def _revision(answer: Mapping[str, Any]) -> int:
    """The revision of etcd when it answered; every real answer has it."""
    return int(answer["header"]["revision"])


def _held(answer: Mapping[str, Any]) -> KeyHolder | None:
    _revision(answer)
    for entry in answer.get("kvs") or []:
        value = base64.b64decode(entry["value"], validate=True).decode(errors="replace")
        return KeyHolder(value, int(entry["create_revision"]), int(entry["mod_revision"]))
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
    return str(said or answer.get("message") or (NO_GATEWAY if status == 404 else f"HTTP {status}"))


def _plain(body: bytes) -> str:
    """What etcd says where it refuses in plain text; empty of a page or broken JSON of others."""
    text = body.decode(errors="replace").strip()
    return "" if text.startswith(("<", "{", "[")) else text


def _reason(exc: Exception) -> str:
    cause = getattr(exc, "os_error", None)
    if isinstance(cause, ConnectionRefusedError):
        return NO_LISTENER
    return reason_of(cause if isinstance(cause, OSError) else exc)
