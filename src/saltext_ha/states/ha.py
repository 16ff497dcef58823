"""
State ``ha``: a minion knows all masters of its group.

:depends: saltext-ha on the minion

.. versionadded:: 0.1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __opts__: dict[str, Any]

__virtualname__ = "ha"


def __virtual__() -> str:
    return __virtualname__


def multi_master(
    name: str,
    masters: Any,
    type: str = "failover",
    publish_port: int | None = 4505,
    alive: int = 30,
    failback: bool = False,
    watchdog: bool = False,
    finger: str = "",
    signed: bool = False,
    transport: str = "zeromq",
    jitter: int = 2,
    timeout: float = 180,
    retry: bool = False,
    names: Any = None,
) -> dict[str, Any]:
    """
    Manage the file ``minion.d/ha-masters.conf``, and restart the minion when it has changed.

    The restart comes when the job has returned. If the minion then does not reach one of the
    masters, the old file is put back and the minion restarted again; the same file is not tried
    again for an hour. ``salt-run ha.minion_config format=sls`` prints this state for a group.

    name
        Has no meaning.
    masters
        A list of hosts, or ``host:port`` where the request port is not 4506.
    type
        ``failover`` (one master at a time) or ``hot`` (all at once).
    publish_port
        Of all masters. None for hot minions whose masters have different ones: then the file has
        none, and each master tells its own.
    alive
        Failover: seconds between two looks at the master.
    failback
        Failover: go back to the first master when it has worked for a while. This needs
        ``watchdog``; without it Salt goes back at the first answer, and may swing.
    watchdog
        Run the engine ``ha_watchdog``.
    finger
        SHA-256 fingerprint of the key that all masters have.
    signed
        The minion recognises its masters by the ``master_sign.pub`` that it has.
    transport
        The transport of the masters: ``zeromq``, ``tcp`` or ``ws``.
    jitter
        Watchdog: whole seconds by which a move is delayed at most, at random, so that thousands of
        minions do not come at once: 3 for each thousand. ``ha.minion_config`` computes it.
    timeout
        Seconds that the minion may take to reach a master after its restart.
    retry
        Try a file again that was put back within the last hour.
    names
        Names of masters in their group (``ha: name``), a mapping to their entries in ``masters``:
        then ``ha.failover to=m2`` works.

    Other files of ``minion.d`` that set the same options, and a file of that name that was not
    written by this state, are errors: nothing is overwritten.

    .. code-block:: yaml

        masters of this minion:
          ha.multi_master:
            - masters: [10.0.0.1, 10.0.0.2]
            - finger: "3a:9f:…"
    """
    from saltext_ha.common.errors import HaError, reason_of
    from saltext_ha.common.validators import is_number
    from saltext_ha.minion import files, options
    from saltext_ha.minion.restarting import restart
    from saltext_ha.rollout import drop_in, plan, record, trial

    ret: dict[str, Any] = {"name": name, "changes": {}, "result": False, "comment": ""}
    opts = __opts__
    caller = bool(opts.get("caller"))
    try:
        if unkept := files.problem(str(opts["cachedir"])):
            raise HaError(f"{unkept}; what became of a restart could not be noted there")
        if not is_number(timeout) or timeout < 1:
            raise HaError(f"timeout: {timeout!r}: takes seconds, at least 1")
        # Salt has a retry for all states, too. After a failure it calls again, with a mapping.
        if not isinstance(retry, (bool, dict)):
            raise HaError(f"retry: {retry!r}: takes True or False")
        wish = drop_in.wanted(
            masters,
            type,
            publish_port,
            alive,
            failback,
            watchdog,
            finger,
            signed,
            transport,
            jitter,
            names,
        )
        if not caller and not opts.get("multiprocessing", True):
            raise HaError(
                "multiprocessing is off: the process that restarts the minion would end with it"
            )
        minion = options.pid(opts, caller)
        made = plan.make(opts, wish, minion, bool(retry))
        needed = minion is not None and (made.changes or made.stale) and not made.trying
        # Fail now, while it can still be reported.
        way = restart.way(minion, opts) if minion is not None and needed else None
    except HaError as exc:
        return ret | {"comment": str(exc)}
    if made.changes:
        ret["changes"] = {"diff": made.diff}
    if needed:
        ret["changes"]["restart"] = "the minion, when this job has returned"
    remarks = "".join(f"\n{remark}" for remark in made.remarks)
    if opts.get("test"):
        todo = f"{made.path} would be written" if made.changes else "the minion would be restarted"
        if not ret["changes"]:
            return ret | {"result": True, "comment": f"{made.path} is as it should be{remarks}"}
        return ret | {"result": None, "comment": todo + remarks}
    if made.trying:
        return ret | {"result": True, "comment": f"{made.path} is just being tried{remarks}"}
    if made.changes:
        try:
            made.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            record.replace(made.path, made.new)
        except OSError as exc:
            comment = f"{made.path}: cannot be written: {reason_of(exc)}"
            return ret | {"changes": {}, "comment": comment}
    if minion is None or way is None:
        what = "was written; no minion runs" if made.changes else "is as it should be"
        return ret | {"result": True, "comment": f"{made.path} {what}{remarks}"}
    try:
        trial.launch(made.order(opts, minion, way, float(timeout)))
    except HaError as exc:
        comment = f"{made.path} is as it was, and the minion not restarted: {exc}; run this again"
        return ret | {"changes": {}, "comment": comment}
    back = f"; the old file comes back unless it reaches a master within {timeout:g} s"
    comment = f"the minion restarts when this job has returned{back if made.changes else ''}"
    return ret | {"result": True, "comment": comment + remarks}
