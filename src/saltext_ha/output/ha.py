"""
Tables for people: the outputter ``ha`` of the runner functions ``salt-run ha.…``.

The runner names it in what it returns; ``--out=json`` (or any other outputter) shows the same
data as it is, whole and without decoration. CLI example:

.. code-block:: bash

    salt-run ha.status
    salt-run ha.status --out=json
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import salt.loader
import salt.utils.color

from saltext_ha.output import (
    _consistency,
    _current,
    _explained,
    _failover,
    _history,
    _installing,
    _jobs,
    _lint,
    _minions,
    _once,
    _removal,
    _restarting,
    _trees,
)
from saltext_ha.output._text import (
    Screen,
    clean,
    count,
    display_width,
    distinct,
    duration,
    fingerprint,
    not_asked,
    number,
    shorten,
    table,
)

__virtualname__ = "ha"
__opts__: dict[str, Any]

LISTED = 50  # entries of a list below a table; all of them are in the JSON
LONGEST_NOTE = 400
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
    columns = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    return Screen(columns, colors)


def _of_minion(name: str, answer: Any, kwargs: Mapping[str, Any]) -> str:
    render = _LINES.get(_kind_of(answer))
    if render is None:
        return output(answer, **kwargs)
    return _encodable("\n".join(render(name, answer, _current.names(__opts__), _screen())))


def _kind_of(answer: Any) -> str:
    """What an answer of a minion, as ``salt`` and ``salt-call`` print it, is; empty: not ours."""
    if isinstance(answer, Mapping):
        moved = answer.keys() >= {"from", "to", "result", "comment"}
        return str(answer.get("kind") or ("failover" if moved else ""))
    listed = isinstance(answer, list) and all(
        isinstance(row, Mapping) and row.keys() >= {"address", "current"} for row in answer
    )
    return "masters" if listed and answer else ""


def _encodable(text: str) -> str:
    # Salt prints the repr of the bytes when the locale cannot show a character.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    return text


def _status(data: Mapping[str, Any], screen: Screen) -> list[str]:
    state = clean(data.get("state") or "unknown")
    head = [f"Group {clean(data.get('group') or '?')}", screen.paint(state.upper())]
    if data.get("mode"):
        head.append(f"sync {clean(data['mode'])}")
    if data.get("tolerates") is not None:
        head.append(f"tolerates the loss of {count(data['tolerates'], 'master')}")
    if data.get("leader"):
        head.append(_once.in_status(data["leader"]))
    masters = data.get("masters") or []
    lines = [" · ".join(head)]
    if masters:
        lines += _masters(masters, screen) + _of_masters(data) + _once.apart(data)
    else:
        lines.append("no masters")
    lines += _conflicts(data.get("conflicts") or [], screen)
    held = data.get("held") or []
    if held:
        lines.append(screen.paint(f"{count(len(held), 'change')} held", "pending"))
        lines += _listed(
            f"{clean(item.get('master'))}: {count(item.get('keys') or 0, 'accepted key')} vanished "
            "there at once, or revoked ones came back;\n      nothing of it has reached the others"
            for item in held
        )
        lines += [
            "  → bring its key folder back; or there, with test=True first:",
            "      salt-run ha.refill    what the group knows holds",
            "      salt-run ha.release   what the folder shows holds, and is done everywhere",
        ]
    refusals = data.get("refusals") or []
    if refusals:
        lines.append("refused from peers")
        lines += _listed(
            f"{number(item.get('times') or 0)} × {clean(item.get('reason'))}, from "
            f"{clean(item.get('from'))}, {_ago(item.get('last'))}"
            for item in refusals
        )
    comparison = data.get("consistency") or {}
    lines += _consistency.last(comparison, screen)
    if not comparison.get("stale"):
        lines += _not_compared(data, screen)
    return lines + _notes(data)


def _ago(at: Any) -> str:
    return f"{duration(max(0.0, time.time() - at))} ago" if isinstance(at, (int, float)) else "?"


def _of_masters(data: Mapping[str, Any]) -> list[str]:
    """Why masters are not ok, where neither the table nor their notes say it."""
    notes = {row.get("name"): row.get("note") or "" for row in data.get("masters") or []}
    return [
        f"  {clean(reason.get('about'))}: {shorten(clean(reason.get('text')), LONGEST_NOTE)}"
        for reason in data.get("reasons") or []
        if reason.get("kind") in ("serves", "ready")
        and str(reason.get("text")) not in notes.get(reason.get("about"), "")
    ]


def _not_compared(data: Mapping[str, Any], screen: Screen) -> list[str]:
    """Why it is unknown whether masters differ, though the last comparison is not stale."""
    return [
        line
        for reason in data.get("reasons") or []
        if reason.get("kind") == "comparison" and "unknown" in (reason.get("states") or ())
        for line in _consistency.unknown(str(reason.get("text")), screen)
    ]


def _masters(masters: list[Mapping[str, Any]], screen: Screen) -> list[str]:
    amounts = ["accepted", "pending"]
    amounts += [key for key in ("rejected", "denied") if any(m.get(key) for m in masters)]
    bound = ["bound"] if any(m.get("bound") is not None for m in masters) else []
    right = [key.capitalize() for key in (*amounts, *bound)]
    columns = ["Master", "State", "Salt", *right[: len(amounts)], "Digest", "Behind"]
    columns += [*right[len(amounts) :], "Seen"]
    rows = []
    for master in masters:
        state = master.get("state") or "unknown"
        missing = "-" if state == "running" else "?"
        rows.append(
            [
                f"{master.get('name')} *" if master.get("self") else str(master.get("name")),
                state,
                master.get("salt") or "?",
                *(_amount(master.get(key), missing) for key in amounts),
                master.get("digest") or missing,
                _behind(master.get("behind"), missing),
                *(_amount(master.get(key), missing) for key in bound),
                _seen(master),
            ]
        )
    return _with_notes(screen, columns, rows, masters, right)


def _amount(value: int | None, missing: str) -> str:
    return missing if value is None else number(value)


def _behind(value: int | None, missing: str) -> str:
    if value is None:
        return missing
    return count(value, "key") if value else "-"


def _seen(entry: Mapping[str, Any]) -> str:
    seconds = entry.get("seen")
    if seconds is None:
        return "-" if entry.get("self") else "never"
    return duration(seconds)


def _with_notes(
    screen: Screen,
    columns: list[str],
    rows: list[list[str]],
    entries: Sequence[Mapping[str, Any]],
    right: list[str],
) -> list[str]:
    """A table with a last column of notes, or the notes below it where they do not fit beside."""
    notes = [clean(entry.get("note") or "") for entry in entries]
    if not any(notes):
        return table(screen, columns, rows, right)
    beside = [[*row, note] for row, note in zip(rows, notes, strict=True)]
    unbounded = Screen(width=sys.maxsize)
    widest = max(map(display_width, table(unbounded, [*columns, "Note"], beside, right)))
    if widest <= screen.width:
        return table(screen, [*columns, "Note"], beside, right)
    lines = table(screen, columns, rows, right)
    return lines + [
        f"  {clean(entry.get('name') or entry.get('id'))}: {shorten(note, LONGEST_NOTE)}"
        for entry, note in zip(entries, notes, strict=True)
        if note
    ]


def _conflicts(conflicts: list[Mapping[str, Any]], screen: Screen) -> list[str]:
    if not conflicts:
        return []
    title = f"{count(len(conflicts), 'conflict')}: different keys accepted for one id"
    lines = [screen.paint(title, "conflict")]
    entries = []
    for conflict in conflicts:
        keys = conflict.get("keys") or {}
        shown = distinct(_state(key) for key in keys.values())
        prints = "   ".join(f"{clean(name)} {fp}" for name, fp in zip(keys, shown, strict=True))
        entries.append(f"{clean(conflict.get('id'))}   {prints}".rstrip())
        entries[-1] += f"\n  → {_resolve(conflict)}"
    return [*lines, *_listed(entries)]


def _resolve(conflict: Mapping[str, Any]) -> str:
    """What ends a conflict: which key is the minion's own only an operator can tell."""
    found = [str(text) for text in (conflict.get("keys") or {}).values() if text]
    keys = dict.fromkeys(key.split()[-1] for text in found for key in text.split(", "))
    shown = " or ".join(distinct(keys)) or "FINGERPRINT"
    return f"salt-run ha.resolve {clean(conflict.get('id'))} {shown}"


