"""
Tables for people: the outputter ``ha`` of the runner functions ``salt-run ha.…``.

The runner names it in what it returns; ``--out=json`` (or any other outputter) shows the same
data as it is, whole and without decoration. CLI example:

.. code-block:: bash

    salt-run ha.status
    salt-run ha.status --out=json

.. versionadded:: 0.1.0
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

import salt.loader
import salt.utils.color

from saltext_ha.output import (
    _changes,
    _consistency,
    _current,
    _explained,
    _failover,
    _history,
    _install_minions,
    _jobs,
    _keys,
    _lint,
    _members,
    _minions,
    _once,
    _remove_peer,
    _restart_masters,
    _returned,
    _status,
    _trees,
)
from saltext_ha.output._text import (
    Data,
    Screen,
    clean,
    notes,
)

__virtualname__ = "ha"
__opts__: dict[str, Any]

_PLAIN = str.maketrans({"·": "-", "…": "..", "→": "->", "×": "x"})


def __virtual__() -> str:
    return __virtualname__


def output(data: Any, **kwargs: Any) -> str:
    """
    Render what a function of the ``ha`` runner returned.

    :param data: a mapping with a ``kind``, as every function of the runner and of the module ``ha``
        returns, or such by minion. Anything else is shown by Salt's ``nested`` outputter.
    :returns: the text to print, in colour where Salt wants colour.

    CLI Example:

    .. code-block:: bash

        salt-run ha.keys 'web*' --out=ha
    """
    if isinstance(data, Mapping) and data and all(map(_kind_of, data.values())):
        return "\n".join(_of_minion(name, answer, kwargs) for name, answer in data.items())
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if kind is None and isinstance(data, Mapping) and "error" in data:
        kind = "error"
    renderer = _RENDERERS.get(str(kind))
    if renderer is None:
        nested: str = salt.loader.outputters(__opts__)["nested"](data, **kwargs)
        return nested
    lines = renderer(data, _screen())
    if kind not in _NOT_OURS:
        lines = [*lines, *_explained.links("\n".join(lines))]
    return _encodable("\n".join(lines))


def _screen() -> Screen:
    colors = salt.utils.color.get_colors(__opts__.get("color"), __opts__.get("color_theme"))
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size((80, 24)).columns if terminal else 80
    return Screen(columns, colors, edge=terminal)


def _of_minion(name: str, answer: Any, kwargs: Mapping[str, Any]) -> str:
    render = _LINES.get(_kind_of(answer))
    if render is None:
        return output(answer, **kwargs)
    return _encodable("\n".join(render(name, answer, _current.names(__opts__), _screen())))


def _kind_of(answer: Any) -> str:
    """The kind of a minion's answer that ``salt`` or ``salt-call`` prints; empty: not ours."""
    if isinstance(answer, Mapping):
        moved = answer.keys() >= {"from", "to", "result", "comment"}
        return str(answer.get("kind") or ("failover" if moved else ""))
    listed = isinstance(answer, list) and all(
        isinstance(row, Mapping) and row.keys() >= {"address", "current"} for row in answer
    )
    return "masters" if listed and answer else ""


def _encodable(text: str) -> str:
    # Salt prints the repr of the bytes if the locale cannot show a character.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    return text


def _job_lines(data: Data, screen: Screen) -> list[str]:
    """A job, and its returns in Salt's own form."""
    lines, show = _jobs.head(data, screen), _of_minions(screen)
    for minion, value in (data.get("returned") or {}).items():
        lines += show(minion, value, 0)
    return [*lines, *_jobs.rest(data, screen)]


def _of_minions(screen: Screen) -> Callable[[str, Any, int], list[str]]:
    """Renders what a minion returned to a job as ``salt`` would; takes its id and exit code."""
    outputters = salt.loader.outputters(__opts__)

    def show(minion: str, value: Any, code: int) -> list[str]:
        if render := _LINES.get(_kind_of(value)):
            return render(minion, value, _current.names(__opts__), screen)
        return _returned.returned(minion, value, code, outputters, screen)

    return show


def _once_lines(data: Data, screen: Screen) -> list[str]:
    """The result, and the return of the function in Salt's own form."""
    lines, value = _once.once(data, screen), data.get("return")
    if isinstance(value, Mapping) and str(data.get("function")).startswith("local."):
        show = _of_minions(screen)
        for minion, each in value.items():
            lines += show(minion, each, 0)
    elif isinstance(value, Mapping) and value.get("outputter") == "highstate":
        states = _returned.harmless(value.get("data"))  # state.orchestrate
        lines.append(salt.loader.outputters(__opts__)["highstate"](states).rstrip("\n"))
    elif value is not None:
        lines.append(output(value))
    return lines


def _error(data: Data, screen: Screen) -> list[str]:
    first, *rest = str(data.get("error") or "unknown error").splitlines() or ["unknown error"]
    lines = [f"{screen.paint('error')}: {clean(first)}", *(f"  {clean(line)}" for line in rest)]
    return lines + notes(data)


_LINES: dict[str, Callable[..., list[str]]] = {
    "current_master": _current.line,
    "masters": _current.masters,
    "failover": _current.moved,
    "lint": _lint.of_minion,
    "version": _current.version,
}
# Returns of minions, and files: text in them is no message of this program.
_NOT_OURS = frozenset({"cmd", "lookup_jid", "once", "minion_config", "proxy_config"})
_RENDERERS: dict[str, Callable[[Data, Screen], list[str]]] = {
    "consistency": _consistency.render,
    "status": _status.status,
    "keys": _keys.keys,
    "sync": _changes.changes,
    "peers": _members.peers,
    "invite": _members.invite,
    "join": _members.join,
    "join_plan": _members.join_plan,
    "history": _history.render,
    "removal": _remove_peer.render,
    "deploy": _trees.deploy,
    "deployments": _trees.deployments,
    "leader": _once.leader,
    "once": _once_lines,
    "jobs": _jobs.jobs,
    "lookup_jid": _job_lines,
    "restart_masters": _restart_masters.restart_masters,
    "install_minions": _install_minions.install_minions,
    "lint": _lint.render,
    "current_master": lambda data, screen: _current.line(
        "", data, _current.names(__opts__), screen
    ),
    "minions": _minions.minions,
    "reachability": _minions.reachability,
    "where": _minions.where,
    "cmd": lambda data, screen: _minions.cmd(data, screen, _of_minions(screen)),
    "drain": _minions.moves,
    "rebalance": _minions.moves,
    "minion_config": _failover.config,
    "failover_safe": _failover.safe,
    # Meant for a file: unchanged.
    "proxy_config": lambda data, screen: str(data.get("text") or "").splitlines(),
    "notice": lambda data, screen: notes(data),
    "error": _error,
}
