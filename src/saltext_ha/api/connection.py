"""One connection to a salt-api: plain HTTP with one deadline for a whole request."""

from __future__ import annotations

import errno
import http.client
import io
import json
import selectors
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from saltext_ha.api.config import Secret
from saltext_ha.api.deadline import Deadline
from saltext_ha.api.errors import BadConfiguration

CONNECT_LIMIT = 3.0
PIECE = 1 << 16

FAULTS = (
    OSError,  # of the network and of TLS
    http.client.HTTPException,
    ValueError,
    LookupError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""What a request to a server can raise, whatever the server answers."""


class TooMuch(OSError):
    """The answer has more bytes than are allowed."""


class BrokenOff(OSError):
    """The answer is shorter than announced."""


class _Reader(io.RawIOBase):
    """Reads a socket until *deadline* in all, however small the pieces that arrive."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock, self._deadline = sock, deadline
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(left(self._deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, deadline: Deadline, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_Reader(sock, deadline))


class ApiConnection(http.client.HTTPConnection):
    """
    A connection to the salt-api at *url*, which is not open yet.

    :param verify: as in :class:`~saltext_ha.api.config.Endpoint`.
    """

    def __init__(self, url: str, verify: bool | str) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "https"
        self._verify, self._prefix = verify, quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self.default_port = 443 if self._tls else 80
        super().__init__(parts.hostname or "", parts.port or self.default_port)
        self._deadline = Deadline(0)

    def open(self, deadline: Deadline) -> None:
        """
        Connect: name, TCP, TLS and certificate. No byte of a request is sent.

        :raises OSError: there is no connection. :raises ValueError: its host name is invalid.
        """
        context = tls_context(self._verify) if self._tls else None
        self.sock = connected(self.host, self.port, deadline)
        if context is not None:
            self.sock.settimeout(min(CONNECT_LIMIT, left(deadline)))
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)

    @property
    def usable(self) -> bool:
        """Whether it is still open, and no data came without a request."""
        if self.sock is None:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            return not selector.select(0)

    def ask(
        self,
        method: str,
        path: str,
        data: Secret | None,
        token: Secret | None,
        deadline: Deadline,
    ) -> http.client.HTTPResponse:
        """
        Send a request, and return the answer once its head is here.

        :param data: JSON.
        :raises OSError: no answer, or none in time; or another one of :data:`FAULTS`.
        """
        self._deadline = deadline
        self.response_class = partial(_Response, deadline)  # type: ignore[assignment]
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if token is not None:
            headers["X-Auth-Token"] = token.read()
        body = None if data is None else data.read().encode()
        self.request(method, f"{self._prefix}{path}", body, headers)
        return self.getresponse()

    def send(self, data: Any) -> None:
        """Send *data* of http.client in pieces: TLS counts the timeout for each."""
        for begin in range(0, len(data), PIECE):
            self.sock.settimeout(left(self._deadline))
            super().send(data[begin : begin + PIECE])


def connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """
    A connection to the first address of *host* that accepts one. All of them together have until
    *deadline*, and at most :data:`CONNECT_LIMIT` seconds; each has an equal share of what is left.

    :raises OSError: none accepts one; the error of the last.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    limit = Deadline(min(CONNECT_LIMIT, left(deadline)))
    problem = OSError("its name has no address")
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as exc:  # this machine has no IPv6
            problem = exc
            continue
        try:
            sock.settimeout(left(limit.part(len(addresses) - place)))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as exc:
            sock.close()
            problem = exc
    raise problem


def read(response: http.client.HTTPResponse, most: int) -> bytes:
    """The body, of *most* bytes at most. :raises OSError: it broke off, is too large, or late."""
    expected, size, pieces = response.length, 0, list[bytes]()
    while piece := response.read(PIECE):
        size += len(piece)
        if size > most:
            raise TooMuch(f"its answer has more than {most} bytes")
        pieces.append(piece)
    # http.client does not notice an early end.
    if expected is not None and size < expected:
        raise BrokenOff(f"the answer broke off after {size} of {expected} bytes")
    return b"".join(pieces)


def left(deadline: Deadline) -> float:
    """Seconds for the next step. :raises TimeoutError: there are none."""
    seconds = deadline.remaining()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def encoded(payload: Any, name: str = "the call") -> Secret:
    """
    *payload* as JSON. It may have a :class:`Secret` in it, so it is one itself.

    :param name: what the error calls it.
    :raises BadConfiguration: JSON cannot express it.
    """

    def revealed(value: Any) -> Any:
        if isinstance(value, Secret):
            return value.read()
        raise TypeError(f"{type(value).__name__} is nothing that JSON has")

    text, problem = "", ""
    try:
        text = json.dumps(payload, default=revealed)
    except (TypeError, ValueError, RecursionError) as exc:
        problem = f"cannot be sent: {exc}"
    # Outside of the handler, whose frames hold the text so far.
    if problem:
        raise BadConfiguration(f"{name}: {problem}")
    return Secret(text)


class _NoAuthorities(OSError):
    pass


def _usual_authorities() -> str:
    # Not at the top: it loads all of requests, and engines import this module for its errors only.
    from requests.certs import where

    return str(where())


def tls_context(verify: bool | str) -> ssl.SSLContext:
    """The TLS context for a salt-api. :raises OSError: what *verify* names cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    trusted = _usual_authorities() if verify is True else str(verify)
    folder = Path(trusted).is_dir()
    try:
        context.load_verify_locations(None if folder else trusted, trusted if folder else None)
    except (OSError, ValueError):
        raise _NoAuthorities from None
    return context


# By OpenSSL's codes; 62 is about a name, 64 about an address.
MISMATCH = "its certificate is for another host"
REFUSED = {
    9: "its certificate is not valid yet: is a clock wrong?",
    10: "its certificate has expired",
    62: MISMATCH,
    64: MISMATCH,
}


def described(exc: BaseException) -> str:
    """What went wrong, in words that hold no part of the request."""
    for kind, meaning in (
        (_NoAuthorities, "the CA file of verify cannot be read"),
        (http.client.RemoteDisconnected, "closed the connection without an answer"),
        (ConnectionRefusedError, "refused the connection"),
        ((ConnectionResetError, BrokenPipeError), "reset the connection"),
        (socket.gaierror, "its name cannot be resolved"),
        (http.client.IncompleteRead, "the answer broke off"),
        (UnicodeError, "its name cannot be resolved"),
    ):
        if isinstance(exc, kind):
            return meaning
    if isinstance(exc, (TooMuch, BrokenOff)):
        return str(exc)
    if isinstance(exc, ssl.SSLCertVerificationError):
        usual = "its certificate is not trusted; give verify=PATH of its CA"
        return REFUSED.get(exc.verify_code, usual)
    if isinstance(exc, ssl.SSLError):
        plain = exc.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
        if plain:
            return (
                "does not speak TLS: is it http:// (beside SALT_MASTER_HOST: SALT_API_SCHEME=http)?"
            )
        return f"TLS failed ({exc.reason})"
    if isinstance(exc, OSError) and exc.errno == errno.EHOSTUNREACH:
        return "no route to host"
    if isinstance(exc, OSError) and exc.errno == errno.ENETUNREACH:
        return "network is unreachable"
    if isinstance(exc, OSError):
        return f"connection failed ({type(exc).__name__})"
    return f"its answer is no HTTP ({type(exc).__name__})"
