"""Calls between masters: how long they take, which are lost, and how many bytes they have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from proving.simulation.kernel import Kernel, Resume, suspend
from saltext_ha.common.errors import PeerUnreachable
from saltext_ha.transport import wire

Payload = dict[str, Any]

REGIONS = ("Frankfurt", "Virginia", "Oregon", "Tokyo", "Sydney", "São Paulo")
# One way, in milliseconds: half of the round trips that cloud providers publish for these places.
DELAYS = (
    (0.5, 45, 72, 115, 143, 103),
    (45, 0.5, 33, 78, 100, 57),
    (72, 33, 0.5, 49, 70, 88),
    (115, 78, 49, 0.5, 52, 128),
    (143, 100, 70, 52, 0.5, 150),
    (103, 57, 88, 128, 150, 0.5),
)
JITTER = 0.05  # of the delay, on average
# What HTTP and TLS 1.3 add; tests compare it with what a real client counts.
REQUEST_HEAD = 114
ANSWER_HEAD = 129
RECORD, RECORD_OVERHEAD = 16384, 22
HANDSHAKE = 1871  # bytes of a TLS 1.3 handshake with a certificate on either side
HANDSHAKE_TRIPS = 2  # round trips: TCP, then TLS


@dataclass(frozen=True)
class Conditions:
    """
    The properties of the network.

    :param loss: the share of messages, requests and answers alike, that never arrive. TCP sends
        lost packets again; this is what remains: connections that die without a word.
    :param bandwidth: bytes a second that a master can send, and that it can receive.
    """

    loss: float = 0.0001
    bandwidth: float = 125e6


@dataclass
class Traffic:
    """The traffic so far: requests by method, and bytes in both directions by method."""

    requests: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    asked: Counter[int] = field(default_factory=Counter)
    """Requests by the master that made them."""
    failed: int = 0
    """Calls that had no answer."""


class Host(Protocol):
    """A master as the network sees it."""

    number: int
    region: int
    is_up: bool

    def serve(
        self, caller: int, method: str, payload: Payload, reply: Callable[[Payload], None]
    ) -> None:
        """Answer at once or later, through *reply*."""


class Network:
    """Connects the *hosts* that are added to it."""

    def __init__(self, kernel: Kernel, source: random.Random, conditions: Conditions) -> None:
        self.hosts: list[Any] = []
        self.cut: frozenset[int] = frozenset()
        """Regions that reach no master outside of them."""
        self.traffic = Traffic()
        self._kernel = kernel
        self._random = source
        self._conditions = conditions
        self._sending: dict[int, float] = {}
        self._receiving: dict[int, float] = {}

    def reachable(self, one: Host, other: Host) -> bool:
        """Whether there is a way between them."""
        return one.region == other.region or not {one.region, other.region} & self.cut

    async def call(
        self,
        caller: Host,
        target: Host,
        method: str,
        payload: Mapping[str, Any],
        limit: float,
        connected: bool,
    ) -> Payload:
        """
        The answer of *target*.

        :param limit: seconds after which no answer counts any more.
        :param connected: whether there is a connection; otherwise one is made.
        :raises PeerUnreachable: no answer within *limit*.
        """
        body = wire.pack(payload)
        self.traffic.requests[method] += 1
        self.traffic.asked[caller.number] += 1
        deadline = self._kernel.now + limit

        def arm(resume: Resume) -> None:
            call = _Call(self._kernel, deadline, resume)
            wait = 0.0
            if not connected:
                self.traffic.bytes[method] += HANDSHAKE
                wait = 2 * HANDSHAKE_TRIPS * self._delay(caller, target)

            def reply(answer: Payload) -> None:
                packed = wire.pack(answer)
                size = on_the_wire(ANSWER_HEAD + len(packed))
                self._send(
                    target, caller, method, size, 0.0, lambda: call.end(wire.unpack(packed)), call
                )

            def arrived() -> None:
                target.serve(caller.number, method, wire.unpack(body), reply)
                call.give_up_later()

            size = on_the_wire(REQUEST_HEAD + len(method) + len(body))
            self._send(caller, target, method, size, wait, arrived, call)

        answer = await suspend(arm)
        if answer is None:
            self.traffic.failed += 1
            raise PeerUnreachable(f"master {target.number} timed out")
        return dict(answer)

    def _delay(self, one: Host, other: Host) -> float:
        spread = 1 + self._random.expovariate(1 / JITTER)
        return DELAYS[one.region][other.region] / 1000 * spread

    def _send(
        self,
        one: Host,
        other: Host,
        method: str,
        size: int,
        wait: float,
        arrived: Callable[[], None],
        call: _Call,
    ) -> None:
        kernel, seconds = self._kernel, size / self._conditions.bandwidth
        self.traffic.bytes[method] += size
        sent = max(kernel.now, self._sending.get(one.number, 0.0)) + seconds
        self._sending[one.number] = sent
        lost = self._random.random() < self._conditions.loss

        def comes() -> None:
            if lost or not other.is_up or not self.reachable(one, other):
                call.give_up_later()
                return
            done = max(kernel.now, self._receiving.get(other.number, 0.0)) + seconds
            self._receiving[other.number] = done
            if done - kernel.now < 1e-4:
                arrived()
            else:
                kernel.at(done, lambda: arrived() if other.is_up else call.give_up_later())

        kernel.at(sent + wait + self._delay(one, other), comes)


class _Call:
    """A call under way: it ends once, with an answer, or with None when it is late."""

    def __init__(self, kernel: Kernel, deadline: float, resume: Resume) -> None:
        self._kernel = kernel
        self._deadline = deadline
        self._resume = resume
        self._over = self._limited = False

    def end(self, answer: Payload | None) -> None:
        if not self._over:
            self._over = True
            self._resume(answer)

    def give_up_later(self) -> None:
        if not self._over and not self._limited:
            self._limited = True
            self._kernel.at(max(self._deadline, self._kernel.now), self.end, None)


def on_the_wire(size: int) -> int:
    """Bytes of a message of *size* bytes in TLS records."""
    return size + RECORD_OVERHEAD * (1 + size // RECORD)
