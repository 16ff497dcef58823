"""
Writes to the socket of Salt's event bus without Salt's client for it.

That client starts a thread and an event loop for each event (``SyncWrapper``; 3007 and 3008 two of
each), which takes more processor time than replicating the key that the event is about. Salt still
makes the event, and the frame in which it travels.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import salt.transport.frame
import salt.utils.event

# Seconds: a bus that takes nothing for so long counts as broken.
BROKEN_AFTER = 5.0
# In salt.utils.event and salt.transport.base, 3006 to 3008.
SOCKET, PUBLISHER = "master_event_pull.ipc", "master_event_pub.ipc"
LOOPBACK, LOOPBACK_6 = "127.0.0.1", "::1"


def may_be_heard(opts: Mapping[str, Any]) -> bool:
    """
    Whether the bus of the master with *opts* may have listeners.

    Without a bus, Salt's client would load all of salt-master, to look for the bus once a second.
    """
    by_tcp = opts.get("ipc_mode") == "tcp"
    return by_tcp or Path(opts["sock_dir"], PUBLISHER).exists()


class BusSocket:
    """The bus of the master with *opts*; for one thread."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = dict(opts)
        self._socket: socket.socket | None = None
        self._made = _Made()
        self._events = salt.utils.event.get_event(
            "master", sock_dir=self._opts["sock_dir"], opts=self._opts, listen=False
        )
        # In the place of Salt's client.
        self._events.pusher, self._events.cpush = self._made, True

    def framed(self, tag: str, data: dict[str, Any]) -> bytes:
        """
        An event in its frame.

        :raises Exception: it cannot be encoded; many kinds.
        """
        self._events.fire_event(data, tag)
        framed: bytes = salt.transport.frame.frame_msg_ipc(self._made.message, raw_body=True)
        return framed

    def send(self, framed: bytes) -> bool:
        """Whether the bus took it; if not, the next call connects anew."""
        try:
            if self._socket is None or _is_closed(self._socket):
                self._disconnect()
                self._socket = self._connect()
            self._socket.sendall(framed)
        except OSError:
            self._disconnect()
            return False
        return True

    def close(self) -> None:
        self._disconnect()
        self._events.destroy()

    def _connect(self) -> socket.socket:
        if self._opts.get("ipc_mode") == "tcp":
            host = LOOPBACK_6 if self._opts.get("ipv6") else LOOPBACK
            return socket.create_connection(
                (host, self._opts["tcp_master_pull_port"]), BROKEN_AFTER
            )
        found = socket.socket(socket.AF_UNIX)
        try:
            found.settimeout(BROKEN_AFTER)
            found.connect(str(Path(self._opts["sock_dir"]) / SOCKET))
        except OSError:
            found.close()
            raise
        return found

    def _disconnect(self) -> None:
        if self._socket:
            self._socket.close()
        self._socket = None


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other end is closed: over TCP one more message could be sent, and lost."""
    ready = select.poll()
    ready.register(connection, select.POLLIN)
    return bool(ready.poll(0))  # a bus sends nothing here


class _Made:
    """Keeps the event that Salt has made, instead of sending it."""

    message = b""

    def publish(self, message: bytes) -> None:
        """The method of Salt's client on 3007 and 3008."""
        self.message = message

    send = publish  # on 3006

    def close(self) -> None:
        """There is nothing to close."""
