"""Peers, invitations and joins as text."""

from __future__ import annotations

from typing import Any

from saltext_ha.output import _changes
from saltext_ha.output._names import Masters
from saltext_ha.output._text import (
    Data,
    Screen,
    clean,
    duration,
    fingerprint,
    notes,
    seen,
    with_notes,
)


def peers(data: Data, screen: Screen) -> list[str]:
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
            *notes(data),
        ]
    own = me.get("name")
    told = any(peer.get("introducer") for peer in peers)
    rows = [
        [
            peer.get("name"),
            peer.get("url"),
            fingerprint(peer.get("fingerprint") or "?"),
            *([_introducer(peer, own)] if told else []),
            "running" if peer.get("state") == "up" else "unknown",  # the word of ha.status
            seen(peer),
        ]
        for peer in peers
    ]
    columns = ["Peer", "URL", "Certificate", *(["Introduced by"] if told else []), "State", "Seen"]
    names = [own, *(peer.get(key) for peer in peers for key in ("name", "introducer"))]
    named = Masters(["Peer", "Introduced by"], names)
    return [*lines, *with_notes(screen, columns, rows, peers, masters=named), *notes(data)]


def _introducer(peer: Data, own: Any) -> Any:
    """Nobody, if this master itself has let it in or joined with it; ``?``: that is not known."""
    introducer = peer.get("introducer") or "?"
    return "-" if introducer == own else introducer


def invite(data: Data, screen: Screen) -> list[str]:
    expires = data.get("expires_in")
    within = f" within {duration(expires)}" if expires is not None else ""
    lines = [f"Invitation {clean(data.get('invitation') or '?')}, for one use{within}"]
    if data.get("token_file"):
        lines += ["Its token is in", clean(data["token_file"])]
    if data.get("command"):
        lines += ["On the new master:", clean(data["command"])]
    return lines + notes(data)


def join(data: Data, screen: Screen) -> list[str]:
    members = ", ".join(clean(name) for name in data.get("members") or [])
    group = clean(data.get("group") or "?")
    return [f"Joined group {group}: {members or 'no members'}", *notes(data)]


def join_plan(data: Data, screen: Screen) -> list[str]:
    """Lines for the answer of ``ha.join test=True``."""
    members = ", ".join(clean(name) for name in data.get("members") or [])
    group = clean(data.get("group") or "?")
    problems = data.get("problems") or []
    verb = screen.paint("Could not join", "error") if problems else "Would join"
    return [
        f"{verb} group {group}: {members or 'no members'}",
        *(f"  {clean(problem)}" for problem in problems),
        *(f"  would not be put in place: {clean(p)}" for p in data.get("key_problems") or []),
        *_changes.changes(data, screen),
    ]