def _listed(entries: Any) -> list[str]:
    lines = [f"  {entry}" for entry in entries]
    if len(lines) > LISTED:
        return [*lines[:LISTED], f"  … {number(len(lines) - LISTED)} more (--out=json has all)"]
    return lines


def _notes(data: Mapping[str, Any]) -> list[str]:
    return [shorten(clean(note), LONGEST_NOTE) for note in data.get("notes") or []]


def _keys(data: Mapping[str, Any], screen: Screen) -> list[str]:
    keys = data.get("keys") or []
    masters = [str(name) for name in data.get("masters") or []]
    if not keys:
        return [*not_asked(data, screen), "no keys"]
    rows = []
    for key in keys:
        states = key.get("states") or {}
        shown = fingerprint(key.get("fingerprint") or "?")
        rows.append([str(key.get("id")), shown, *(_state(states.get(m, "-")) for m in masters)])
    entries = [{**key, "note": "conflict" if key.get("conflict") else ""} for key in keys]
    columns = ["Id", "Fingerprint", *map(clean, masters)]
    lines = _with_notes(screen, columns, rows, entries, []) + not_asked(data, screen)
    differ = sum(not key.get("same") for key in keys)
    conflicts = len({key.get("id") for key in keys if key.get("conflict")})
    summary = [count(len(keys), "key")]
    summary.append(f"{number(differ)} not the same everywhere" if differ else "all the same")
    if conflicts:
        summary.append(screen.paint(count(conflicts, "conflict"), "conflict"))
    lines.append(" · ".join(summary))
    if len(keys) == 1 and keys[0].get("fingerprint"):
        # Asked for one key, an operator is about to compare it with what the minion says.
        lines.append(clean(keys[0]["fingerprint"]))
    return lines


