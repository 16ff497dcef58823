"""
Finds the next request in the bytes of a connection; passes one request at a time, of known length.

aiohttp reads what is passed. Its releases before 3.14, which come with Salt 3006 and 3007, keep the
lines of a head, trailers, what follows an upgrade, and requests that come before an answer, all
without a limit: one connection took 2 GB in five seconds. So none of that is passed. Requests that
two readers might understand differently are not passed, either: a proxy in front and this module
see the same end of a request.
"""

from __future__ import annotations

import re

MAX_HEAD = 16 * 1024
MAX_LINES = 100
# Bytes of a next request that may wait for the answer to the present one.
MAX_AHEAD = MAX_HEAD

_END = b"\r\n\r\n"
_BEGIN = re.compile(rb"[A-Z]{1,20}( |\Z)")
_FIRST = re.compile(rb"[A-Z]{1,20} [^\r\n\0]*")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*")
_NONE = "that is no head of a request"
_SIZE = b"content-length"
_LENGTH = re.compile(rb"[0-9]{1,15}")
_REASONS = {400: "Bad Request", 411: "Length Required", 431: "Request Header Fields Too Large"}


class Unframed(Exception):
    """
    A request has no clear end, or is too long.

    :param status: of the answer; 0 if another request is being answered.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status

    def answer(self) -> bytes:
        """The complete answer; empty without a status."""
        if not self.status:
            return b""
        body = f"{self}\n".encode()
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


class Framing:
    """The requests of one connection."""

    def __init__(self) -> None:
        self._kept = bytearray()
        """The received part of the next request."""
        self._body = 0
        """How many bytes of the passed request's body are still to come."""
        self._open = False
        """Whether the passed request is not answered yet."""

    def take(self, data: bytes) -> bytes:
        """
        Take received *data*; return the bytes to pass on now.

        :raises Unframed: the connection must be ended.
        """
        through, rest = data[: self._body], data[self._body :]
        self._body -= len(through)
        self._kept += rest
        if self._open:
            if len(self._kept) > MAX_AHEAD:
                raise Unframed(0, "asked without waiting for the answer")
            return through
        return through + self._next()

    def answered(self) -> bytes:
        """
        The passed request is answered; return the bytes to pass on now.

        :raises Unframed: the connection must be ended.
        """
        self._open = False
        return self._next()

    def _next(self) -> bytes:
        end = self._kept.find(_END, 0, MAX_HEAD)
        if end < 0:
            if len(self._kept) >= MAX_HEAD:
                raise Unframed(431, f"a head has at most {MAX_HEAD} bytes")
            if self._kept and not _BEGIN.match(self._kept):
                raise Unframed(400, _NONE)  # no need to wait for its end
            return b""
        head = end + len(_END)
        length = _length(bytes(self._kept[:end]))
        through = bytes(self._kept[: head + length])
        del self._kept[: head + length]
        self._body = head + length - len(through)
        self._open = True
        if len(self._kept) > MAX_AHEAD:
            raise Unframed(0, "asked without waiting for the answer")
        return through


def _length(head: bytes) -> int:
    """How many bytes follow *head*, given without its end."""
    first, *lines = head.split(b"\r\n")
    if len(lines) > MAX_LINES:
        raise Unframed(431, f"a head has at most {MAX_LINES} lines")
    # Some readers take a line that begins with a space for a part of the line before.
    if not _FIRST.fullmatch(first) or not all(map(_FIELD.fullmatch, lines)):
        raise Unframed(400, _NONE)
    fields = [line.partition(b":") for line in lines]
    names = [name.lower() for name, _, _ in fields]
    lengths = [value.strip(b" \t") for name, _, value in fields if name.lower() == _SIZE]
    if b"transfer-encoding" in names:
        raise Unframed(411, "a body is sent with its length, by Content-Length")
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise Unframed(400, "Content-Length is one number")
    length = int(lengths[0]) if lengths else 0
    if length and (b"upgrade" in names or first.startswith(b"CONNECT ")):
        raise Unframed(400, "what asks for another protocol has no body")
    return length
