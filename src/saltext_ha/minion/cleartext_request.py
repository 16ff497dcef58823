"""
Clear text requests to a master, over a separate connection.

Salt's minions send such requests before they are accepted: the transport needs no key and
authenticates nothing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def ask(
    channel_opts: Mapping[str, Any],
    ips: Iterable[str],
    port: int,
    load: Mapping[str, Any],
    timeout: float,
    source: str | None = None,
) -> Any:
    """
    The reply of the master at *ips* and *port* to *load*.

    *channel_opts* is the minion's configuration, from which Salt builds its transport; *timeout* is
    in seconds, for the whole request; *source* the address to ask from, None for any.

    :raises Exception: there was no reply; many kinds, from Salt's transports and the network.
    """
    from salt.channel.client import ReqChannel  # heavy, and seldom needed

    opts = dict(channel_opts)
    opts.pop("source_ret_port", None)  # in use by the minion itself
    end = time.monotonic() + timeout
    # ZeroMQ waits for the whole timeout even if no process listens; TCP knows at once.
    ip = reachable(ips, port, timeout, source)
    opts.update(where(ip, port))
    left = max(0.1, end - time.monotonic())
    if opts.get("transport") == "ws":
        # In a thread of its own: it leaves a thread without an event loop.
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(asyncio.run, _by_websocket(opts, load, left)).result()
    with ReqChannel.factory(opts, crypt="clear") as channel:
        return channel.send(dict(load), tries=1, timeout=left)


async def _by_websocket(opts: Mapping[str, Any], load: Mapping[str, Any], timeout: float) -> Any:
    """The reply over ``ws``, where Salt 3007 and 3008 wait for ever, whatever *timeout* says."""
    from salt.channel.client import AsyncReqChannel

    channel = AsyncReqChannel.factory(opts, crypt="clear")
    transport = channel.transport
    request = channel._package_load(dict(load))
    try:
        return await asyncio.wait_for(transport.send(request), timeout)
    except asyncio.TimeoutError:
        raise TimeoutError("timed out") from None
    finally:
        # First this: to close the channel waits for the master, too.
        if transport.session:
            await transport.session.close()
        channel.close()
        await transport.close_task


def where(ip: str, port: int) -> dict[str, Any]:
    """The options by which Salt knows a master."""
    host = f"[{ip}]" if ":" in ip else ip
    return {"master_ip": host, "master_port": port, "master_uri": f"tcp://{host}:{port}"}


def reachable(ips: Iterable[str], port: int, timeout: float, source: str | None) -> str:
    """The first of *ips* that accepts a connection. :raises OSError: as :func:`connect`."""
    with connect(ips, port, timeout, source) as sock:
        return str(sock.getpeername()[0])


def connect(
    ips: Iterable[str], port: int, timeout: float, source: str | None = None
) -> socket.socket:
    """
    A connection to the first of *ips* that accepts one, IPv4 first, as Salt chooses (``dns_check``
    in ``salt/utils/network.py``): a name may have addresses where nothing listens.

    :raises OSError: none accepts one; the error of the last.
    """
    ordered = sorted(ips, key=lambda ip: (":" in ip, ip))
    problem: OSError = OSError("it has no address")
    for ip in ordered:
        try:
            begin = (source, 0) if source and (":" in source) == (":" in ip) else None
            return socket.create_connection((ip, port), timeout / len(ordered), begin)
        except OSError as exc:
            problem = exc
    raise problem