def _state(state: Any) -> str:
    if state is None:
        return "-"
    return "?" if state == "unknown" else str(state)


def _sync(data: Mapping[str, Any], screen: Screen) -> list[str]:
    changes = data.get("changes") or []
    test = data.get("test")
    lines = []
    if changes:
        rows = [[str(c.get(key, "?")) for key in ("master", "id", "from", "to")] for c in changes]
        rows = [[m, i, _short(f), _short(t)] for m, i, f, t in rows]
        lines += table(screen, ["Master", "Id", "From", "To"], rows)
        done = "made" if data.get("written", True) else "recorded; no key store is written"
        done = "planned; nothing was changed (test=True)" if test else done
        lines.append(f"{count(len(changes), 'change')} {done}")
    else:
        lines.append("nothing to change")
    lines += _conflicts(data.get("conflicts") or [], screen)
    for name, why in (data.get("unreachable") or {}).items():
        lines.append(f"{screen.paint(clean(name), 'unknown')} could not be reached: {clean(why)}")
    return lines + _notes(data)


def _notice(data: Mapping[str, Any], screen: Screen) -> list[str]:
    return _notes(data)


def _short(state: str) -> str:
    """``accepted 3a:9f:…``: the fingerprint in a state shortened, the words kept."""
    return " ".join(fingerprint(word) for word in state.split())


def _peers(data: Mapping[str, Any], screen: Screen) -> list[str]:
    me = data.get("self") or {}
    lines = [
        f"This master: {clean(me.get('name'))}  {clean(me.get('url'))}",
        f"certificate  {clean(me.get('fingerprint'))}",
    ]
    peers = data.get("peers") or []
    if not peers:
        return [
            *lines,
            "no peers; salt-ha invite here, then salt-ha join --token-file - on the other master",
            *_notes(data),
        ]
    told = any(peer.get("introducer") for peer in peers)
    rows = [
        [
            str(peer.get("name")),
            str(peer.get("url")),
            fingerprint(peer.get("fingerprint") or "?"),
            *([str(peer.get("introducer") or "?")] if told else []),
            str(peer.get("state") or "unknown"),
            _seen(peer),
        ]
        for peer in peers
    ]
    columns = ["Peer", "URL", "Certificate", *(["Let in by"] if told else []), "State", "Seen"]
    return [*lines, *_with_notes(screen, columns, rows, peers, []), *_notes(data)]


