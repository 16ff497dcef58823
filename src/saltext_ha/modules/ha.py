"""
Which master is this minion connected to, and are its masters alive?

:depends: nothing but Salt; needs no engine and no configuration of its own

.. versionadded:: 0.1.0
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from salt.exceptions import SaltInvocationError

from saltext_ha.common.addresses import bare_ip
from saltext_ha.common.errors import HaError
from saltext_ha.common.version import installed_at, ours
from saltext_ha.minion import (
    arguments,
    binding,
    evidence,
    files,
    options,
    pings,
    tcp_links,
    windows,
)
from saltext_ha.minion.restarting import processes
from saltext_ha.minion.watchdog import journal
from saltext_ha.salt_bus import proof

if TYPE_CHECKING:
    __opts__: dict[str, Any]
    __context__: dict[str, Any]


__virtualname__ = "ha"
__outputter__ = dict.fromkeys(
    ("lint", "current_master", "masters", "ping_masters", "failover", "version"), "ha"
)


def __virtual__() -> str | tuple[bool, str]:
    return windows.virtual(__virtualname__)


def current_master(ping: bool = False, timeout: float = 3, **kwargs: Any) -> dict[str, Any]:
    """
    The master that this minion is connected to.

    With several masters at once (hot-hot) it is the master that asked; see :py:func:`masters` for
    all. In ``salt-call`` the running minion is meant, not salt-call's own connection; a hot-hot
    minion then names the master that salt-call spoke to.

    ping
        Also send the master a request that only a working master answers.

    timeout
        Seconds to wait for that answer.

    People see a line; the return, and ``--out=json``, is a dictionary:

    ``kind``
        ``current_master``
    ``address``, ``port``, ``publish_port``
        of the master, the address as it is configured, ``port`` being the request port (4506)
    ``ip``
        the address that the minion's connections lead to, where ``address`` is a name; None where
        it has several and no connection tells which
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
        False when it does not, None when that is unknown. An unresponsive master keeps its
        connections: use *ping*.
    ``ping``
        only with *ping*: ``{"answers": True, "milliseconds": 3.1}``
    ``since``, ``since_iso``, ``switches``
        only with the engine ``ha_watchdog``: since when the minion's process is connected to it, as
        Unix time and as local time like ``2026-03-01T14:05:09+0100``; and how often the minion has
        changed its master within the last hour, including restarts of its process
    ``version``
        of the saltext-ha that is installed on the minion
    ``note``
        why something is unknown, or contradictory: "authenticated to m2, subscribed to m1"

    CLI Example:

    .. code-block:: bash

        salt '*' ha.current_master
        salt '*' ha.current_master ping=True timeout=2
        salt-call ha.current_master
    """
    limit, ping = arguments.seconds(timeout), arguments.switch("ping", ping)
    sent = arguments.sent(kwargs, "ping and timeout")
    running = options.running(__opts__, sent_by=sent.get("__pub_master_id"))
    links = _links(running)
    answer, current = binding.current_master(running, links)
    answer["version"] = ours()
    if ping and current:
        answer["ping"] = pings.ping_all(__opts__, [current], limit)[0]
    elif ping:
        answer["ping"] = {"answers": None, "milliseconds": None, "note": "no current master"}
    if current is None:
        return answer
    known = binding.masters(running, links) if current.connected is False else [current]
    _note(answer, evidence.remark(current, known, links, running, answer.get("ping")))
    _note(answer, _unkept())
    return answer | _past(running, current)


def masters(ping: bool = False, timeout: float = 3) -> list[dict[str, Any]]:
    """
    All masters of this minion, in the order of its configuration.

    ping
        Also send each master a request, and connect to its publisher, all at the same time.

    timeout
        Seconds to wait for the answers.

    People see a line; the return, and ``--out=json``, is a list of dictionaries with ``address``,
    ``ip``, ``port``, ``publish_port``, ``configured`` (the entry as written), ``current``,
    ``connected`` and, if there is anything to add, ``note``; with *ping* also ``ping``. Their
    meaning is that of :py:func:`current_master`. With *ping* there is ``publishes``, too: whether
    its publisher greets a new connection (with another transport than ``zeromq``: whether it
    accepts a connection). A master that this minion never met is assumed to have the publish port
    of the others; None when that is not known.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.masters
        salt '*' ha.masters ping=True timeout=2
    """
    limit, ping = arguments.seconds(timeout), arguments.switch("ping", ping)
    running = options.running(__opts__)
    links = _links(running)
    known = binding.masters(running, links)
    rows = [master.row() for master in known]
    if ping:
        with ThreadPoolExecutor(max_workers=1) as beside:
            speaking = beside.submit(_publishing, known, limit)
            for row, answer in zip(rows, pings.ping_all(__opts__, known, limit), strict=True):
                row["ping"] = answer
            for row, speaks in zip(rows, speaking.result(), strict=True):
                row["publishes"] = speaks
    for row, master in zip(rows, known, strict=True):
        _note(row, evidence.remark(master, known, links, running, row.get("ping")))
    return rows


def ping_masters(timeout: float = 3) -> list[dict[str, Any]]:
    """
    Do the masters of this minion answer it? All are asked at the same time.

    timeout
        Seconds to wait for the answers.

    People see a line; the return, and ``--out=json``, is a list of dictionaries, a master each in
    the order of the configuration:

    ``address``, ``port``
        where its requests go
    ``current``
        whether it is the minion's current master
    ``answers``
        True: one of its workers has answered; False: none has; None: there was no address to ask
    ``milliseconds``
        how long that took; None without an answer
    ``note``
        why it did not answer

    The return code is 0 when all have answered, 1 when one has not, 2 when one could not be asked,
    or none is known.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.ping_masters
        salt-call --retcode-passthrough ha.ping_masters timeout=1
    """
    limit = arguments.seconds(timeout)
    running = options.running(__opts__)
    known = binding.masters(running, _links(running))
    rows = [
        {"address": each.host, "port": each.port, "current": each.current} | answer
        for each, answer in zip(known, pings.ping_all(__opts__, known, limit), strict=True)
    ]
    answers = [row["answers"] for row in rows]
    __context__["retcode"] = 2 if None in answers or not rows else int(False in answers)
    return rows


def version() -> dict[str, Any]:
    """
    Which saltext-ha is installed on this minion?

    People see a line; the return, and ``--out=json``, is a dictionary: ``kind`` (``version``);
    ``version``; ``started``, since when the minion's process runs, as Unix time; ``process``: its
    id, and when it started by a clock that cannot be set; and ``outdated``: whether its engine
    ``ha_watchdog`` began before that version was installed, and the minion has to be restarted. The
    last three are None if no minion runs.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.version
    """
    pid = options.pid(__opts__)
    started = tcp_links.started_at(pid) if pid else None
    watchdog = "ha_watchdog" in str(__opts__.get("engines"))
    return {
        "kind": "version",
        "version": ours(),
        "started": started,
        "process": (known := processes.find(pid)) and list(known),
        # A time in the future is one from before the clock was set back.
        "outdated": started and watchdog and started < installed_at() <= time.time(),
    }


def lint(only: str = "", ignore: str = "") -> dict[str, Any]:
    """
    Known traps in the configuration files of this minion. Needs no master: ``salt-call --local``.

    only
        Codes of the rules to check, such as ``HA101,HA201``; not those about masters.

    ignore
        Codes of rules to leave out, besides those of ``ha: lint: ignore:`` in the minion's
        configuration.

    Returns a dictionary, of the same shape as the runner function ``ha.lint``: ``status`` (clean,
    findings, unknown), ``findings`` (code, severity, on, file, line, option, title, detail, why,
    fix, versions), ``counts`` by severity, ``ignored``, ``unknown``. The return code is 2 if
    something could not be checked, 1 with errors or warnings, else 0; ``salt-call`` ends with it
    when called with ``--retcode-passthrough``.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.lint
        salt-call --local --retcode-passthrough ha.lint ignore=HA109
    """
    from saltext_ha.lint import ask

    try:
        if options.is_of_salt_ssh(__opts__):
            raise HaError(f"{options.SALT_SSH}; run  salt-call --local ha.lint  on that host")
        answer = ask.minion(__opts__, only, ignore)
    except HaError as exc:
        answer = {"kind": "error", "error": str(exc), "retcode": 2}
    __context__["retcode"] = answer["retcode"]
    return answer


def failover_report(timeout: float = 5, **kwargs: Any) -> dict[str, Any]:
    """
    What ``salt-run ha.failover_safe`` asks of each minion: could it do without one of its masters?

    timeout
        Seconds that each of its masters has to answer; all are asked at once.

    Returns a dictionary: ``lint`` (:py:func:`lint`), ``masters`` (:py:func:`masters` with
    ``ping=True``), ``current_master`` (:py:func:`current_master`), and
    ``verify_master_pubkey_sign``, whether the minion verifies its masters' signature of their key.

    CLI Example:

    .. code-block:: bash

        salt '*' ha.failover_report
    """
    sent = arguments.sent(kwargs, "timeout")
    report = {
        "current_master": current_master(**sent),
        "masters": masters(ping=True, timeout=timeout),
        "lint": lint(),
        "verify_master_pubkey_sign": bool(__opts__.get("verify_master_pubkey_sign")),
    }
    # A finding is an answer, not a failure of this job.
    __context__["retcode"] = 0
    return report


def failover(to: str | None = None, test: bool | None = None) -> dict[str, Any]:
    """
    Move this minion to another of its masters now, for planned work on its current one.

    It moves when the job has returned, and stays: the watchdog, if it runs, does not move it back
    to a preferred master unless the new one stops working. Running jobs continue. Only for
    ``master_type: failover`` and ``distributed``; other minions are connected to all their masters.

    to
        The master to move to: an entry of the minion's configuration, its host or the first part of
        that (``m2`` of ``m2.example.com``), its IP address, a name for it that the minion can look
        up, or its name in the group (``ha: name``), if ``ha_masters`` in the minion's configuration
        has it, as in the file that ``ha.minion_config`` prints. ``salt-run ha.peers`` shows where
        each is. Default: the next one that answers.

    test
        Say what would be done, and do nothing.

    People see a line; the return, and ``--out=json``, is a dictionary with ``from``, ``to``,
    ``result`` (True: on its way; None: test mode, or it is there already, as the comment says;
    False: not possible) and ``comment``. Salt's return code is 1 unless ``result`` is True. The
    event ``salt/ha/minion/ID/failover`` on the new master, and :py:func:`current_master` there,
    tell that it has arrived.

    CLI Example:

    .. code-block:: bash

        salt 'web*' ha.failover
        salt 'web*' ha.failover to=10.0.0.2 test=True
        salt 'web*' ha.failover to=m2
    """
    from saltext_ha.minion.watchdog import request, run

    answer: dict[str, Any] = {"from": None, "to": to, "result": False}
    try:
        trial = bool(__opts__.get("test")) if test is None else arguments.switch("test", test)
        if (pid := options.pid(__opts__)) is None:
            raise HaError(_no_minion())
        place = run.site(__opts__, lambda: tcp_links.established(pid), request.TIMEOUT)
        plan = request.plan(place, to)
        answer |= {"from": plan.source, "to": plan.target}
        if unkept := _unkept():
            raise HaError(f"not moved: {unkept}")
        if plan.source == plan.target:
            comment = f"nothing to do: the minion is with {plan.target} already"
            return answer | {"result": None, "comment": comment}
        if trial:
            comment = f"test: would move from {plan.source} to {plan.target}"
            return answer | {"result": None, "comment": comment}
        job = processes.job_of(os.getpid(), pid)
        request.launch(__opts__, plan.target, pid, None if job == pid else job, place.mover.order)
    except (HaError, SaltInvocationError) as exc:
        __context__["retcode"] = 1
        return answer | {"comment": str(exc)}
    return answer | {"result": True, "comment": f"moves from {plan.source} to {plan.target} now"}


def genuine(tag: str, data: dict[str, Any]) -> bool:
    """
    Whether an event was fired by this master's own engine: for the SLS of a reactor, on a master.

    An accepted minion can make Salt fire events under any tag, with any data, also ``salt/ha/…``.
    Nothing else in an event proves its origin; our own have a keyed hash, which this function
    checks.

    tag, data
        of the event, as the reactor has them

    Returns False on a minion, and for an event of a minion (``salt/ha/minion/…`` always are), of
    another master, or older than ten minutes; else True.

    CLI Example (in the SLS of a reactor, as there is no event elsewhere):

    .. code-block:: jinja

        {% if salt['ha.genuine'](tag, data) %}
        page the operator:
          runner.salt.cmd:
            - args:
              - fun: cmd.run
              - cmd: /usr/local/bin/page
        {% endif %}
    """
    from saltext_ha.config import mapping  # of masters; cannot be loaded on Windows

    try:
        key = proof.read_key(mapping.parse(__opts__).state_dir)
    except (HaError, OSError, ValueError) as exc:
        proof.unreadable(str(exc))
        return False
    proof.unreadable.cache_clear()
    return proof.Proofs(key).is_ours(tag, data)


def _publishing(known: list[binding.SeenMaster], limit: float) -> list[bool | None]:
    """Whether this minion reaches each master's publisher; None: its port is not known."""
    from saltext_ha.minion.watchdog import publisher

    told = {each.publish_port for each in known} - {None}
    usual = told.pop() if len(told) == 1 else None
    asked = [replace(each, publish_port=each.publish_port or usual) for each in known]
    transport = str(__opts__.get("transport") or "zeromq")
    source = bare_ip(str(__opts__.get("source_ip") or ""))
    return publisher.reached(transport, asked, limit, source)


