"""
Chooses the loopback addresses and ports of a lab.

Production masters have different addresses and the same ports, and some of Salt's checks only work
that way. So each master here gets its own address in 127.0.0.0/8, and all use one set of ports.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

# Below the range from which the kernel takes ports for outgoing connections.
FIRST_PORT, LAST_PORT = 20000, 31000
PORTS = 6  # as many as Ports has
CLAIMS = 64  # more single ports than a test needs


@dataclass(frozen=True)
class Ports:
    """The ports that all masters of one lab share."""

    publish: int
    ret: int
    peer: int
    status: int
    api: int
    cluster: int


def is_free(address: str, port: int) -> bool:
    """Whether a process can listen on *address*:*port* now."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, port))
        except OSError:
            return False
    return True


_given: set[int] = set()
_claims: deque[socket.socket] = deque()


def free_port() -> int:
    """
    A TCP port on which nobody listens at present, and which this process was not given before.

    It is below the ports of outgoing connections, as one of these might take it meanwhile. A port
    stays free for a while before a process listens on it, and while that is restarted; so the last
    ones that a process was given are claimed, and other processes of tests that run side by side
    are given others. The claim is a name that the kernel forgets when the process ends.
    """
    while True:
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        if port in _given or not is_free("127.0.0.1", port):
            continue
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0port {port} of a lab")
        except OSError:
            claim.close()
            continue
        _given.add(port)
        _claims.append(claim)
        if len(_claims) > CLAIMS:
            _claims.popleft().close()
        return port


# Successive labs of one process use different addresses: connections of the last lab linger
# (TIME_WAIT), and the next one would meet them.
_labs = itertools.count()


class Network:
    """
    A /24 of loopback addresses that belongs to one lab, and a set of ports free on them.

    The lab owns the /24 by listening on its last address as long as it lives. So two labs never
    share a /24, even if their pids map to the same one, and even before anything is started.
    """

    def __init__(self) -> None:
        self._owner, self.prefix, base = _claim(os.getpid() + next(_labs) * 10007)
        self.ports = Ports(*range(base, base + PORTS))
        self._last = 0

    def address(self) -> str:
        """
        The next address on which all ports are free.

        :raises RuntimeError: the /24 is used up.
        """
        while self._last < 250:
            self._last += 1
            address = f"{self.prefix}.{self._last}"
            if all(is_free(address, port) for port in vars(self.ports).values()):
                return address
        raise RuntimeError(f"no address left in {self.prefix}.0/24 for another master")

    def close(self) -> None:
        """Give the /24 back."""
        self._owner.close()


def _claim(seed: int) -> tuple[socket.socket, str, int]:
    """A socket that owns a /24, the /24's first three numbers, and the first of its ports."""
    for prefix, base in _candidates(seed):
        owner = socket.socket()
        try:
            owner.bind((f"{prefix}.254", base))
            owner.listen(1)
        except OSError:
            owner.close()
            continue
        if all(is_free(f"{prefix}.1", base + offset) for offset in range(PORTS)):
            return owner, prefix, base
        owner.close()
    raise RuntimeError("no free loopback addresses and ports in 127.0.0.0/8")


def _candidates(seed: int) -> Iterator[tuple[str, int]]:
    # 127.0 is left to other programs; the search in the rest begins at a place that differs by pid.
    slots = (LAST_PORT - FIRST_PORT) // 10
    for attempt in range(1000):
        number = seed + attempt * 7919
        second, third = 1 + (number // 256) % 254, number % 256
        yield f"127.{second}.{third}", FIRST_PORT + (number % slots) * 10
