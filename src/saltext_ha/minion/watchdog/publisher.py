"""
Does a master's publisher work?

A minion's connection to it stays established as long as the kernels at both ends keep it, even if
the publisher or the network fails. Over ZeroMQ the publisher greets each connection before it is
asked anything; so a short connection shows whether it works. The transports ``tcp`` and ``ws`` have
no greeting: this shows nothing about them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from saltext_ha.common.errors import reason_of
from saltext_ha.minion import cleartext_request
from saltext_ha.minion.binding import SeenMaster

# RFC 23 (ZMTP 3.0), "signature".
SIGNATURE = 10
FIRST, LAST = 0xFF, 0x7F


def problems(
    transport: str, masters: Iterable[SeenMaster], timeout: float, source: str | None = None
) -> dict[str, str]:
    """
    The masters whose publisher does not greet: entry → what is wrong.

    All are tried at the same time. Masters that cannot be judged are left out: with another
    *transport* than ``zeromq``, or without a known publish port.

    :param timeout: in seconds, for all of it.
    :param source: the address to connect from, None for any.
    """
    known = [each for each in masters if each.ips and each.publish_port]
    if transport != "zeromq" or not known:
        return {}
    with ThreadPoolExecutor(max_workers=len(known)) as pool:
        found = pool.map(lambda each: problem(each, timeout, source), known)
        return {str(each.configured): why for each, why in zip(known, found, strict=True) if why}


def reached(
    transport: str, masters: Sequence[SeenMaster], timeout: float, source: str | None = None
) -> list[bool | None]:
    """
    Whether the publisher of each of *masters* can be reached, all tried at the same time: over
    ``zeromq`` it greets, with another *transport* it accepts a connection. None: its port is not
    known.

    :param timeout: in seconds, for all of it.
    :param source: the address to connect from, None for any.
    """

    def one(master: SeenMaster) -> bool | None:
        if not master.ips or not master.publish_port:
            return None
        if transport == "zeromq":
            return problem(master, timeout, source) is None
        try:
            cleartext_request.connect(master.in_use, master.publish_port, timeout, source).close()
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(max_workers=max(1, len(masters))) as pool:
        return list(pool.map(one, masters))


def problem(master: SeenMaster, timeout: float, source: str | None = None) -> str | None:
    """What is wrong with the publisher of *master*; None: it greets."""
    end, port = time.monotonic() + timeout, master.publish_port or 0
    try:
        with cleartext_request.connect(master.in_use, port, timeout, source) as sock:
            greeting = _read(sock, end)
    except TimeoutError:
        return f"its publisher (port {port}) says nothing"
    except OSError as exc:
        return f"its publisher (port {port}): {reason_of(exc)}"
    if len(greeting) < SIGNATURE or (greeting[0], greeting[-1]) != (FIRST, LAST):
        return f"its publisher (port {port}) does not speak ZeroMQ"
    return None


def _read(sock: socket.socket, end: float) -> bytes:
    """The signature, or what came before the other side closed the connection."""
    data = b""
    while len(data) < SIGNATURE:
        sock.settimeout(max(0.01, end - time.monotonic()))
        piece = sock.recv(SIGNATURE - len(data))
        if not piece:
            break
        data += piece
    return data
