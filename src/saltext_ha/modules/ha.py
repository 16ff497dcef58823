"""
On which master does this minion hang, and are its masters alive?

:depends: nothing but Salt; needs no engine and no configuration of its own
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from salt.exceptions import SaltInvocationError

from saltext_ha import binding, minion_opts

if TYPE_CHECKING:
    __opts__: dict[str, Any]

__virtualname__ = "ha"


def __virtual__() -> str:
    return __virtualname__


def current_master(ping: bool = False, timeout: float = 3, **kwargs: Any) -> dict[str, Any]:
    """
    The master this minion hangs on.

    With several masters at once (hot-hot) it is the master that asked; see :py:func:`masters` for
    all. In ``salt-call`` the running minion is meant, not salt-call's own connection; a hot-hot
    minion then names the master that salt-call spoke to.

    ping
        Also send the master a request that only a working master answers.

    timeout
        Seconds to wait for that answer.

    Returns a dictionary:

    ``address``, ``port``, ``publish_port``
        of the master, the address as it is configured, ``port`` being the request port (4506)
    ``id``
        of the master, which Salt does not tell a minion by itself: known in jobs of a master whose
        configuration has a ``master_id``, otherwise None
    ``type``
        ``str`` (one master), ``list`` (hot-hot), ``failover``, ``distributed``, ``func``,
        ``disable``
    ``masters``
        all masters as written in the minion's configuration
    ``connected``
        True when the minion's process holds an established connection to the master's publisher,
        False when it does not, None when that cannot be known. A master that hangs keeps its
        connections: use *ping*.
    ``ping``
        only with *ping*: ``{"answers": True, "milliseconds": 3.1}``
    ``note``
        why something is unknown

    CLI Example:

    .. code-block:: bash

        salt '*' ha.current_master
        salt '*' ha.current_master ping=True timeout=2
        salt-call ha.current_master
    """
    limit = _seconds(timeout)
    # Salt adds what came with the job as __pub_…; anything else is a mistyped argument.
    unknown = [name for name in kwargs if not name.startswith("__")]
    if unknown:
        raise SaltInvocationError(f"{', '.join(unknown)}: takes only ping and timeout")
    running = minion_opts.running(__opts__, sent_by=kwargs.get("__pub_master_id"))
    answer, current = binding.current_master(running, _links(running))
    if ping and current:
        answer["ping"] = binding.ping_all(__opts__, [current], limit)[0]
    elif ping:
        answer["ping"] = {"answers": None, "milliseconds": None, "note": "no current master"}
    return answer


def masters(ping: bool = False, timeout: float = 3) -> list[dict[str, Any]]:
    """
    All masters of this minion, in the order of its configuration.

    ping
        Also send each master a request, all at the same time.

    timeout
        Seconds to wait for the answers.

    Returns a list of dictionaries with ``address``, ``port``, ``publish_port``, ``configured``
    (the entry as written), ``current``, ``connected`` and, where there is something to say,
    ``note``; with *ping* also ``ping``. Their meaning is that of :py:func:`current_master`.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.masters
        salt '*' ha.masters ping=True timeout=2
    """
    limit = _seconds(timeout)
    running = minion_opts.running(__opts__)
    known = binding.masters(running, _links(running))
    rows = [master.row() for master in known]
    if ping:
        for row, answer in zip(rows, binding.ping_all(__opts__, known, limit), strict=True):
            row["ping"] = answer
    return rows


def _seconds(timeout: Any) -> float:
    try:
        seconds = float(timeout)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds <= 300:
        raise SaltInvocationError(f"timeout: {timeout!r} takes seconds, more than 0, at most 300")
    return seconds


def _links(running: binding.Running) -> binding.Links:
    pidfile = str(__opts__.get("pidfile") or "")
    forks = bool(__opts__.get("multiprocessing", True))
    pid = binding.minion_pid(pidfile, caller=running.caller, forks=forks)
    if pid is None:
        return binding.Links(None, f"no running minion found (pidfile {pidfile})")
    return binding.established(pid)
