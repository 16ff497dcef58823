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
    again: bool = False,
    master_names: Any = None,
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
    again
        Try a file again that was put back within the last hour.
    master_names
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
    from saltext_ha.common.errors import HaError
    from saltext_ha.rollout import applied, drop_in

    ret: dict[str, Any] = {"name": name, "changes": {}, "result": False}
    try:
        wish = drop_in.wanted(
            masters,
            type=type,
            publish_port=publish_port,
            alive=alive,
            failback=failback,
            watchdog=watchdog,
            finger=finger,
            signed=signed,
            transport=transport,
            jitter=jitter,
            master_names=master_names,
        )
        return ret | applied.apply(__opts__, wish, timeout, again)._asdict()
    except HaError as exc:
        return ret | {"comment": str(exc)}
