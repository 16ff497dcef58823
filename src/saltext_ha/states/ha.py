"""
State ``ha``: a minion knows all masters of its group; steps of an orchestration reach the minions
of all masters.

:depends: saltext-ha on the minion, or for :func:`state` and :func:`function` on the master

.. versionadded:: 0.1.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from saltext_ha.minion import windows

if TYPE_CHECKING:
    __opts__: dict[str, Any]
    __salt__: Mapping[str, Callable[..., Any]]

__virtualname__ = "ha"


def __virtual__() -> str | tuple[bool, str]:
    return windows.virtual(__virtualname__)


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


def state(
    name: str,
    tgt: Any,
    tgt_type: str = "glob",
    sls: Any = None,
    highstate: bool = False,
    top: str = "",
    saltenv: str | None = None,
    pillar: Mapping[str, Any] | None = None,
    pillarenv: str | None = None,
    exclude: Any = None,
    queue: Any = False,
    concurrent: bool = False,
    test: bool | None = None,
    timeout: float | None = None,
    batch: Any = None,
    expect_minions: bool = True,
    expect_masters: bool = True,
    fail_minions: Any = (),
    allow_fail: int = 0,
) -> dict[str, Any]:
    """
    In an orchestration: apply states on minions of the whole group, each asked by a master that it
    listens to. Salt's own ``salt.state`` reaches the minions of one master.

    name
        Has no meaning.
    tgt, tgt_type, timeout, batch
        As for the runner ``ha.cmd``.
    sls, highstate, top, saltenv, pillar, pillarenv, exclude, queue, concurrent
        What is applied, as for ``salt.state``.
    test
        Only show what would change; default: as the orchestration. False: change it, also where the
        configuration of a minion says ``test: True``.
    expect_minions
        False: minions that do not return do not fail the step.
    expect_masters
        A master that cannot be asked fails the step if it had a part of the job, or if that leaves
        open whom the target meant, which is so for all targets but globs and lists of ids. False:
        it does not; minions that it may have left out do not show.
    fail_minions
        Ids, a list or separated by commas, whose failure does not fail the step.
    allow_fail
        How many others may fail.

    Returners, ``ssh`` and ``subset`` are not taken: use ``salt.state``.

    .. code-block:: yaml

        databases:
          ha.state:
            - tgt: 'db*'
            - sls: [postgres]
        web servers:
          ha.state:
            - tgt: role:web
            - tgt_type: grain
            - highstate: True
            - batch: 10%
            - require:
              - ha: databases
    """
    from salt.utils.state import check_result

    from saltext_ha.commands.minions import orchestrated
    from saltext_ha.common.errors import HaError

    ret: dict[str, Any] = {"name": name, "changes": {}, "result": False}
    if highstate:
        fun, arg = "state.highstate", []
    elif top or sls:
        fun = "state.top" if top else "state.sls"
        arg = [top or (",".join(sls) if isinstance(sls, list) else sls)]
    else:
        return ret | {"comment": "nothing to apply: takes one of sls, highstate and top"}
    if test is None and __opts__.get("test"):
        test = True
    # False is told: a minion whose configuration says "test: True" would change nothing.
    wanted = {
        "saltenv": saltenv,
        "pillar": pillar,
        "pillarenv": pillarenv,
        "exclude": exclude,
        "test": test,
        "queue": queue or None,
        "concurrent": concurrent or None,
    }
    kwarg = {key: value for key, value in wanted.items() if value is not None}
    try:
        expected = orchestrated.Expected(
            lambda states: bool(
                orchestrated.left_out(states) or check_result(states, recurse=True)
            ),
            expect_minions,
            expect_masters,
            orchestrated.ids(fail_minions),
            orchestrated.number(allow_fail),
        )
        answer = _cmd(tgt, fun, arg, kwarg, tgt_type=tgt_type, timeout=timeout, batch=batch)
    except HaError as exc:
        return ret | {"comment": str(exc)}
    ret |= orchestrated.shown(answer, tgt_type, expected, orchestrated.changed)
    if ret["changes"]:
        ret["changes"] = {"out": "highstate", "ret": ret["changes"]}
        if test and ret["result"]:
            ret["result"] = None
    return ret


def function(
    name: str,
    tgt: Any,
    tgt_type: str = "glob",
    arg: Any = (),
    kwarg: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    batch: Any = None,
    expect_minions: bool = True,
    expect_masters: bool = True,
    fail_minions: Any = (),
    fail_function: str = "",
) -> dict[str, Any]:
    """
    In an orchestration: run a function on minions of the whole group, each asked by a master that
    it listens to. Salt's own ``salt.function`` reaches the minions of one master.

    name
        The function, such as ``cmd.run``.
    tgt, tgt_type, timeout, batch
        As for :func:`state`.
    arg, kwarg
        A list (or its only entry) and a mapping of arguments.
    expect_minions, expect_masters, fail_minions
        As for :func:`state`. By default a minion that does not return fails the step; with Salt's
        ``salt.function`` it does not.
    fail_function
        A function of the master that takes what a minion returned, and tells whether that is a
        success. A minion that returned False, or ended with an exit code, has failed anyway.

    With ``test=True`` of the orchestration nothing is run. Returners, ``ssh`` and ``subset`` are
    not taken: use ``salt.function``.

    .. code-block:: yaml

        wait for the restarted minions:
          ha.function:
            - name: test.ping
            - tgt: 'web*'
            - timeout: 10
            - retry: {attempts: 12, interval: 5}
    """
    from saltext_ha.commands.minions import orchestrated
    from saltext_ha.common.errors import HaError

    ret: dict[str, Any] = {"name": name, "changes": {}, "result": False}
    if __opts__.get("test"):
        return ret | {"result": None, "comment": f"{name} would be run on {tgt}"}

    def good(value: Any) -> bool:
        return value is not False and bool(not fail_function or __salt__[fail_function](value))

    try:
        if fail_function and fail_function not in __salt__:
            raise HaError(f"fail_function: there is no function {fail_function} on this master")
        may_fail = orchestrated.ids(fail_minions)
        expected = orchestrated.Expected(good, expect_minions, expect_masters, may_fail)
        given = orchestrated.arguments(arg, kwarg)
        answer = _cmd(tgt, name, *given, tgt_type=tgt_type, timeout=timeout, batch=batch)
    except HaError as exc:
        return ret | {"comment": str(exc)}
    ret |= orchestrated.shown(answer, tgt_type, expected, lambda value: True)
    if ret["changes"]:
        ret["changes"] = {"ret": ret["changes"]}
    return ret


def _cmd(
    tgt: Any, fun: str, arg: list[Any], kwarg: dict[str, Any], **options: Any
) -> dict[str, Any]:
    """
    The answer of ``ha.cmd``.

    :raises HaError: this is no orchestration, an argument is wrong, or the engine does not run.
    """
    from saltext_ha.commands import engine_client
    from saltext_ha.commands.minions import cmd_batches, orchestrated
    from saltext_ha.common.errors import HaError
    from saltext_ha.config import mapping

    if __opts__.get("__role") != "master":
        raise HaError("this is a step of an orchestration, for  salt-run state.orchestrate")
    orchestrated.check_target(tgt)
    options = {key: value for key, value in options.items() if value is not None}
    timeout = options.setdefault("timeout", cmd_batches.TIMEOUT)
    by = engine_client.caller(__opts__.get("user"))
    ask = engine_client.asking(mapping.parse(__opts__), by, timeout, cmd_batches.BESIDE)
    return cmd_batches.run(ask, tgt, fun, arg, kwarg, **options)
