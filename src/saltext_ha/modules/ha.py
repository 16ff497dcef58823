"""
On which master does this minion hang, and are its masters alive?

:depends: nothing but Salt; needs no engine and no configuration of its own
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import salt.config
import salt.crypt
from salt.exceptions import SaltInvocationError

from saltext_ha import binding

if TYPE_CHECKING:
    __opts__: dict[str, Any]
    __context__: dict[str, Any]

__virtualname__ = "ha"
__outputter__ = {"lint": "ha"}


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
    running = _running(sent_by=kwargs.get("__pub_master_id"))
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
    running = _running()
    known = binding.masters(running, _links(running))
    rows = [master.row() for master in known]
    if ping:
        for row, answer in zip(rows, binding.ping_all(__opts__, known, limit), strict=True):
            row["ping"] = answer
    return rows


def lint(only: str = "", ignore: str = "") -> dict[str, Any]:
    """
    Known traps in the configuration files of this minion. Needs no master: ``salt-call --local``.

    only
        Codes of the rules to ask, as ``HA101,HA201``.

    ignore
        Codes of rules to leave out, besides those of ``ha: lint: ignore:`` in the minion's
        configuration.

    Returns a dictionary, of the same shape as that of the runner function ``ha.lint``: ``status``
    (clean, findings, unknown), ``findings`` (code, severity, on, file, line, option, title, detail,
    why, fix, versions), ``counts`` by severity, ``ignored``, ``unknown``. The return code is 2
    where something could not be looked at, 1 with errors or warnings, else 0; ``salt-call`` ends
    with it when called with ``--retcode-passthrough``.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.lint
        salt-call --local --retcode-passthrough ha.lint ignore=HA109
    """
    from saltext_ha.errors import HaError
    from saltext_ha.lint import ask

    try:
        answer = ask.minion(__opts__, only, ignore)
    except HaError as exc:
        answer = {"kind": "error", "error": str(exc), "retcode": 2}
    __context__["retcode"] = answer["retcode"]
    return answer


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


def _running(sent_by: Any = None) -> binding.Running:
    """The values that :mod:`saltext_ha.binding` works on, out of Salt's dunders."""
    caller = bool(__opts__.get("caller"))
    entries, default_port, note = _configured()
    # No single master: a minion that has lost all of them, and salt-call --local.
    nobody = isinstance(__opts__.get("master"), list) or "master_uri" not in __opts__
    nobody = nobody or (caller and __opts__.get("file_client") == "local")
    ip = None if nobody else binding.bare_ip(str(__opts__.get("master_ip")))
    return binding.Running(
        entries=tuple(map(str, entries)) if isinstance(entries, list) else (str(entries),),
        listed=isinstance(entries, list),
        master_type=str(__opts__.get("master_type", "str")),
        default_port=default_port,
        host=str(__opts__.get("master")) if ip else None,
        ip=ip,
        port=_port(__opts__.get("master_port")) if ip else None,
        publish_port=_own_publish_port(),
        told=binding.told_ports(salt.crypt.AsyncAuth.creds_map),
        caller=caller,
        sent_by=str(sent_by) if sent_by else None,
        note=note,
    )


def _port(value: Any) -> int:
    """*value*, or the default where it is unset or nonsense, as Salt would not start with it."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return binding.DEFAULT_REQUEST_PORT


def _own_publish_port() -> int | None:
    # Salt takes 4506 for "not set" and then uses what the master tells.
    port = _port(__opts__.get("publish_port"))
    return None if port == binding.DEFAULT_REQUEST_PORT else port


def _configured() -> tuple[Any, int, str | None]:
    """The masters as written, the request port where an entry names none, and a note."""
    port = _port(__opts__.get("master_port"))
    now = __opts__.get("master_list") or __opts__.get("master") or []
    if not __opts__.get("multimaster") or isinstance(now, list):
        return now, port, None
    # One of the Minion objects of a minion process: it knows its own master only.
    path = str(__opts__.get("conf_file") or "")
    written = _read(path)
    if written is None:
        note = f"cannot read {path or 'the configuration file'}; there may be more masters"
        return now, port, note
    masters = written.get("master")
    return masters if isinstance(masters, list) else now, _port(written.get("master_port")), None


def _read(path: str) -> dict[str, Any] | None:
    """The configuration file and what it includes, without defaults; None when unreadable."""
    if not Path(path).is_file():  # load_config would write one
        return None
    written: dict[str, Any] = salt.config.load_config(path, "", "", exit_on_config_errors=False)
    if "conf_file" not in written:
        return None
    for pattern in (written.get("default_include", "minion.d/*.conf"), written.get("include", [])):
        written.update(
            salt.config.include_config(pattern, path, verbose=False, exit_on_config_errors=False)
        )
    return written
