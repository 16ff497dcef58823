"""
One request to one salt-api, and what is certain about it when it fails.

:class:`NotSent`: the connection never came to be, so no byte of the request left this machine.
:class:`Lost`: the request was sent, or may have been; the answer is not here.

Nothing is followed, kept or taken from elsewhere: no redirects, cookies, proxies or ``.netrc``; a
token goes to the host that gave it, and nowhere else.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from saltext_ha.api.deadline import Deadline

CONNECT_LIMIT = 3.0
# Connections kept for reuse; more than that are opened when more threads call at once.
CONNECTIONS = 64
PIECE = 1 << 16


class NotSent(Exception):
    """The request was certainly not carried out."""


class Lost(Exception):
    """
    The request may have been carried out.

    :ivar finished: the server has ended its work on it: it answered, with an error.
    :ivar slow: there was no answer in time, which need not mean that anything is broken.
    """

    def __init__(self, reason: str, finished: bool = False, slow: bool = False) -> None:
        super().__init__(reason)
        self.finished, self.slow = finished, slow


@dataclass(frozen=True)
class Answer:
    """A complete answer of a server."""

    status: int
    body: bytes

    def json(self) -> Any:
        """
        The body, decoded.

        :raises ValueError: when it is not JSON.
        """
        return json.loads(self.body)


class _Try(threading.local):
    """What the connection classes tell about the current try of this thread."""

    sent = False


_try = _Try()


class _Telling:
    """
    A connection that tells when a request can have left: not before name, TCP, TLS and certificate
    were all right.
    """

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]  # a mixin
        _try.sent = True

    def request(self, *args: Any, **kwargs: Any) -> Any:
        # Of a connection that is used again; a new plain one connects in here.
        _try.sent = self.sock is not None
        return super().request(*args, **kwargs)  # type: ignore[misc]


class _PlainConnection(_Telling, HTTPConnection):
    pass


class _TlsConnection(_Telling, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):  # type: ignore[misc]  # requests has no types
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


class Transport:
    """Requests to the salt-api at *url*; for any number of threads."""

    def __init__(self, url: str, verify: bool | str = True) -> None:
        self.url, self.verify = url, verify
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        adapter = _Adapter(pool_connections=1, pool_maxsize=CONNECTIONS, max_retries=0)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter)

    def exchange(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        payload: Any = None,
        token: str | None = None,
    ) -> Answer:
        """
        Send one request and read the whole answer before *deadline*.

        :param payload: sent as JSON.
        :param token: sent as ``X-Auth-Token``.
        :raises NotSent: nothing reached the server.
        :raises Lost: it may have.
        :raises TypeError: *payload* is nothing that JSON has.
        """
        limit = deadline.remaining()
        if limit <= 0:
            raise NotSent("no time left")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        data = None
        if payload is not None:
            data = json.dumps(payload).encode()
            headers["Content-Type"] = "application/json"
        if token:
            headers["X-Auth-Token"] = token
        _try.sent = False
        answer: Answer | None = None
        problem, slow = "", False
        # Raised again outside of the handlers: requests' exceptions carry the request, with the
        # password or the token in it, and would be found in __context__ by whoever reports errors.
        try:
            answer = self._exchange(method, path, data, headers, deadline)
        except requests.Timeout:
            problem, slow = f"no answer within {limit:.1f} s", True
        except (requests.RequestException, OSError, ValueError) as exc:
            problem = _described(exc)
        except _TooSlow:
            problem, slow = f"no complete answer within {limit:.1f} s", True
        if answer is not None:
            return answer
        if not _try.sent:
            raise NotSent("cannot be connected to: no answer" if slow else problem)
        raise Lost(problem, slow=slow)

    def _exchange(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
        deadline: Deadline,
    ) -> Answer:
        limit = max(0.001, deadline.remaining())
        response = self._session.request(
            method,
            f"{self.url}{path}",
            data=data,
            headers=headers,
            timeout=(min(CONNECT_LIMIT, limit), limit),
            verify=self.verify,
            allow_redirects=False,
            stream=True,
        )
        try:
            body = _body(response, deadline)
        except BaseException:
            response.raw.close()  # not back into the pool: the rest of the answer is still to come
            raise
        response.close()
        return Answer(response.status_code, body)

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._session.close()


class _TooSlow(Exception):
    """The deadline passed while the answer was coming in."""


def _body(response: requests.Response, deadline: Deadline) -> bytes:
    """
    All of the body. The socket's own limit is per read, so one byte a second would never end:
    what is there is taken piece by piece, with what is left of the time as the limit.
    """
    raw = response.raw
    read = getattr(raw, "read1", None) or raw._fp.read1  # urllib3 1.26 does not hand it on
    pieces = []
    while True:
        left = deadline.remaining()
        if left <= 0:
            raise _TooSlow
        sock = getattr(getattr(raw, "connection", None), "sock", None)
        if sock is not None:
            sock.settimeout(left)
        problem = ""
        try:
            piece = read(PIECE)
        except TimeoutError:
            raise _TooSlow from None
        except Exception as exc:  # http.client and urllib3 have trees of their own
            if "imeout" in type(exc).__name__:
                raise _TooSlow from None
            problem = f"{type(exc).__name__}: the answer broke off"
        if problem:
            raise OSError(problem)
        if not piece:
            break
        pieces.append(piece)
    body = b"".join(pieces)
    # http.client's read1 takes an early end for the end.
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and len(body) < int(length):
        raise OSError(f"the answer broke off after {len(body)} of {length} bytes")
    return body


REFUSED = "refused the connection"


def _described(exc: BaseException) -> str:
    """What went wrong, in words that hold no part of the request."""
    text = str(exc)
    if "Connection refused" in text:
        return REFUSED
    for words, meaning in (
        ("WRONG_VERSION_NUMBER", "does not speak TLS: is it http://?"),
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted; give verify=PATH of its CA"),
        ("doesn't match", "its certificate is for another host"),
        ("Name or service not known", "its name cannot be resolved"),
        ("name resolution", "its name cannot be resolved"),
        ("No route to host", "no route to host"),
        ("Network is unreachable", "network is unreachable"),
        ("Connection reset", "reset the connection"),
        ("closed connection without response", "closed the connection without an answer"),
        ("broke off", text),
        ("invalid path", "the CA file of verify cannot be read"),
    ):
        if words in text:
            return meaning
    return f"connection failed ({type(exc).__name__})"