def _invite(data: Mapping[str, Any], screen: Screen) -> list[str]:
    expires = data.get("expires_in")
    within = f" within {duration(expires)}" if expires is not None else ""
    lines = [f"Invitation {clean(data.get('invitation') or '?')}, for one use{within}"]
    if data.get("token_file"):
        lines += ["Its token is in", clean(data["token_file"])]
    if data.get("command"):
        lines += ["On the new master:", clean(data["command"])]
    return lines + _notes(data)


def _join(data: Mapping[str, Any], screen: Screen) -> list[str]:
    members = ", ".join(clean(name) for name in data.get("members") or [])
    group = clean(data.get("group") or "?")
    return [f"Joined group {group}: {members or 'no members'}", *_notes(data)]


def _join_plan(data: Mapping[str, Any], screen: Screen) -> list[str]:
    members = ", ".join(clean(name) for name in data.get("members") or [])
    group = clean(data.get("group") or "?")
    problems = data.get("problems") or []
    verb = screen.paint("Could not join", "error") if problems else "Would join"
    return [
        f"{verb} group {group}: {members or 'no members'}",
        *(f"  {clean(problem)}" for problem in problems),
        *(f"  would not be put in place: {clean(p)}" for p in data.get("key_problems") or []),
        *_sync(data, screen),
    ]


def _job_lines(data: Mapping[str, Any], screen: Screen) -> list[str]:
    """A job, and what it returned as Salt shows that."""
    shown = [output(data["returned"])] if data.get("returned") else []
    return [*_jobs.head(data, screen), *shown, *_jobs.rest(data, screen)]


def _once_lines(data: Mapping[str, Any], screen: Screen) -> list[str]:
    """What became of it, and what it returned as Salt shows that."""
    lines = _once.once(data, screen)
    if data.get("return") is not None:
        lines.append(output(data["return"]))
    return lines


def _error(data: Mapping[str, Any], screen: Screen) -> list[str]:
    first, *rest = str(data.get("error") or "unknown error").splitlines() or ["unknown error"]
    lines = [f"{screen.paint('error')}: {clean(first)}", *(f"  {clean(line)}" for line in rest)]
    return lines + _notes(data)


_LINES: dict[str, Callable[..., list[str]]] = {
    "current_master": _current.line,
    "masters": _current.masters,
    "failover": _current.moved,
}
# What minions returned, and files: what stands in them is no message of this program.
_NOT_OURS = frozenset({"cmd", "lookup_jid", "once", "minion_config", "proxy_config"})
_RENDERERS: dict[str, Callable[[Mapping[str, Any], Screen], list[str]]] = {
    "consistency": _consistency.render,
    "status": _status,
    "keys": _keys,
    "sync": _sync,
    "peers": _peers,
    "invite": _invite,
    "join": _join,
    "join_plan": _join_plan,
    "history": _history.render,
    "removal": _removal.render,
    "deploy": _trees.deploy,
    "deployments": _trees.deployments,
    "leader": _once.leader,
    "once": _once_lines,
    "jobs": _jobs.jobs,
    "lookup_jid": _job_lines,
    "restart_masters": _restarting.restart_masters,
    "install_minions": _installing.install_minions,
    "lint": _lint.render,
    "current_master": lambda data, screen: _current.line(
        "", data, _current.names(__opts__), screen
    ),
    "minions": _minions.minions,
    "reachability": _minions.reachability,
    "where": _minions.where,
    "cmd": _minions.cmd,
    "drain": _minions.moves,
    "rebalance": _minions.moves,
    "minion_config": _failover.config,
    "failover_safe": _failover.safe,
    # To be put into a file: as it is.
    "proxy_config": lambda data, screen: str(data.get("text") or "").splitlines(),
    "notice": _notice,
    "error": _error,
}
