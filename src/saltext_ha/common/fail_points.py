"""
Faults on demand: at a named point this process is killed, finds the disk full, or has to wait.

For tests only. ``point`` does nothing unless the environment variable ``SALTEXT_HA_FAULTS`` named
a file when the process started; no configuration and no peer can set the variable. While the file
is there, its one line says what happens where::

    KILL apply.begin        kill -9 at the first passing of this point from now on
    KILL store.write 2      at the second
    ENOSPC store.write      this error, at every passing while the file is there
    WAIT store.write        as by an unresponsive file system, until the file is gone

The name of a point says what comes next or, at the end of a step, what is done.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path
from typing import Literal, get_args

VARIABLE = "SALTEXT_HA_FAULTS"

Point = Literal[
    # What the store shows, and what peers tell, on its way into replica.db.
    "hold.done",
    "reconcile.begin",
    "reconcile.record",  # in the transaction, before it is committed
    "reconcile.done",  # and what the store may show from now on
    "decide.done",
    # From replica.db to the key store.
    "apply.junk",
    "apply.begin",
    "store.write",  # before each key
    "store.rename",  # before each file; its temporary file is durable
    "store.sync",  # before a folder is made durable
    "store.remove",  # before each key; everything new is durable
    "apply.store",  # the store shows the change, replica.db does not know
    "apply.done",
    "revoke.begin",
    "revoke.rotate",  # the AES key is about to be rotated; no caches are cleaned
    "revoke.clean",  # before caches are cleaned
    "revoke.done",  # replica.db does not know
    "revoke.marked",
    "sign.write",  # the token is noted, the store does not bear it
    "sign.done",  # replica.db does not know
    # A new version of a tree, until it is served.
    "tree.linked",  # the files that other versions have are there
    "tree.staged",  # all of it is durable, and not yet among the versions
    "tree.record",  # a register, in the transaction, before it is committed
    "tree.decided",  # the version is current in replica.db, and served nowhere
    "tree.switch",  # the link is made, and not yet in its place
    "tree.switched",
    # A start.
    "replica.created",
    "replica.node",  # a new name to write under is taken
    "adopt.begin",
    "adopt.record",  # in the transaction, before it is committed
    "adopt.done",
    # Files of identity, trust, invitations and the master key.
    "state.look",  # before the event loop is told how the files are
    "file.rename",  # the temporary file is durable
    "file.sync",  # the name is there, the folder is not durable
    "identity.certificate",  # the key is there
    "identity.drop",  # the certificate is gone, the key is not
    # Joining, on the inviting side.
    "invite.consume",
    "invite.pin",
    "invite.tell",  # before the other members
    "invite.reply",
    # Joining, on the side of the master that joins.
    "join.pin",  # before each member
    "join.done",
    "handover.aside",  # before each half of the old key
    "handover.private",
    "handover.public",
    "handover.done",
    # Going.
    "leave.tell",  # before each peer
    "leave.unpin",  # before each peer
    "leave.done",
    "remove.unpin",  # the removal is noted
    "remove.tell",
]
POINTS: tuple[Point, ...] = get_args(Point)

_orders = os.environ.get(VARIABLE)
_passed: dict[str, int] = {}
_lock = threading.Lock()


def point(name: Point) -> None:
    """
    Pass a point at which a test may want this process to fail.

    :raises OSError: the fault that the test ordered; never otherwise.
    """
    if _orders:
        _pass(_orders, name)


def _pass(orders: str, name: Point) -> None:
    try:
        with open(orders, encoding="utf-8") as file:
            line = file.read().strip()
    except FileNotFoundError:
        return
    if not line:
        return  # about to be written
    what, where, *times = line.split()
    if where != name:
        return
    with _lock:  # several threads pass points
        _passed[line] = _passed.get(line, 0) + 1
        if _passed[line] < int(times[0] if times else 1):
            return
    if what.startswith("E"):
        code = getattr(errno, what)
        raise OSError(code, f"{os.strerror(code)} (ordered at {name})")
    if what == "WAIT":
        while Path(orders).exists():
            time.sleep(0.01)
        return
    os.kill(os.getpid(), signal.Signals[f"SIG{what}"])
