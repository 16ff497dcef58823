"""
Which process is the running minion, and to what is it connected?

Its established TCP connections are the evidence of its binding (:mod:`saltext_ha.minion.binding`).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from saltext_ha.common.addresses import bare_ip

PROGRAMS = ("salt-minion", "salt-proxy")

Link = tuple[str, int]  # (remote IP address, remote port)


@dataclass(frozen=True)
class TcpLinks:
    """
    The TCP connections of the minion's process. ``seen`` are the established ones, None when they
    cannot be seen; ``sought`` those that it is still opening.
    """

    seen: frozenset[Link] | None
    note: str | None = None
    sought: frozenset[Link] = frozenset()


def minion_pid(pidfile: str, bus: str | int, *, caller: bool, forks: bool) -> int | None:
    """
    The process id of the running minion, whose connections are the evidence.

    The name of a process proves nothing, nor does a number in a file. The minion is the process
    that serves its event bus: no other process can while it runs, and each minion of a host has its
    own bus.

    *pidfile* and *bus* are the minion's; *bus* is where it listens for events: the path of a
    socket, or a TCP port; *caller* is True in salt-call, which is another process than the minion;
    *forks* is the minion's ``multiprocessing`` setting. None: no such process is running.
    """
    try:
        written = int(Path(pidfile).read_text(encoding="ascii"))
    except (OSError, ValueError):
        written = 0
    if not caller:
        return _above(bus, written) or _near(written, forks)
    with contextlib.suppress(psutil.Error, ValueError):
        process = psutil.Process(written)
        try:
            found = _serves(process, bus)
        except (psutil.AccessDenied, PermissionError):
            # A user who may not look at the process can neither see its connections nor end it.
            found = any(Path(word).name in PROGRAMS for word in process.cmdline()[:2])
        return written if written and found else None
    return None


def inherits(bus: str | int) -> bool:
    """Whether this process, a fork of the minion that serves *bus*, has copies of its sockets."""
    try:
        return _serves(psutil.Process(), bus)
    except (psutil.Error, OSError):
        return False


def _above(bus: str | int, written: int) -> int | None:
    """
    This process or one above it: the topmost that serves *bus*. Forks have its sockets, too.

    The kernel shows a minion that Salt started as root, and that changed to its ``user:``, to root
    alone, and not to its own jobs: then it is process *written*, of whose sockets they have copies.
    """
    found = None
    for process in (own := psutil.Process(), *own.parents()):
        try:
            serves = _serves(process, bus)
        except (psutil.AccessDenied, PermissionError):
            if process.pid == written:
                return written
            continue
        except (psutil.Error, OSError):
            serves = False
        if found and not serves:
            break
        found = process.pid if serves else None
    return found


def _near(written: int, forks: bool) -> int:
    """The likely process of the minion, if its bus cannot be seen."""
    # Not this process: a long job keeps copies of sockets that the minion has closed. And a nested
    # job is more than one parent away.
    near = (os.getpid(), os.getppid())
    if written in near or written in {each.pid for each in psutil.Process().parents()}:
        return written
    return near[1] if forks else near[0]


def _serves(process: psutil.Process, bus: str | int) -> bool:
    if isinstance(bus, str):
        return bool(bus) and any(each.laddr == bus for each in _sockets(process, "unix"))
    listening = [each for each in _sockets(process, "tcp") if each.status == psutil.CONN_LISTEN]
    return any(each.laddr.port == bus for each in listening)


def _sockets(process: psutil.Process, kind: str) -> list[Any]:
    # Renamed in psutil 6.
    new = hasattr(process, "net_connections")
    found: list[Any] = getattr(process, "net_connections" if new else "connections")(kind=kind)
    return found


def started_at(pid: int) -> float | None:
    """The Unix time when process *pid* started; None: it has ended."""
    with contextlib.suppress(psutil.Error):
        return float(psutil.Process(pid).create_time())
    return None


def established(pid: int) -> TcpLinks:
    """The remote ends of all established TCP connections of process *pid*."""
    try:
        every = _sockets(psutil.Process(pid), "tcp")

        def ends(status: str) -> frozenset[Link]:
            found = [each.raddr for each in every if each.status == status and each.raddr]
            return frozenset((ip, port) for text, port in found if (ip := bare_ip(text)))

        return TcpLinks(ends(psutil.CONN_ESTABLISHED), sought=ends(psutil.CONN_SYN_SENT))
    except (psutil.Error, OSError) as exc:
        denied = isinstance(exc, psutil.AccessDenied)
        root = "; only root may see them (salt-call --priv=root)" if denied else ""
        return TcpLinks(None, f"cannot see the connections of the minion (pid {pid}): {exc}{root}")
