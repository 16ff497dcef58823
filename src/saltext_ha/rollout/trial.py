"""
The process that exchanges the file; it outlives the minion that it restarts.

It waits until the job that asked for it has ended, restarts the minion, and watches whether the new
one reaches a master. If it does not, the old file is put back and the minion restarted again. The
evidence is the established connection to a master's publisher, which Salt makes only after a worker
of that master has accepted the minion.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from saltext_ha.common.errors import HaError
from saltext_ha.minion import binding, options, tcp_links
from saltext_ha.minion.restarting import detached, restart
from saltext_ha.minion.restarting.processes import running
from saltext_ha.rollout import record
from saltext_ha.rollout.record import FAILED, KEPT, PUT_BACK, TRYING, RolloutRecord

JOB = 3600.0  # seconds to wait for the end of the job that asks
POLL = 0.5
STEADY = 3  # looks in a row


@dataclass(frozen=True)
class Order:
    """
    The order for the process.

    ``path`` is the file, which has ``new`` in it already; ``old`` what is put back, None for no
    file. ``bus`` is where the minion serves its events. ``minion`` and ``job`` are processes.
    ``timeout`` is how many seconds a restarted minion may take to reach a master. ``revert``:
    whether ``old`` is known at all. ``way`` holds the fields of the
    :class:`~saltext_ha.minion.restarting.restart.Way` to restart this minion.
    """

    conf_file: str
    id: str
    pidfile: str
    bus: str | int
    cachedir: str
    path: str
    new: str
    old: str | None
    minion: int
    job: int
    timeout: float
    way: Mapping[str, Any]
    revert: bool = True


def launch(order: Order) -> None:
    """
    Start the process that carries *order* out, and leave it to itself.

    :raises HaError: it cannot be started; the old file, if it is known, was put back.
    """
    try:
        helper = detached.start(__name__, asdict(order), restart.outside(order.minion))
    except HaError:
        if order.revert:
            _put_back(order)
        raise
    now = RolloutRecord(TRYING, record.digest(order.new), time.time(), "", *helper)
    with contextlib.suppress(OSError):  # a full disk: it is under way anyway
        record.write(order.cachedir, now)


def main() -> None:
    """The process that exchanges the file."""
    order = Order(**detached.take())
    try:
        state, why = carry_out(order)
    except Exception as exc:  # no other place can report it
        state, why = FAILED, f"{type(exc).__name__}: {exc}"
    record.write(order.cachedir, RolloutRecord(state, record.digest(order.new), time.time(), why))


def carry_out(order: Order) -> tuple[str, str]:
    """Try the new file. :return: the resulting state, and why."""
    with contextlib.suppress(psutil.NoSuchProcess):
        try:
            psutil.Process(order.job).wait(JOB)
        except psutil.TimeoutExpired:
            _put_back(order)
            return PUT_BACK, f"the job was not over after {JOB:g} s; the minion was not restarted"

    def opts() -> dict[str, Any]:
        import salt.config

        found: dict[str, Any] = salt.config.minion_config(order.conf_file, minion_id=order.id)
        return found

    def other(ended: int | None) -> Callable[[], int | None]:
        return lambda: running(order.pidfile, order.bus, ended)

    tried = other(order.minion)
    try:
        restart.restart(restart.read(order.way), tried)
        reached = watch(opts(), tried, order.timeout)
        why = "" if reached else f"no master was reached within {order.timeout:g} s"
    # Salt raises SystemExit for a file that it cannot read.
    except (HaError, OSError, SystemExit) as exc:
        reached, why = "", str(exc)
    if reached:
        return KEPT, f"the minion is with {reached}"
    if not order.revert:
        return FAILED, f"{why}; what was in the file before is not known"
    _put_back(order)
    last = tried()
    restart.restart(_again(order, last, opts), other(last))
    reached = watch(opts(), other(last), order.timeout)
    return PUT_BACK, f"{why}; " + (f"it is with {reached} again" if reached else "nor with the old")


def _again(order: Order, last: int | None, opts: Callable[[], Mapping[str, Any]]) -> restart.Way:
    """How to restart the minion with the old file; *last* is its process with the new one."""
    if last is not None:
        with contextlib.suppress(HaError):  # the process may have ended
            return restart.way(last, opts())
    return restart.read(order.way)


def watch(opts: Mapping[str, Any], running: Callable[[], int | None], timeout: float) -> str:
    """
    The master that the minion with *opts* reaches within *timeout* seconds after it has begun to
    look for one; empty for none.
    """
    now = options.running({**opts, "multimaster": False})
    deadline = time.monotonic() + options.startup_delay(opts) + timeout
    steady = 0
    while time.monotonic() < deadline:
        pid = running()
        found = _reached(now, pid) if pid else ""
        steady = steady + 1 if found else 0
        if steady >= STEADY:
            return found
        time.sleep(POLL)
    return ""


def _reached(running: binding.Running, pid: int) -> str:
    links = tcp_links.established(pid)
    for master in binding.locate(running):
        judged = binding.judge(master, links, running)
        if judged.connected:
            return str(master.configured)
        # The publish port is unknown, but there is a connection besides the one for requests.
        ports = {port for ip, port in links.seen or () if ip in master.ips}
        if judged.connected is None and ports - running.request_ports():
            return str(master.configured)
    return ""


def _put_back(order: Order) -> None:
    path = Path(order.path)
    if order.old is None:
        path.unlink(missing_ok=True)
    else:
        record.replace(path, order.old)


if __name__ == "__main__":
    main()
