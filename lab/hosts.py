"""
Separate hosts on this machine: network namespaces on one switch, whose cables can be pulled.

A pulled cable is a real partition: packets vanish, and nobody is told. This needs root, and ``ip``
(iproute2).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess

_switches = itertools.count()
CLONE_NEWNET = 0x40000000  # of linux/sched.h


class Switch:
    """
    A switch with the hosts *names*; the end of ``with`` removes all of it.

    :ivar addresses: name → the address of that host; no process elsewhere can use it.
    """

    def __init__(self, *names: str) -> None:
        # At most 15 letters for a network device.
        self._prefix = f"ha{os.getpid() % 10**6}{next(_switches)}"
        self.addresses = {name: f"10.87.0.{number}" for number, name in enumerate(names, 1)}

    def __enter__(self) -> Switch:
        try:
            _ip("netns", "add", self._prefix)
            self._in_switch("link", "add", "switch", "type", "bridge")
            self._in_switch("link", "set", "switch", "up")
            for name, address in self.addresses.items():
                host = self.host(name)
                _ip("netns", "add", host)
                # Make both ends in their namespaces, so that they take no name on this machine.
                end = ("type", "veth", "peer", "name", "eth0", "netns", host)
                self._in_switch("link", "add", name, *end)
                self._in_switch("link", "set", name, "up")
                _ip("-n", host, "link", "set", "lo", "up")
                _ip("-n", host, "link", "set", "eth0", "up")
                _ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
                self.plug(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for namespace in (*map(self.host, self.addresses), self._prefix):
            subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)

    def host(self, name: str) -> str:
        """The network namespace of a host."""
        return f"{self._prefix}-{name}"

    def pull(self, *names: str) -> None:
        """Pull the cables of these hosts: nobody hears them, and they hear nobody."""
        for name in names:
            self._in_switch("link", "set", name, "nomaster")

    def plug(self, *names: str) -> None:
        """Put the cables in again."""
        for name in names:
            self._in_switch("link", "set", name, "master", "switch")

    def _in_switch(self, *arguments: str) -> None:
        _ip("-n", self._prefix, *arguments)


def enter(host: str) -> None:
    """Move this process to *host*; it must have only one thread yet."""
    with open(f"/run/netns/{host}", "rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {host}")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