def _links(running: binding.Running) -> tcp_links.TcpLinks:
    pid = options.pid(__opts__)
    if pid is None:
        return tcp_links.TcpLinks(None, _no_minion())
    links = tcp_links.established(pid)
    if links.seen is None and not running.caller and tcp_links.inherits(options.bus(__opts__)):
        # A job has copies of the sockets that the minion had when it began.
        return tcp_links.established(os.getpid())
    return links


def _no_minion() -> str:
    if options.is_of_salt_ssh(__opts__):
        return options.SALT_SSH
    return f"no running minion found (pidfile {__opts__.get('pidfile')})"


def _note(row: dict[str, Any], said: str | None) -> None:
    if said:
        row["note"] = "; ".join(filter(None, (row.get("note"), said)))


def _unkept() -> str | None:
    """Why the minion cannot remember anything; None if it can."""
    found = files.problem(str(__opts__.get("cachedir")))
    return f"it remembers no moves, and is not restarted when stuck: {found}" if found else None


def _past(running: binding.Running, current: binding.SeenMaster) -> dict[str, Any]:
    """What the watchdog recorded of *current*; a hot-hot minion has one for each master."""
    here = str(current.configured)
    entries = journal.Journal(str(__opts__.get("cachedir")), running.watchdog_of(here)).read()
    pid = options.pid(__opts__)
    started = tcp_links.started_at(pid) if entries and pid else None
    since = None if started is None else journal.since(entries, here, started)
    if since is None:
        return {}
    return {
        "since": since,
        "since_iso": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(since)),
        "switches": journal.switches(entries, time.time() - 3600),
    }
