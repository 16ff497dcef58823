"""Sends inputs as fast as they are taken, and counts the outcomes."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from random import Random

import msgpack

from proving.hostile.inputs import Input, Source

# A peer that floods the keeper waits for it, as all do.
TIMEOUT = 60.0
ENOUGH = 5  # crashes; if a door does not answer, each further input would wait for it
# A connection that is reset leaves no port that cannot be used for a minute.
RESET = struct.pack("ii", 1, 0)
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)

Connect = Callable[[], socket.socket]


@dataclass
class Tally:
    """The outcomes of inputs: refusals by reason, how many were accepted, what went wrong."""

    inputs: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    """Where the engine failed instead of refusing, or gave no answer that was due."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    """Other measurements, in words."""

    def add(self, other: Tally) -> None:
        """Count *other* in."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.refused += other.refused
        self.crashes += other.crashes
        self.notes += other.notes


def over_tcp(port: int, source: str = "127.0.0.66") -> Connect:
    """Connections from the address *source*."""

    def connect() -> socket.socket:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The port is chosen when it connects: then there are more to choose from.
        raw.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        raw.settimeout(TIMEOUT)
        try:
            raw.bind((source, 0))
            raw.connect(("127.0.0.1", port))
        except OSError:
            raw.close()
            raise
        return raw

    return connect


def over_tls(port: int, context: ssl.SSLContext, source: str = "127.0.0.66") -> Connect:
    """Like :func:`over_tcp`, after a TLS handshake."""
    plain = over_tcp(port, source)

    def connect() -> socket.socket:
        return context.wrap_socket(plain())

    return connect


def over_unix(path: str) -> Connect:

    def connect() -> socket.socket:
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(path)  # without a timeout: a full queue is waited for
        raw.settimeout(TIMEOUT)
        return raw

    return connect


def attack(
    connect: Connect,
    source: Source,
    inputs: int,
    seed: int,
    *,
    lanes: int = 4,
    together: int = 16,
    secrets: Sequence[bytes] = (),
) -> Tally:
    """
    Send *inputs* of *source* over several connections at once.

    :param together: how many requests are sent before the first answer is read.
    :param secrets: byte strings that no answer may contain.
    """
    tallies = [Tally() for _ in range(lanes)]
    began = time.monotonic()

    def run(number: int) -> None:
        lane = _Lane(connect, tallies[number], secrets)
        lane.run(source(Random(f"{seed} {number}")), inputs // lanes, together)

    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(run, range(lanes)))
    total = Tally(seconds=time.monotonic() - began)
    for tally in tallies:
        total.add(tally)
    return total


class _Lane:
    """One connection after the other."""

    def __init__(self, connect: Connect, tally: Tally, secrets: Sequence[bytes]) -> None:
        self._connect = connect
        self._tally = tally
        self._secrets = secrets
        self._socket: socket.socket | None = None
        self._buffer = b""

    def run(self, inputs: Iterator[Input], count: int, together: int) -> None:
        waiting: list[Input] = []
        while self._tally.inputs < count and len(self._tally.crashes) < ENOUGH:
            waiting += islice(inputs, together - len(waiting))
            # An input that may end the connection goes alone.
            batch = waiting[:1]
            if batch[0].whole:
                batch = [*batch, *_while_whole(waiting[1:])]
            done = self._send(batch)
            self._tally.inputs += sum(one.count for one in batch[:done])
            waiting = waiting[done:]
        self._close()

    def _send(self, batch: list[Input]) -> int:
        """Send *batch* together; return how many of its inputs are finished."""
        if self._socket is None:
            try:
                self._socket = self._connect()
            except OSError as exc:
                # Turned away at the door: for its sender, the input was refused.
                self._refuse(f"not let in: {_why(exc)}")
                return 1
        try:
            self._socket.sendall(b"".join(one.data for one in batch))
            if not batch[0].whole:
                _half_close(self._socket)
        except OSError as exc:
            # The engine hung up before all was sent; the first input may still have an answer.
            if not self._buffer and len(batch) == 1 and batch[0].whole:
                self._answers(1, str(_why(exc)))
                self._close()
                return 1
        if not batch[0].whole:
            self._answers(None, "hung up")
            self._close()
            return 1
        answered, closed = self._answers(len(batch), "hung up")
        if closed:
            self._close()
            # The inputs after the last answer were never looked at: they are sent again.
            return max(answered, 1)
        return answered

    def _answers(self, due: int | None, ended: str) -> tuple[int, bool]:
        """Count *due* answers; with None, all that come before the connection ends."""
        seen = 0
        while due is None or seen < due:
            answer = self._read_answer()
            if isinstance(answer, str):
                if answer == "timed out":
                    self._tally.crashes.append("no answer in time")
                if seen == 0:
                    self._refuse(ended if answer == "ended" else answer)
                return seen, True
            seen += 1
            head, body = answer
            if due is not None or seen == 1:
                self._count(head, body)
            if b"connection: close" in head.lower():
                return seen, True
        return seen, False

    def _read_answer(self) -> tuple[bytes, bytes] | str:
        assert self._socket is not None
        try:
            while (end := self._buffer.find(b"\r\n\r\n")) < 0:
                more = self._socket.recv(65536)
                if not more:
                    return "ended"
                self._buffer += more
            head = self._buffer[: end + 4]
            found = LENGTH.search(head)
            size = end + 4 + int(found[1] if found else 0)
            while len(self._buffer) < size:
                more = self._socket.recv(1 << 20)
                if not more:
                    return "ended"
                self._buffer += more
        except TimeoutError:
            return "timed out"
        except OSError:
            return "ended"
        body, self._buffer = self._buffer[end + 4 : size], self._buffer[size:]
        return head, body

    def _count(self, head: bytes, body: bytes) -> None:
        status = head[9:12]
        for secret in self._secrets:
            if secret in body or secret in head:
                self._tally.crashes.append("an answer contains a secret")
        if status == b"200":
            self._tally.accepted += 1
            return
        reason = status.decode("ascii", "replace")
        with contextlib.suppress(Exception):
            content = msgpack.unpackb(body)
            reason = str(content["error"]).replace("_", " ")
        self._refuse(reason)
        # 503: "not ready" is an answer.
        if status.startswith(b"5") and status != b"503":
            self._tally.crashes.append(f"{reason}: {body[:200]!r}")

    def _refuse(self, reason: str) -> None:
        self._tally.refused[reason] += 1

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._buffer = None, b""


def _while_whole(inputs: list[Input]) -> Iterator[Input]:
    for one in inputs:
        if not one.whole:
            return
        yield one


def _half_close(connection: socket.socket) -> None:
    """Say that nothing more comes; below TLS, as a careless attacker does."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_WR)


def _why(exc: OSError) -> str:
    if isinstance(exc, ssl.SSLError):
        return (exc.reason or "TLS").lower().replace("_", " ")
    return "reset" if isinstance(exc, (ConnectionResetError, BrokenPipeError)) else "no connection"
